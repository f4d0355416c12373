"""The scenarios of codex's `apply_patch`, from a folder that the user names: they are not redistributed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from scores.report import Missing, Row, Score
from scripts.codex_scenarios import INTENDED, Outcome, run_scenario, scenarios

VARIABLE = "CODEX_SCENARIOS"
SOURCE = "github.com/openai/codex, codex-rs/apply-patch/tests/fixtures/scenarios"
MEASURES = "codex's own scenarios for `apply_patch`, through `file_patch`: the resulting files are the same."


def run() -> Score:
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        raise Missing(f"name the folder in {VARIABLE}")
    found = scenarios(Path(folder))
    if not found:
        raise Missing(f"{VARIABLE}={folder} has no scenarios")
    outcomes = asyncio.run(_run(found))
    failures = [f"{one.name}: {INTENDED.get(one.name, one.answer)}" for one in outcomes if not one.same]
    passed = sum(one.same for one in outcomes)
    return Score("codex", SOURCE, MEASURES, [Row("scenarios with the same files", passed, len(outcomes), "", failures)])


async def _run(found: list[Path]) -> list[Outcome]:
    return [await run_scenario(one) for one in found]
