"""The scenarios of codex's `apply_patch`, from a folder that the user names: they are not redistributed.

Each scenario is a directory with `input/`, `patch.txt` and `expected/`; only the files that are there afterwards count.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from forge.core.context import Scope
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.tools.file_patch import FilePatch
from scores.report import Missing, NotGiven, Row, Score

VARIABLE = "CODEX_SCENARIOS"
FOLDER = "codex-rs/apply-patch/tests/fixtures/scenarios"
SOURCE = f"github.com/openai/codex, {FOLDER}"
MEASURES = "codex's own scenarios for `apply_patch`, through `file_patch`: the resulting files are the same."
HOW = f"clone github.com/openai/codex, then `{VARIABLE}=codex/{FOLDER} make scores SUITE=codex`"

INTENDED = {
    "010_move_overwrites_existing_destination": "a move onto an existing file is refused; overwrite: true replaces it",
    "011_add_overwrites_existing_file": "an add onto an existing file is refused; overwrite: true replaces it",
    "015_failure_after_partial_success_leaves_changes": "a patch is applied as a whole or not at all",
    "024_preserves_mixed_line_endings": "a changed line keeps its own ending; codex gives it the file's first one",
}


class Outcome(NamedTuple):
    """How one scenario ended."""

    name: str
    same: bool
    answer: str


def run() -> Score:
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        raise NotGiven(f"no folder with the scenarios was given: {HOW}")
    found = sorted(path.parent for path in Path(folder).glob("*/patch.txt"))
    if not found:
        raise Missing(f"{VARIABLE}={folder} has no scenarios: {HOW}")
    outcomes = asyncio.run(_run_all(found))
    failures = [f"{one.name}: {_reason(one)}" for one in outcomes if not one.same]
    passed = sum(one.same for one in outcomes)
    return Score("codex", SOURCE, MEASURES, [Row("scenarios with the same files", passed, len(outcomes), "", failures)])


async def _run_all(found: list[Path]) -> list[Outcome]:
    return [await run_scenario(one) for one in found]


async def run_scenario(scenario: Path) -> Outcome:
    """Apply the patch to a copy of the input and compare every file with the expected ones."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "workspace"
        if (scenario / "input").is_dir():
            shutil.copytree(scenario / "input", root)
        else:
            root.mkdir()
        executor = ToolExecutor(ToolRegistry([FilePatch()]), [])
        patch = (scenario / "patch.txt").read_bytes().decode()
        result = await executor.execute(ToolCall("file_patch", {"patch": patch}), Scope(workspace=root))
        return Outcome(scenario.name, _files(root) == _files(scenario / "expected"), result.for_llm)


def _reason(outcome: Outcome) -> str:
    intended = INTENDED.get(outcome.name)
    return f"decided: {intended}" if intended else f"not explained: {outcome.answer}"


def _files(root: Path) -> dict[str, bytes | None]:
    """Every file with its content, every directory with none; without what Forge keeps for itself."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if ".forge" not in path.relative_to(root).parts
    }
