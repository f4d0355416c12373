"""Finds the price of a model: the configured one, else the published one."""

from __future__ import annotations

from typing import Any

from forge.agent.limits import Limits, Price
from forge.core.provider import Provider
from forge.models.known_models import KnownModel, find_known, known_of


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
