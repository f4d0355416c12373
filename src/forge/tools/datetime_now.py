"""The clock."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Annotated, Literal

from forge.core.arguments import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import tool

Format = Literal["rfc3339", "unix", "date", "time", "datetime"]

_PATTERNS = {"date": "%Y-%m-%d", "time": "%H:%M:%S", "datetime": "%Y-%m-%d %H:%M:%S"}


@tool(category=Category.BUILTIN, idempotent=True, timeout=10.0)
def datetime_now(
    format: Annotated[Format, "unix is seconds since 1970; the others are in the given zone."] = "rfc3339",
    timezone: Annotated[str, "An IANA name such as Europe/Berlin, or an offset such as +02:00."] = "UTC",
) -> ToolResult:
    """Get the current date and time. Call it whenever an answer depends on today or now."""
    now = datetime.now(find_zone(timezone))
    text = written(now, format)
    return ToolResult(for_llm=text, data={"value": text, "unix": int(now.timestamp()), "timezone": str(now.tzinfo)})


def written(moment: datetime, format: Format) -> str:
    """The moment in one of the formats, to the second."""
    if format == "unix":
        return str(int(moment.timestamp()))
    if format == "rfc3339":
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
    return moment.strftime(_PATTERNS[format])


def find_zone(name: str) -> tzinfo:
    """A zone by its IANA name, in any case, or by its offset from UTC."""
    name = name.strip()
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC
    if name.startswith(("+", "-")):
        return _offset(name)
    from zoneinfo import ZoneInfo  # reads the zone database

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, a path, a directory of zones
        return ZoneInfo(_known_zone(name))


def _offset(text: str) -> tzinfo:
    try:
        return datetime.strptime(text, "%z").tzinfo or UTC
    except ValueError:
        raise ToolError(
            f"{text[:60]!r} is not an offset from UTC", ErrorKind.VALIDATION, "Write it like +02:00 or -05:30."
        ) from None


def _known_zone(name: str) -> str:
    from zoneinfo import available_timezones

    known = {zone.casefold(): zone for zone in available_timezones()}
    if name.casefold() in known:
        return known[name.casefold()]
    places = {zone.rpartition("/")[2]: zone for zone in sorted(known.values())}  # so that "Berlin" finds Europe/Berlin
    similar = near(name, known.values()) or [places[place] for place in near(name.replace(" ", "_"), places)]
    hint = f"Did you mean {' or '.join(similar)}?" if similar else "Use a name such as Europe/Berlin, or an offset."
    if not known:
        hint = "This machine has no time zone database: use UTC or an offset such as +02:00."
    raise ToolError(f"unknown time zone {name[:60]!r}", ErrorKind.VALIDATION, hint)
