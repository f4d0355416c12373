"""Limits of a run, its usage so far, and the price of its model."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from forge.core.messages import Usage
from forge.core.provider import Provider
from forge.models.known_models import KnownModel, find_known, known_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a million tokens, in the currency of `Limits.cost`.

    Args:
        input: the price of input tokens.
        output: the price of output tokens.
        cached: the price of input tokens from the provider's cache; by default that of `input`.
        cache_writes: the price of input tokens written to that cache; by default that of `input`.

    Example:
        >>> Price(input=3, output=15).of(Usage(input=1_000_000, output=100_000))
        4.5
    """

    input: float
    output: float
    cached: float | None = None
    cache_writes: float | None = None

    def of(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_writes is None else self.cache_writes
        fresh = max(0, usage.input - usage.cached - usage.cache_writes)
        paid = fresh * self.input + usage.cached * cached + usage.cache_writes * written + usage.output * self.output
        return paid / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run; 0 means no limit. Reaching one ends the run with a reason and the text so far.

    Args:
        turns: how often the model is asked.
        calls: how many tools it may call.
        tokens: input and output together.
        cost: in the currency of `price`; in US dollars where the price is the published one.
        seconds: the time of the whole run.
        price: the price of tokens; by default the published price of the model, where Forge knows it.

    Example:
        >>> Agent(Scripted("Hello!"), limits=Limits(turns=5, seconds=60)).run_sync("Hi").reason
        'answer'
    """

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


@dataclass(slots=True)
class Spent:
    """The usage of a run."""

    turns: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    priced: Usage = field(default_factory=Usage)  # the part of `usage` that has another price: sub-agents, fallbacks
    priced_cost: float = 0.0  # the cost of that part
    estimated: Usage = field(default_factory=Usage)  # the part of `usage` that no provider has counted
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def add(self, usage: Usage, cost: float | None = None) -> None:
        """Adds usage. `cost`: what it cost, where its price is another than the run's."""
        self.usage = self.usage.plus(usage)
        if cost is not None:
            self.priced, self.priced_cost = self.priced.plus(usage), self.priced_cost + cost

    def cost(self, price: Price | None, beside: Usage) -> float | None:
        """Returns the cost so far; None where the price is not known. `beside` is the usage of summaries."""
        if price is None:
            return None
        return price.of(self.usage.minus(self.priced).plus(beside)) + self.priced_cost

    def reason_to_stop(self, limits: Limits, beside: Usage) -> str:
        """Returns the reason to stop before another turn, or nothing. `beside` is the usage of summaries."""
        if self.turns >= limits.turns:
            return "max_turns"
        if limits.tokens and self.usage.total + beside.total >= limits.tokens:
            return "max_tokens"
        if limits.cost and (self.cost(limits.price, beside) or 0.0) >= limits.cost:
            return "max_cost"
        if limits.seconds and self.seconds >= limits.seconds:
            return "max_time"
        return ""


# Finds the price of a model: the configured one, else the published one.


def price_for(limits: Limits, provider: Provider | None) -> Price | None:
    """Returns the price of the limits, else the published price of the provider's model, else None."""
    return limits.price if limits.price is not None else _price(known_of(provider))


def price_of_name(name: Any) -> Price | None:
    """Returns the published price of a model such as `openai:gpt-5`."""
    provider, _, model = name.partition(":") if isinstance(name, str) else ("", "", "")
    return _price(find_known(provider, model))


def _price(known: KnownModel | None) -> Price | None:
    if known is None:
        return None
    return Price(input=known.input, output=known.output, cached=known.cached, cache_writes=known.cache_writes)
