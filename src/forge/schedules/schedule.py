"""Schedules and their runs as plain data, the checks of a requested definition, and which time is due."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import Enum, StrEnum
from typing import Any, Generic, NamedTuple, Protocol, Required, TypedDict, TypeVar, Unpack, cast

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief, sendable
from forge.core.secrets import Secrets
from forge.core.time_zones import zone_of
from forge.schedules.cron import Cron
from forge.workspace.state.store import StoreError

LONGEST_ID = 64
LONGEST_TASK = 10_000  # characters
LONGEST_NAME = 200  # of a channel, a target, a skill
LONGEST_RESULT = 4_000  # characters of a run's text or error that are stored
WORDS_OF_ID = 5

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Source(StrEnum):
    """The author of a schedule, who may change it. A person may also change what a model has set."""

    CONFIG = "config"
    PERSON = "person"
    MODEL = "model"


class Status(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"  # the previous run was still active
    CANCELLED = "cancelled"  # the runner was stopped
    LOST = "lost"  # the runner was killed: the task may or may not be done


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A task, and when it is due. Times are seconds since 1970."""

    id: str
    cron: str
    task: str
    timezone: str = "UTC"
    enabled: bool = True
    one_shot: bool = False
    command: bool = False  # the task is a command line, which runs without a model
    skill: str = ""
    channel: str = ""
    channel_target: str = ""
    source: Source = Source.MODEL
    origin: str = ""  # the file that declares it
    created: float = 0.0
    updated: float = 0.0
    next_fire: float | None = None  # None: not enabled, or a one-shot that has fired
    last_fire: float | None = None
    problem: str = ""  # why it does not run: something else than Forge stored or changed it

    def to_dict(self) -> dict[str, Any]:
        """Returns the schedule for programs: times as RFC 3339, in the zone of the schedule."""
        return {
            "id": self.id,
            "cron": self.cron,
            "task": self.task,
            "enabled": self.enabled,
            "source": str(self.source),
            "next_fire": self.format_time(self.next_fire),
            "last_fire": self.format_time(self.last_fire),
            "timezone": self.timezone,
            "one_shot": self.one_shot,
            "command": self.command,
            "skill": self.skill or None,
            "channel": self.channel or None,
            "channel_target": self.channel_target or None,
            "problem": self.problem or None,
        }

    def format_time(self, moment: float | None) -> str | None:

        try:
            return format_moment(moment, zone_of(self.timezone))
        except ToolError:  # this machine does not know the zone any more
            return format_moment(moment, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRun:
    """One time that a schedule was due."""

    id: int
    schedule_id: str
    status: Status
    due: float
    started: float
    duration: float | None = None  # seconds; None while it is active, and if unknown
    error: str = ""
    result: str = ""
    session: str = ""
    run_id: str = ""  # the id of the worker's run, if a worker runs it

    def to_dict(self) -> dict[str, Any]:
        return {
            "schedule_id": self.schedule_id,
            "status": str(self.status),
            "due": format_moment(self.due, UTC),
            "started": format_moment(self.started, UTC),
            "duration": None if self.duration is None else round(self.duration, 3),
            "error": self.error or None,
            "result": self.result or None,
            "session": self.session or None,
            "run": self.run_id or self.id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOutcome:
    """The result of a run, as its runner reports it."""

    success: bool = True
    text: str = ""
    error: str = ""
    session: str = ""  # the session that stores the conversation


def default_id(task: str) -> str:
    """Returns the first five words of the task and four digits of its hash: the same task always has the same id."""
    from hashlib import sha256  # listing tools does without

    ascii_text = unicodedata.normalize("NFKD", task[:1_000]).encode("ascii", "ignore").decode().lower()
    cleaned = (re.sub(r"[^a-z0-9]+", "-", re.sub(r"['\"`]", "", word)).strip("-") for word in ascii_text.split())
    words = [word for word in cleaned if word][:WORDS_OF_ID] or ["task"]
    digest = sha256(sendable(task).encode()).hexdigest()[:4]
    return f"{'-'.join(words)[: LONGEST_ID - 5].rstrip('-')}-{digest}"


def check_id(name: str) -> None:
    if not _ID.fullmatch(name) or len(name) > LONGEST_ID:
        likely = re.sub(r"[^a-z0-9]+", "-", name[:LONGEST_ID].lower()).strip("-") or "nightly-report"
        raise ToolError(
            f"{brief(name)} cannot be the id of a schedule",
            ErrorKind.VALIDATION,
            f'Use lower-case letters, digits and single hyphens, {LONGEST_ID} at most: "{likely}".',
        )


def check_task(task: str) -> str:
    if not task.strip():
        raise ToolError("the task is blank", ErrorKind.VALIDATION, "Write the task for the agent.")
    if len(task) > LONGEST_TASK:
        raise ToolError(
            f"the task has {len(task):,} characters; the maximum is {LONGEST_TASK:,}",
            ErrorKind.VALIDATION,
            "Put the details into a file or a skill, and name that in the task.",
        )
    if "\0" in task:
        raise ToolError("the task contains a NUL character", ErrorKind.VALIDATION, "Remove it.")
    return sendable(task)


def check_name(kind: str, name: str) -> str:
    """Checks the name of a channel, a target or a skill; it may be empty."""
    name = name.strip()
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ToolError(
            f"{brief(name)} cannot be a {kind}",
            ErrorKind.VALIDATION,
            f"Use at most {LONGEST_NAME} printable characters.",
        )
    return sendable(name)


def format_moment(moment: float | None, zone: tzinfo) -> str | None:
    """Formats a moment as RFC 3339, to the second."""
    if moment is None:
        return None
    try:
        return datetime.fromtimestamp(moment, zone).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # the clock was set to nonsense
        return None


# Checks requested schedule definitions and merges them with the stored ones.

_KEYS = {"id": str, "cron": str, "task": str, "timezone": str, "enabled": bool, "one_shot": bool, "command": bool}
_KEYS |= {"skill": str, "channel": str, "channel_target": str}


class Definition(TypedDict, total=False):
    """The keys of a schedule; the rule and the task are required."""

    cron: Required[str]
    task: Required[str]
    id: str | None  # derived from the task by default
    # None, or left out: an existing schedule keeps what it has; a new one has the default
    timezone: str | None  # UTC
    enabled: bool | None  # True
    one_shot: bool | None  # False
    command: bool | None  # False; only a person or the configuration may set it
    skill: str | None
    channel: str | None
    channel_target: str | None


class CurrentChat(NamedTuple):
    """The chat of the current conversation: a new schedule that names no channel answers there."""

    channel: str = ""
    target: str = ""


NO_CHAT = CurrentChat()


def complete_new(definition: Definition, here: CurrentChat) -> Definition:
    """Fills in the current chat for a new schedule that names no channel."""
    if definition.get("channel") or not here.channel:
        return complete_change(definition, here)
    return {**definition, "channel": here.channel, "channel_target": definition.get("channel_target") or here.target}


def complete_change(definition: Definition, here: CurrentChat) -> Definition:
    """Fills in the current chat if the definition names its channel without a target."""
    if definition.get("channel") and definition["channel"] == here.channel and not definition.get("channel_target"):
        return {**definition, "channel_target": here.target}
    return definition


def id_of(definition: Definition) -> str:
    """Returns the requested or the default id. Raises `ToolError` if it is invalid."""
    name = (definition.get("id") or "").strip()
    if name:
        check_id(name)
    return name or default_id(check_task(definition["task"]))


def build_schedule(
    *, source: Source, origin: str = "", old: Schedule | None = None, **definition: Unpack[Definition]
) -> Schedule:
    """Returns a schedule without a plan; missing keys keep the old schedule's values. Raises `ToolError`."""
    before = old if old is not None else _NEW
    given: dict[str, Any] = {key: value for key, value in definition.items() if value is not None}
    if given.get("channel", before.channel) != before.channel:
        given.setdefault("channel_target", "")  # the old target belongs to the other channel
    rule = Cron.parse(definition["cron"], given.get("timezone", before.timezone))
    return Schedule(
        id=id_of(definition),
        cron=rule.text,
        task=check_task(definition["task"]),
        timezone=rule.timezone,
        enabled=given.get("enabled", before.enabled),
        one_shot=given.get("one_shot", before.one_shot),
        command=_check_command(given.get("command", before.command), source),
        skill=check_name("skill", given.get("skill", before.skill)),
        channel=check_name("channel", given.get("channel", before.channel)),
        channel_target=check_name("channel target", given.get("channel_target", before.channel_target)),
        source=source,
        origin=origin,
    )


def _check_command(command: bool, source: Source) -> bool:
    if command and source is Source.MODEL:
        raise ToolError(
            "a model cannot schedule a command", ErrorKind.PERMISSION, "Describe the work as a task for the agent."
        )
    return command


_NEW = Schedule(id="", cron="", task="")


def check_no_secret(definition: Mapping[str, Any], secrets: Secrets) -> None:
    """Raises `ToolError` if a text contains a registered secret: a masked secret would break the task."""
    for key, value in definition.items():
        if isinstance(value, str) and secrets.mask(value) != value:
            raise ToolError(
                f"the {key} contains a secret, but schedules are stored and shown",
                ErrorKind.SECURITY,
                "Name the environment variable or the file with the secret; the task can read the value there.",
            )


def check_may_change(schedule: Schedule, by: Source) -> None:
    """Raises `ToolError` for a schedule of the configuration, and for a model that did not set the schedule itself."""
    if schedule.source is Source.CONFIG:
        raise ToolError(
            f"{schedule.id} is declared in {schedule.origin}, so it cannot be changed here",
            ErrorKind.PERMISSION,
            f"Ask the person to edit {schedule.origin}, or use another id.",
        )
    if by is Source.MODEL and schedule.source is not Source.MODEL:
        raise ToolError(
            f"{schedule.id} was added or changed by a person, so only a person may change or remove it",
            ErrorKind.PERMISSION,
            "Ask the person to do it with `forge schedule` or in the console, or use another id.",
        )


def read_declared(entries: Sequence[Mapping[str, Any]], origin: str) -> dict[str, Schedule]:
    found: dict[str, Schedule] = {}
    for index, entry in enumerate(entries):
        key_path = f"{origin}: schedules[{index}]"
        for key, value in entry.items():
            if key not in _KEYS:
                known = ", ".join(sorted(_KEYS))
                raise ToolError(f"{key_path}.{key}: unknown key", ErrorKind.CONFIG, f"Use one of {known}.")
            if not isinstance(value, _KEYS[key]):
                kind = "true or false" if _KEYS[key] is bool else "a string"
                raise ToolError(f"{key_path}.{key}: expected {kind}", ErrorKind.CONFIG, "Fix the file.")
        if missing := {"cron", "task"} - entry.keys():
            raise ToolError(f"{key_path}: {min(missing)} is missing", ErrorKind.CONFIG, "Fix the file.")
        try:
            one = build_schedule(**cast(Definition, entry), source=Source.CONFIG, origin=origin)
        except ToolError as error:
            raise ToolError(f"{key_path}: {error.message}", ErrorKind.CONFIG, error.suggestion) from error
        if one.id in found:
            raise ToolError(f"{key_path}: the id {one.id!r} is already in use", ErrorKind.CONFIG, "Use another id.")
        found[one.id] = one
    return found


# Decides which time of a schedule is due; a store gives each time to one process.
#
# Two stores track which times are handled: the workspace's own (`ScheduleStore`), and the database that workers share.
# A process that fires from the workspace's store also claims each time in the shared store, if there is one.


SHORTEST_LOOK = 60.0  # seconds: the first window in which the latest due time is searched; later ones are longer

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Due(NamedTuple):
    """A time of a schedule that is due."""

    schedule: Schedule
    at: float  # seconds since 1970


class Progress(NamedTuple):
    """The times of a schedule that are handled."""

    since: float  # intervals count from here; earlier times are not made up for
    upto: float  # every time until then was fired, skipped or ignored
    has_fired: bool = False


class ClaimRefusal(Enum):
    """Reasons why a time cannot be claimed."""

    ELSEWHERE = "another process handled it"
    ACTIVE = "the previous run is still active"
    SWITCHED_OFF = "the schedule is disabled"


class OccurrenceStore(Protocol[T_co]):
    """Tracks the progress of schedules and gives a time to the first process that claims it. All methods may block."""

    def read_progress(self, schedules: Mapping[str, Schedule], first_seen: float) -> Mapping[str, Progress]:
        """Returns the progress of each schedule; a new one starts at `first_seen`."""

    def claim(self, due: Due) -> T_co | ClaimRefusal:
        """Claims a time in one transaction with its records. A refused time is not offered again."""


class SharedClaims(Protocol):
    """The claims of a process that fires schedules of its own workspace, where workers may fire the same ones.

    All methods may block, and raise `ToolError` if the shared store is unavailable.
    """

    def claim(self, due: Due, now: float, owner: str) -> ClaimRefusal | None:
        """Claims a time; None means success. The schedule is held until it is released or `owner` is silent."""

    def beat(self, owner: str) -> None:
        """Records a heartbeat for all schedules that `owner` holds."""

    def release(self, owner: str, schedule_id: str | None = None) -> None:
        """Releases a schedule, or all that `owner` holds."""


class DueClaims(NamedTuple, Generic[T]):
    """The result of one check for due times."""

    claims: list[T]
    refused: list[tuple[Due, ClaimRefusal]]
    following: float | None  # the next due time of any schedule


def claim_due(
    store: OccurrenceStore[T],
    schedules: Mapping[str, Schedule],
    now: float,
    *,
    first_seen: float | None = None,
    leave_out: Callable[[Schedule, Exception], None] | None = None,
) -> DueClaims[T]:
    """Claims the latest unhandled due time of each schedule.

    `leave_out` receives each schedule whose times cannot be calculated; without it the error is raised. A `StoreError`
    is always raised: it affects all schedules.
    """
    progress_by_id = store.read_progress(schedules, now if first_seen is None else first_seen)
    claims: list[T] = []
    refused: list[tuple[Due, ClaimRefusal]] = []
    following: list[float] = []
    for schedule in schedules.values():
        progress = progress_by_id[schedule.id]
        if is_spent(schedule, progress):
            continue
        try:
            due = find_due(schedule, progress, now)
            claim = store.claim(due) if due is not None else None
            if due is not None and isinstance(claim, ClaimRefusal):
                refused.append((due, claim))
            elif claim is not None:
                claims.append(cast(T, claim))
            following += next_time(schedule, now, progress.since)
        except StoreError:
            raise
        except Exception as error:
            if leave_out is None:
                raise
            leave_out(schedule, error)
    return DueClaims(claims, refused, min(following, default=None))


def find_due(schedule: Schedule, progress: Progress, now: float) -> Due | None:
    """Returns the latest unhandled due time. Raises `ToolError`."""
    if schedule.one_shot and progress.has_fired:  # it was set again: only later times count
        progress = progress._replace(upto=max(progress.upto, schedule.updated))
    at = latest_time(schedule, progress, now)
    return None if at is None else Due(schedule, at)


def is_spent(schedule: Schedule, progress: Progress) -> bool:
    """Returns whether a one-shot has fired and was not set again since; a configuration does not set it again."""
    is_set_again = schedule.source is not Source.CONFIG and schedule.updated > progress.upto
    return schedule.one_shot and progress.has_fired and not is_set_again


def next_time(schedule: Schedule, now: float, anchor: float) -> list[float]:
    """Returns the first time after now, if there is one. Raises `ToolError`."""
    at = Cron.parse(schedule.cron, schedule.timezone).next_after(now, anchor)
    return [] if at is None else [at]


def latest_time(schedule: Schedule, progress: Progress, now: float) -> float | None:
    """Returns the latest unhandled due time; None if there is none.

    Raises `ToolError` if it cannot be calculated, for example because this machine does not know the zone.
    """
    rule = Cron.parse(schedule.cron, schedule.timezone)
    if not rule.every:
        return _find_latest(rule, progress.upto, now)
    at = progress.since + (now - progress.since) // rule.every * rule.every
    return at if progress.upto < at <= now and at > progress.since else None


def _find_latest(rule: Cron, after: float, now: float) -> float | None:
    """Searches backwards: after a pause of months a rule for every minute has had many times."""
    back, at = SHORTEST_LOOK, None
    while at is None:
        start = max(after, now - back)
        at = _find_next(rule, start, now)
        if start <= after:
            break
        back *= 2
    while at is not None and (following := _find_next(rule, at, now)) is not None:
        at = following
    return at


def _find_next(rule: Cron, after: float, now: float) -> float | None:
    at = rule.next_after(after)
    return at if at is not None and at <= now else None
