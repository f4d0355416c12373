"""Tapes: recorded once, then replayed."""

from __future__ import annotations

import pytest

from forge import Agent, Scripted, ToolError
from forge.pipeline import standard_steps
from forge.testing import bench, calls, calls_of, tape


@pytest.fixture
def counted():
    counts = []

    def look(word: str) -> str:
        """Look a word up."""
        counts.append(word)
        return f"{word}: {len(counts)}"

    return look, counts


def test_the_first_run_records_and_the_next_replays(tmp_path, counted):
    look, counts = counted
    file = tmp_path / "tapes" / "look.ndjson"
    first = [bench(look, tape=file).text("look", word="a")]
    assert file.stat().st_mode & 0o077 == 0
    again = bench(look, tape=file)
    assert [again.text("look", word="a")] == first
    assert counts == ["a"]
    assert again.failure("look", word="b").suggestion == "Record it again."


def test_the_variable_says_which(tmp_path, counted, monkeypatch):
    look, _ = counted
    file = tmp_path / "look.ndjson"
    monkeypatch.setenv("FORGE_TAPE", "replay")
    with pytest.raises(ToolError, match="no tape"):
        bench(look, tape=file)
    monkeypatch.setenv("FORGE_TAPE", "record")
    assert [bench(look, tape=file).text("look", word="a") for _ in range(2)] == ["a: 1", "a: 2"]
    assert len(file.read_text().splitlines()) == 1
    monkeypatch.setenv("FORGE_TAPE", "often")
    with pytest.raises(ValueError, match="often"):
        bench(look, tape=file)


def test_an_agent_replays(tmp_path, counted):
    look, counts = counted
    texts = []
    for _ in range(2):
        agent = Agent(
            Scripted(calls("look", word="a"), "Done."),
            tools=[look],
            steps=lambda gate, secrets: [tape(tmp_path / "tape.ndjson"), *standard_steps(gate, secrets)],
        )
        texts.append(calls_of(agent.run_sync("go"))[0].text)
    assert texts == ["a: 1", "a: 1"]
    assert counts == ["a"]
