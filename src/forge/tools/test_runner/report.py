"""Defines the report of a test run, for every framework, within bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_FAILURES = 50  # kept of one run; the rest is counted
MAX_MESSAGE = 2_000  # characters of one
MAX_NAME = 300
LONGEST_FRAME = 1_000  # characters of the end of a line in which a place is looked for

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")  # colours, and what a terminal would obey
_FRAME = re.compile(r"(?:^|[\s(]|file://)(/[^\s():]+):(\d+):\d+\)?$")


class FailedTest(NamedTuple):
    """A failed test, or an error outside a test."""

    name: str
    file: str = ""
    line: int = 0
    message: str = ""


@dataclass(slots=True)
class Report:
    """Counts and the first failures. `errors` count problems outside the tests."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    errors: int = 0
    duration: float | None = None  # seconds, where the framework tells
    failures: list[FailedTest] = field(default_factory=list)
    nothing: bool = False  # the framework says that there are no tests: not that it could not look for them

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.skipped + self.errors

    def fail(self, name: str, file: str = "", line: int = 0, message: str = "") -> None:
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(
                FailedTest(clean(name)[:MAX_NAME], file, line, clip_middle(clean(message).strip("\n")))
            )


ReportReader = Callable[[str, str], Report | None]
"""Reads a framework's output and errors; returns None if it stopped before it reported anything."""


def clean(text: str) -> str:
    return _CONTROL.sub("", text) if text else ""


def clip_middle(text: str, most: int = MAX_MESSAGE) -> str:
    """Keeps the beginning, usually the expectation, and the end, usually the outcome."""
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}\n[…]\n{text[-(most // 3) :]}"


def find_frames(text: str) -> Iterator[tuple[str, int]]:
    """Returns the files and lines of a JavaScript stack: `at name (file:///a.js:1:2)`, `at /a.js:1:2`."""
    for line in text.split("\n"):
        if found := _FRAME.search(line[-LONGEST_FRAME:]):
            yield found[1], read_number(found[2])


def read_number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0
