"""Finds time zones by the names that people and models write."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief

LONGEST_NAME = 64  # characters of a zone's name


def zone_name(written: str) -> str:
    """Returns the zone's proper name: `europe/berlin` is Europe/Berlin, `+2:00` is +02:00. Raises `ToolError`."""
    name = written.strip()
    if name.upper() in ("UTC", "GMT", "Z"):
        return "UTC"
    if name.startswith(("+", "-")):
        return _render_offset(_read_offset(name))
    return name if _exists(name) else _find_zone(name)


def zone_of(name: str) -> tzinfo:
    """Returns the zone of a name from `zone_name`. Raises `ToolError` where this machine no longer knows it."""
    if name == "UTC":
        return UTC  # not the database's: the calculation is faster without summer time
    if name.startswith(("+", "-")):
        return _read_offset(name).tzinfo or UTC
    from zoneinfo import ZoneInfo  # reads the zone database

    if not _exists(name):
        _find_zone(name)
    return ZoneInfo(name)


def _exists(name: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, a path, a directory of zones
        return False
    return len(name) <= LONGEST_NAME


def _find_zone(name: str) -> str:
    from zoneinfo import available_timezones

    known = {zone.casefold(): zone for zone in available_timezones()}
    if name.casefold() in known:
        return known[name.casefold()]
    by_city = {zone.rpartition("/")[2]: zone for zone in sorted(known.values())}  # so that "Berlin" finds Europe/Berlin
    similar = near(name, known.values()) or [by_city[city] for city in near(name.replace(" ", "_"), by_city)]
    hint = f"Did you mean {' or '.join(similar)}?" if similar else "Use a name such as Europe/Berlin, or an offset."
    if not known:
        hint = "This machine has no time zone database (install the package tzdata): use UTC or an offset."
    raise ToolError(f"unknown time zone {brief(name)}", ErrorKind.VALIDATION, hint)


def _read_offset(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%z")
    except ValueError:
        raise ToolError(
            f"{brief(text)} is not an offset from UTC", ErrorKind.VALIDATION, "Write it like +02:00 or -05:30."
        ) from None


def _render_offset(moment: datetime) -> str:
    written = moment.strftime("%z")
    return f"{written[:3]}:{written[3:5]}"
