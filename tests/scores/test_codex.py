"""The runner of codex's scenarios, with scenarios of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from scores import codex
from scores.report import Missing, NotGiven

PATCH = "*** Begin Patch\n  *** Update File: a.txt\n@@\n-one\n+two\n *** End Patch\n"


def scenario(folder: Path, name: str, expected: str) -> None:
    for part, content in (("input", "one\r\n"), ("expected", expected)):
        (folder / name / part).mkdir(parents=True)
        (folder / name / part / "a.txt").write_bytes(content.encode())
    (folder / name / "patch.txt").write_text(PATCH)


@pytest.mark.parametrize(
    ("name", "expected", "passed", "failures"),
    [
        ("001", "two\r\n", 1, []),
        ("001", "two\n", 0, ["001: not explained: updated a.txt"]),
        ("024_preserves_mixed_line_endings", "two\n", 0, ["024_preserves_mixed_line_endings: decided: a changed line"]),
    ],
)
def test_every_file_counts(tmp_path, monkeypatch, name, expected, passed, failures):
    scenario(tmp_path, name, expected)
    monkeypatch.setenv(codex.VARIABLE, str(tmp_path))
    [row] = codex.run().rows
    assert (row.passed, row.cases) == (passed, 1)
    assert len(row.failures) == len(failures)
    assert all(said.startswith(begin) for said, begin in zip(row.failures, failures, strict=True))


def test_a_folder_without_scenarios_is_no_success(tmp_path, monkeypatch):
    monkeypatch.setenv(codex.VARIABLE, str(tmp_path))
    with pytest.raises(Missing, match="has no scenarios: clone") as raised:
        codex.run()
    assert not isinstance(raised.value, NotGiven), "a folder that was named must have them"


def test_without_a_folder_it_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv(codex.VARIABLE, raising=False)
    with pytest.raises(NotGiven, match=r"clone github.com/openai/codex, then `CODEX_SCENARIOS=\S+ make scores"):
        codex.run()
