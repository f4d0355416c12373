"""Knows the prices and context windows of the large providers' models; `make known-models` writes the table."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.provider import ProviderError, name_model

FILE = Path(__file__).with_suffix(".json")

_SAME_TABLE = {"openai-responses": "openai", "openai-chat": "openai", "vertex": "gemini"}
_REGION = re.compile(r"(?:us|eu|apac|au|ca|jp|global|us-gov)\.")  # of a Bedrock inference profile
_VERSION = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest|\d{3}))?(?:-v\d+(?::\d+)?)?\Z")


class KnownModel(NamedTuple):
    """Prices of a million tokens in US dollars, and the context window in tokens; 0: unknown."""

    input: float
    output: float
    cached: float
    cache_writes: float
    window: int


def find_known(provider: str, model: str) -> KnownModel | None:
    """Returns what is known of a model. A dated version of a known model is that model; a similar name is not."""
    table = _tables().get(_SAME_TABLE.get(provider, provider), {})
    if provider == "vertex" and "claude" in model:
        table = _tables()["anthropic"]
    names = [model, _REGION.sub("", model, count=1)]
    for name in (*names, *(_VERSION.sub("", one) for one in names)):
        for known in (name, f"{name}-latest"):
            if known in table:
                return KnownModel(*table[known])
    return None


def known_of(provider: Any) -> KnownModel | None:
    """Returns what is known of the model of a provider object; see `name_model`."""
    label, model = name_model(provider)
    return find_known(label, model) if label and model else None


def add_model_advice(error: ProviderError, provider: str, model: str) -> ProviderError:
    """Returns the same error; if the server does not know the model, its advice names the nearest known one.

    Names that the server itself lists come first: `suggest_model` has added them.
    """
    is_advised = error.suggestion.startswith("Did you mean")
    if error.status == 404 and not is_advised and find_known(provider, model) is None:
        hints = near(model, tuple(_tables().get(_SAME_TABLE.get(provider, provider), ())), 1)
        if hints:
            error.suggestion = f"Did you mean {provider}:{hints[0]}? Check the model's name and the base URL."
    return error


@cache
def _tables() -> dict[str, dict[str, list[Any]]]:
    tables: dict[str, dict[str, list[Any]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return tables
