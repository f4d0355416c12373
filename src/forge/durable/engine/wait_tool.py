"""The tool `wait`: a run waits without a process."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import brief, clip_bytes
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.time_zones import zone_name, zone_of
from forge.core.tool import tool
from forge.durable.engine.attempt import current_attempt
from forge.durable.store.carried import CarriedState
from forge.durable.store.waits import Wait

LONGEST_WAIT = 366 * 86_400.0  # seconds
LONGEST_REASON = 200  # characters

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_HOW = 'Write "2026-12-24T18:00" or "18:00" (the next one) in the given timezone, or a time with its own offset.'


@tool(
    name="wait",
    category=Category.BUILTIN,
    idempotent=True,
    timeout=None,
    argument_aliases={"duration": "seconds", "time": "until", "tz": "timezone"},
)
async def wait(
    ctx: ToolContext,
    seconds: Annotated[
        Annotated[float, ParameterLimits(gt=0, le=LONGEST_WAIT)] | None,
        "How many seconds to wait; alternative to until.",
    ] = None,
    until: Annotated[str, 'A time such as "2026-12-24T18:00" or "18:00".'] = "",
    timezone: Annotated[str, "Time zone of until: a name such as Europe/Berlin, or an offset such as +02:00."] = "UTC",
    reason: Annotated[str, "The reason for waiting, shown to people."] = "",
) -> ToolResult:
    """Wait before you continue: for seconds, or until a time, at most a year. The run is stored meanwhile."""
    attempt = current_attempt.get()
    if attempt is None:
        raise ToolError(
            "this run is not stored, so it cannot wait",
            ErrorKind.CONFIG,
            "Run it with --durable, or continue without waiting.",
        )
    zone = zone_of(zone_name(timezone))
    now = await in_thread(attempt.store.now)  # the clock that all machines share
    earlier = CarriedState.read(attempt.run.spent).waited.get(ctx.key)  # where it waited before
    since, end = earlier or (now, _end_of_wait(now, seconds, until, zone))
    if now < end:
        message = f"it waits until {_format_moment(end, zone)}"
        why = clip_bytes(reason, LONGEST_REASON) if reason.strip() else ""
        raise Wait.for_time(end, since, ctx.key, why).as_error(message)
    return ToolResult(
        for_llm=f"It is now {_format_moment(now, zone)}; the wait began at {_format_moment(since, zone)}.",
        title=f"waited {_format_duration(now - since)}",
        data={"now": _format_moment(now, zone), "since": _format_moment(since, zone), "seconds": round(now - since, 1)},
    )


def _end_of_wait(now: float, seconds: float | None, until: str, zone: tzinfo) -> float:
    if (seconds is None) == (not until.strip()):
        what = "neither seconds nor until was given" if seconds is None else "seconds and until were both given"
        raise ToolError(what, ErrorKind.VALIDATION, "Pass exactly one of them.")
    if seconds is not None:
        return now + seconds
    end = _parse_moment(now, until.strip(), zone)
    if end <= now:
        message = f"{brief(until)} is in the past: the time is {_format_moment(now, zone)}"
        raise ToolError(message, ErrorKind.VALIDATION, "Continue without waiting, or use a later time.")
    if end > now + LONGEST_WAIT:
        message = f"{brief(until)} is more than {LONGEST_WAIT / 86_400:g} days away"
        raise ToolError(message, ErrorKind.VALIDATION, "Wait until an earlier time, then wait again.")
    return end


def _parse_moment(now: float, text: str, zone: tzinfo) -> float:
    """Parses a time to seconds since 1970. A time that summer time skips is later by the clock's shift."""
    try:
        if clock := _CLOCK.fullmatch(text):
            return _next_time(now, zone, *(int(part or 0) for part in clock.groups()))
        named = datetime.fromisoformat(text)
        return (named if named.tzinfo is not None else named.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise ToolError(f"{brief(text)} is not a time", ErrorKind.VALIDATION, _HOW) from None


def _next_time(now: float, zone: tzinfo, hour: int, minute: int, second: int) -> float:
    today = datetime.fromtimestamp(now, zone)
    wanted = today.replace(hour=hour, minute=minute, second=second, microsecond=0, fold=0)
    days = (wanted, wanted + timedelta(days=1), wanted + timedelta(days=2))
    return next(end for end in (day.timestamp() for day in days) if end > now)


def _format_moment(moment: float, zone: tzinfo) -> str:
    found = datetime.fromtimestamp(moment, UTC).astimezone(zone)
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else str(timedelta(seconds=round(seconds)))
