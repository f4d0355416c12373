"""Decides which time of a schedule is due; a store gives each time to one process.

Two stores track which times are handled: the workspace's own (`ScheduleStore`), and the database that workers share.
A process that fires from the workspace's store also claims each time in the shared store, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from forge.schedules.due_times import Cron
from forge.schedules.schedule import Schedule, Source
from forge.workspace.state.store import StoreError

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
