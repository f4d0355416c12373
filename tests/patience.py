"""Deadlines for programs that must have begun before their time is up."""

from __future__ import annotations

from collections.abc import Iterator


def longer(seconds: float) -> Iterator[float]:
    """A deadline, and longer ones to try where a busy machine lets the program begin too late for the first."""
    yield seconds
    yield 10 * seconds
    yield 40.0
