"""Counts what came of calls in a storm."""

from __future__ import annotations

from typing import NamedTuple


class Score(NamedTuple):
    """Calls, and how many of them went wrong."""

    calls: int = 0
    duplicates: int = 0  # effects beyond the first
    lost: int = 0  # calls that count as done, or whose run is not over, without an effect
    unknown: int = 0  # calls of which a person has to find out

    def plus(self, other: Score) -> Score:
        return Score(*(one + two for one, two in zip(self, other, strict=True)))
