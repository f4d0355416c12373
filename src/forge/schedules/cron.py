"""Cron expressions, their aliases, and fixed intervals: calculates when a schedule is due."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.time_zones import zone_name, zone_of

LONGEST_EXPRESSION = 200  # characters of an expression
SHORTEST_INTERVAL = 60.0  # seconds
LONGEST_INTERVAL = 366 * 86_400.0

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (
    ("minute", "0 to 59", 60),
    ("hour", "0 to 23", 24),
    ("day of the month", "1 to 31", 31),
    ("month", "1 to 12 or JAN to DEC", 12),
    ("day of the week", "0 to 7 or SUN to SAT, where 0 and 7 are Sunday", 7),
)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,3})?[smhdw])+")
_HOW = (
    'Use five fields (minute, hour, day of the month, month, day of the week) such as "30 9 * * MON-FRI",'
    ' or @hourly, @daily, @weekly, @monthly, @yearly, or "@every 90m".'
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A rule in a time zone. `Cron.parse` makes it, so that it is valid and has a next time."""

    text: str  # as written, with single blanks
    timezone: str
    every: float = 0.0  # seconds, if the rule is an interval

    @classmethod
    def parse(cls, text: str, timezone: str = "UTC") -> Cron:
        """Parses a rule. Raises `ToolError`, which names the wrong field and the allowed values."""
        if len(text) > LONGEST_EXPRESSION:
            raise _cron_error(text, f"it has {len(text):,} characters; the maximum is {LONGEST_EXPRESSION}")
        words = " ".join(text.split())
        zone = zone_name(timezone.strip() or "UTC")
        if words.casefold().startswith("@every"):
            return cls(words, zone, _parse_interval(words))
        _check_fields(words)
        made = cls(words, zone)
        if made.next_after(_BEGINNING) is None:
            raise _cron_error(words, "there is no such day, so it would never fire")
        return made

    def next_after(self, moment: float, anchor: float = 0.0) -> float | None:
        """Returns the first time after the moment, in seconds since 1970. Intervals count from the anchor.

        A time that daylight saving skips fires when the gap ends, and a time that comes twice fires once; rules that
        begin with `*` follow the clock through both. Raises `ToolError` if this machine does not know the zone.
        """
        if self.every:
            return anchor + ((moment - anchor) // self.every + 1) * self.every
        try:
            fires = _simulate(self.text, datetime.fromtimestamp(moment, zone_of(self.timezone)))
            return next((at for at in (fire.timestamp() for fire in fires) if at > moment), None)
        except (OverflowError, ValueError, OSError):  # at the end of the calendar
            return None

    def explain(self) -> str:
        """Returns the rule in English."""
        if self.every:
            return f"Every {_spell_duration(self.every)}"
        return f"{_simulate(self.text, datetime.fromtimestamp(_BEGINNING, zone_of('UTC'))).explain()} ({self.timezone})"


_BEGINNING = 1_700_000_000.0  # an arbitrary moment, to check if a rule ever fires


def _simulate(words: str, start: datetime) -> Any:
    from cronsim import CronSim  # loaded only when a time is calculated

    return CronSim(_plain_fields(words), start)


def _plain_fields(words: str) -> str:
    """Returns the five fields in the spelling that the library knows."""
    expression = ALIASES.get(words.casefold(), words).upper()
    expression = re.sub(r"\b(\w+)-\1/\d+", r"\1", expression)  # a range of one value has no second step
    head, _, weekday = expression.rpartition(" ")
    return f"{head} {re.sub(r'(?<=[A-Z1-6])-SUN(?![A-Z0-9])', '-7', weekday)}" if head else expression


def _check_fields(words: str) -> None:
    from cronsim.cronsim import CronSim, CronSimError, Field

    if words.startswith("@") and words.casefold() not in ALIASES:
        hint = near(words, [*ALIASES, "@every 1h"], 1)
        advice = f"Did you mean {hint[0]}?" if hint else _HOW
        raise _cron_error(words, "there is no such alias", advice)
    parts = _plain_fields(words).split(" ")
    if len(parts) != len(_FIELDS):
        raise _cron_error(words, f"it has {len(parts) if words else 0} fields instead of 5", _HOW)
    for part, field, (name, values, count) in zip(parts, list(Field)[1:], _FIELDS, strict=True):
        try:
            field.parse(part)
        except (CronSimError, AssertionError, ValueError, TypeError):
            raise _cron_error(
                words,
                f"the {name} {brief(part)} cannot be read",
                f"Write values from {values}, *, lists, ranges, steps.",
            ) from None
        for step in re.findall(r"/(\d+)", part):
            if int(step) > count:
                raise _cron_error(
                    words,
                    f"the {name} {brief(part)} has a step that is larger than its range",
                    _advice(name, int(step)),
                )
    try:
        CronSim(" ".join(parts), datetime.fromtimestamp(_BEGINNING))
    except CronSimError:
        raise _cron_error(words, "there is no such day, so it would never fire") from None


def _advice(name: str, step: int) -> str:
    unit = {"minute": "m", "hour": "h", "day of the month": "d"}.get(name)
    return f'Write "@every {step}{unit}" for this interval.' if unit else "List the values, separated by commas."


def _parse_interval(words: str) -> float:
    duration = words[len("@every") :].replace(" ", "").casefold()
    if not words[len("@every") :].startswith(" ") or not _DURATION.fullmatch(duration):
        raise _cron_error(
            words, "its duration is missing or invalid", 'Write it like "@every 90m", "@every 1h30m" or "@every 2d".'
        )
    seconds = sum(float(amount) * _UNITS[unit] for amount, unit in re.findall(r"([\d.]+)([smhdw])", duration))
    if seconds < SHORTEST_INTERVAL:
        raise _cron_error(
            words, f"an interval of {seconds:g} seconds is too short", "The minimum is one minute: @every 1m."
        )
    if seconds > LONGEST_INTERVAL:
        raise _cron_error(words, "the interval is longer than a year", "Use @yearly, or five fields.")
    return seconds


def _spell_duration(seconds: float) -> str:
    parts: list[str] = []
    for name, length in (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        amount, seconds = divmod(seconds, length) if length > 1 else (seconds, 0)
        if amount:
            parts.append(f"{amount:g} {name}s" if amount != 1 or seconds or parts else name)
    return " ".join(re.sub(r"^1 (\w+)s$", r"1 \1", part) for part in parts)


def _cron_error(text: str, problem: str, suggestion: str = _HOW) -> ToolError:
    return ToolError(f"cron {brief(text)}: {problem}", ErrorKind.VALIDATION, suggestion)
