"""Decides which time of a schedule is due, from how far its times are seen to; a store gives each time to one process.

Two stores know how far: the workspace's own (`ScheduleStore`), and the database that workers share. A process that
fires from the workspace's store claims each time in the shared one, too, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from forge.schedules.cron import Cron
from forge.schedules.schedule import Schedule, Source
from forge.workspace.state.store import StoreError

SHORTEST_LOOK = 60.0  # seconds back, where the latest time that was due is looked for; then ever further

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Due(NamedTuple):
    """A time that has come."""

    schedule: Schedule
    at: float  # seconds since 1970


class Progress(NamedTuple):
    """How far the times of a schedule are seen to."""

    since: float  # intervals count from here, and nothing before it is made up for
    upto: float  # every time until then was fired, skipped or let go by
    has_fired: bool = False


class Refusal(Enum):
    """Why a time cannot be claimed."""

    ELSEWHERE = "another process has seen to it"
    ACTIVE = "the run before it is still active"
    SWITCHED_OFF = "the schedule is switched off"


class OccurrenceStore(Protocol[T_co]):
    """Knows how far each schedule is, and gives a time to the first who claims it. All methods may block."""

    def known(self, schedules: Mapping[str, Schedule], first_seen: float) -> Mapping[str, Progress]:
        """How far each of them is; one that was not known before is first seen then."""

    def claim(self, due: Due) -> T_co | Refusal:
        """Take a time, in one transaction with what belongs to it. Whatever is refused is not offered again."""


class SharedClaims(Protocol):
    """The claims of a process that fires schedules of its own workspace, where workers may fire the same ones.

    All methods may block, and raise `ToolError` where the shared store is away.
    """

    def claim(self, due: Due, now: float, owner: str) -> Refusal | None:
        """None: the time is ours, and the schedule is held until it is released or `owner` is silent."""

    def beat(self, owner: str) -> None:
        """Say that what `owner` holds is still active."""

    def release(self, owner: str, schedule_id: str | None = None) -> None:
        """Let go of a schedule, or of all that `owner` holds."""


class Fired(NamedTuple, Generic[T]):
    """What one look at the clock came to."""

    claims: list[T]
    refused: list[tuple[Due, Refusal]]
    following: float | None  # when something is due next


def claim_due(
    store: OccurrenceStore[T],
    schedules: Mapping[str, Schedule],
    now: float,
    *,
    first_seen: float | None = None,
    leave_out: Callable[[Schedule, Exception], None] | None = None,
) -> Fired[T]:
    """Claim the latest time of each schedule that has come and was not seen to.

    `leave_out` is told of a schedule whose times cannot be calculated; without it the error is raised. A `StoreError`
    is always raised: the store is away for all of them.
    """
    known = store.known(schedules, now if first_seen is None else first_seen)
    claims: list[T] = []
    refused: list[tuple[Due, Refusal]] = []
    following: list[float] = []
    for schedule in schedules.values():
        progress = known[schedule.id]
        if is_spent(schedule, progress):
            continue
        try:
            due = find_due(schedule, progress, now)
            claim = store.claim(due) if due is not None else None
            if due is not None and isinstance(claim, Refusal):
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
    return Fired(claims, refused, min(following, default=None))


def find_due(schedule: Schedule, progress: Progress, now: float) -> Due | None:
    """The latest time that has come and was not seen to. Raises `ToolError`."""
    if schedule.one_shot and progress.has_fired:  # it was set again: only what comes after that counts
        progress = progress._replace(upto=max(progress.upto, schedule.updated))
    at = latest_time(schedule, progress, now)
    return None if at is None else Due(schedule, at)


def is_spent(schedule: Schedule, progress: Progress) -> bool:
    """A one-shot that has fired is over, unless somebody set it again since; a configuration does not set it again."""
    is_set_again = schedule.source is not Source.CONFIG and schedule.updated > progress.upto
    return schedule.one_shot and progress.has_fired and not is_set_again


def next_time(schedule: Schedule, now: float, anchor: float) -> list[float]:
    """The first time after now, if there is one. Raises `ToolError`."""
    at = Cron.parse(schedule.cron, schedule.timezone).next_after(now, anchor)
    return [] if at is None else [at]


def latest_time(schedule: Schedule, progress: Progress, now: float) -> float | None:
    """The latest time that has come and was not seen to; None: there is none.

    Raises `ToolError` where it cannot be told: this machine does not know its zone, say; another may.
    """
    rule = Cron.parse(schedule.cron, schedule.timezone)
    if not rule.every:
        return _latest(rule, progress.upto, now)
    at = progress.since + (now - progress.since) // rule.every * rule.every
    return at if progress.upto < at <= now and at > progress.since else None


def _latest(rule: Cron, after: float, now: float) -> float | None:
    """Found from the end: after a pause of months a rule for every minute has had many times."""
    back, at = SHORTEST_LOOK, None
    while at is None:
        start = max(after, now - back)
        at = _within(rule, start, now)
        if start <= after:
            break
        back *= 2
    while at is not None and (following := _within(rule, at, now)) is not None:
        at = following
    return at


def _within(rule: Cron, after: float, now: float) -> float | None:
    at = rule.next_after(after)
    return at if at is not None and at <= now else None
