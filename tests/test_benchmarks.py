"""The benchmarks that replay a session: its files exist, and the figures in the documentation are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import prompt_cache
from benchmarks.context import SOURCE, TURNS, plan

MODELS = Path(__file__).parent.parent / "docs" / "models.md"


def test_the_scripted_session_reads_files_that_exist() -> None:
    assert len(plan(SOURCE)) == TURNS - 1


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_found_tools_leave_the_cached_prompt_as_it_is(api: str) -> None:
    before, after = await prompt_cache.play(api, loads=False), await prompt_cache.play(api, loads=True)
    assert sum(bool(turn.cause) for turn in before.turns) == 10  # as many as there are searches
    assert all(turn.cause.startswith("tools changed: added ") for turn in before.turns if turn.again > 1_024)
    assert not any(turn.cause for turn in after.turns)
    paid = f"{prompt_cache.again(before):,} | {prompt_cache.again(after):,}"
    assert f"| {paid} |" in MODELS.read_text()
