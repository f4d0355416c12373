"""Limits of a run, and its usage so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from forge.core.messages import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a million tokens, in the currency of `Limits.cost`."""

    input: float
    output: float
    cached: float | None = None  # None: as much as other input

    def of(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input - usage.cached
        return (fresh * self.input + usage.cached * cached + usage.output * self.output) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run; 0 means none. Reaching one ends the run with a reason and the text so far."""

    turns: int = 50
    calls: int = 200
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    price: Price | None = None

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise ValueError(f"Limits(turns={self.turns}): a run has at least one turn")
        if min(self.calls, self.tokens, self.cost, self.seconds) < 0:
            raise ValueError(f"{self}: a limit is 0 (none) or more")
        if self.cost and self.price is None:
            raise ValueError(
                f"Limits(cost={self.cost}): without a price nobody knows the cost; give Limits(price=Price(…))"
            )


@dataclass(slots=True)
class Spent:
    """The usage of a run."""

    turns: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def reason_to_stop(self, limits: Limits, beside: Usage) -> str:
        """Returns the reason to stop before another turn, or nothing. `beside` is the usage of summaries."""
        if self.turns >= limits.turns:
            return "max_turns"
        if limits.tokens and self.usage.total + beside.total >= limits.tokens:
            return "max_tokens"
        if limits.cost and limits.price is not None and limits.price.of(self.usage.plus(beside)) >= limits.cost:
            return "max_cost"
        if limits.seconds and self.seconds >= limits.seconds:
            return "max_time"
        return ""
