"""Tells the time."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Annotated, Literal

from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.time_zones import zone_name, zone_of
from forge.core.tool import tool

Format = Literal["rfc3339", "unix", "date", "time", "datetime"]

_PATTERNS = {"date": "%Y-%m-%d", "time": "%H:%M:%S", "datetime": "%Y-%m-%d %H:%M:%S"}


@tool(category=Category.BUILTIN, idempotent=True, timeout=10.0)
def datetime_now(
    format: Annotated[Format, "unix: seconds since 1970."] = "rfc3339",
    timezone: Annotated[str, "Such as Europe/Berlin or +02:00."] = "UTC",
) -> ToolResult:
    """Get the current date and time, whenever an answer depends on today or now."""
    now = datetime.now(find_zone(timezone))
    text = format_moment(now, format)
    return ToolResult(for_llm=text, data={"value": text, "unix": int(now.timestamp()), "timezone": str(now.tzinfo)})


def format_moment(moment: datetime, format: Format) -> str:
    """Formats the moment, to the second."""
    if format == "unix":
        return str(int(moment.timestamp()))
    if format == "rfc3339":
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
    return moment.strftime(_PATTERNS[format])


def find_zone(name: str) -> tzinfo:
    """Returns a zone by its IANA name, in any case, or by its offset from UTC. Raises `ToolError`."""
    return zone_of(zone_name(name))
