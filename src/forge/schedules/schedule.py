"""Schedules and their runs as plain data, with checks of ids, tasks and names."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief, sendable

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
        from forge.core.time_zones import zone_of  # not needed to list tools

        try:
            return format_moment(moment, zone_of(self.timezone))
        except ToolError:  # this machine does not know the zone any more
            return format_moment(moment, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
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
class Outcome:
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
