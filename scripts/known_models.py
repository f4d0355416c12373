"""Writes the prices and context windows of models into src/forge/models/known_models.json, from genai-prices.

Run: `make known-models`. Prices are US dollars for a million tokens, without discounts and surcharges.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "src/forge/models/known_models.json"
INPUT = (  # names, the published window, and the tokens of input, as other tables and errors of the APIs have them
    (r"gpt-5", 400_000, 272_000),
    (r"deepseek-(?:chat|reasoner)$", 64_000, 131_072),
    (r"gemini-2\.5-flash-image", 1_000_000, 32_768),
    (r"gemini-3.*-image", 1_000_000, 65_536),
)
PROVIDERS = {  # by the name that Forge uses
    "anthropic": "anthropic",
    "openai": "openai",
    "gemini": "google",
    "bedrock": "aws",
    "azure": "azure",
    "mistral": "mistral",
    "xai": "x-ai",
    "deepseek": "deepseek",
    "groq": "groq",
    "cerebras": "cerebras",
    "fireworks": "fireworks",
    "together": "together",
    "moonshot": "moonshotai",
    "openrouter": "openrouter",
}


def main() -> None:
    from genai_prices.data import providers  # of the package pydantic-ai-slim requires

    by_id = {provider.id: provider for provider in providers}
    found = {name: _models(by_id[id].models) for name, id in PROVIDERS.items()}
    lines = [f' "{name}": {{\n{_lines(models)}\n }}' for name, models in found.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{sum(map(len, found.values()))} models written to {FILE.name}")


def _lines(models: dict[str, list[float | int]]) -> str:
    return ",\n".join(f"  {json.dumps(name)}: {json.dumps(facts)}" for name, facts in sorted(models.items()))


def _models(models: Any) -> dict[str, list[float | int]]:
    """Returns input, output, cached, cache_writes and window, by model. Models without a price of text are left out."""
    found = {}
    for model in models:
        price = _price_now(model.prices)
        given, answer = _number(price.input_mtok), _number(price.output_mtok)
        if given is None or answer is None:
            continue
        cached, written = _number(price.cache_read_mtok), _number(price.cache_write_mtok)
        facts = [given, answer, given if cached is None else cached, given if written is None else written]
        found[model.id] = [*facts, _window(model.id, model.context_window or 0)]
    return found


def _window(model: str, window: int) -> int:
    """Returns the tokens of input. Some published windows count the answer, too, or are those of another model."""
    fitting = (size for pattern, wrong, size in INPUT if window == wrong and re.search(pattern, model))
    return next(fitting, window)


def _price_now(prices: Any) -> Any:
    """Returns the price without conditions, or the latest one that has begun."""
    if not isinstance(prices, list):
        return prices
    today = datetime.now(UTC).date()
    begun = [(getattr(one.constraint, "start_date", date.min), one.prices) for one in prices]
    return max((one for one in begun if one[0] <= today), key=lambda one: one[0])[1]


def _number(price: Any) -> float | int | None:
    base = getattr(price, "base", price)
    if not isinstance(base, Decimal):
        return None
    return int(base) if base == int(base) else float(base)


if __name__ == "__main__":
    main()
