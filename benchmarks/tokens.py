"""Errors of the token estimates, by family of models: `python -m benchmarks tokens`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.timing import Measure
from forge.agent.tokens import GENERAL, WEIGHTS, estimate
from tests.agent.token_texts import TEXTS

COUNTS = Path(__file__).parent.parent / "tests/agent/token_counts.json"


async def measures() -> list[Measure]:
    """Prints each text's error in percent, and returns the mean of each family against four characters a token."""
    counts: dict[str, dict[str, int]] = json.loads(COUNTS.read_text(encoding="utf-8"))
    print(f"{'percent too high':16}", *(f"{name:>10}" for name in counts))
    for kind, text in TEXTS.items():
        print(f"{kind:16}", *(f"{_error(name, kind, text, counts):+10.0f}" for name in counts))
    found = []
    for name in counts:
        ours = _mean([abs(_error(name, kind, text, counts)) for kind, text in TEXTS.items()])
        quarter = _mean([abs(100 * (len(text) / 4 / counts[name][kind] - 1)) for kind, text in TEXTS.items()])
        which = "its own weights" if name in WEIGHTS else "general weights"
        title = f"tokens: mean error of {name}, {which}"
        found.append(Measure(title, "characters / 4", quarter, ours, "%", 0.75))
    return found


def _error(name: str, kind: str, text: str, counts: dict[str, dict[str, int]]) -> float:
    return 100 * (estimate(text, WEIGHTS.get(name, GENERAL)) / counts[name][kind] - 1)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
