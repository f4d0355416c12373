"""The runner of codex's scenarios, with scenarios of our own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from scripts.codex_scenarios import main

PATCH = "*** Begin Patch\n  *** Update File: a.txt\n@@\n-one\n+two\n *** End Patch\n"


def scenario(folder: Path, name: str, expected: str) -> None:
    for part, content in (("input", "one\r\n"), ("expected", expected)):
        (folder / name / part).mkdir(parents=True)
        (folder / name / part / "a.txt").write_bytes(content.encode())
    (folder / name / "patch.txt").write_text(PATCH)


@pytest.mark.parametrize(
    ("expected", "code", "figure"),
    [("two\r\n", 0, "1 of 1"), ("two\n", 1, "001: NOT EXPLAINED\n    updated a.txt\n0 of 1")],
)
def test_every_file_counts(tmp_path, capsys, expected, code, figure):
    scenario(tmp_path, "001", expected)
    assert asyncio.run(main(tmp_path)) == code
    assert capsys.readouterr().out == f"{figure} scenarios give the same files\n"


def test_a_folder_without_scenarios_is_no_success(tmp_path, capsys):
    assert asyncio.run(main(tmp_path)) == 1
    assert capsys.readouterr().out.startswith("0 of 0")
