"""Runs codex's apply_patch scenarios through `file_patch`: `python -m scripts.codex_scenarios FOLDER`.

FOLDER is `codex-rs/apply-patch/tests/fixtures/scenarios` of github.com/openai/codex. Each scenario is a directory with
`input/`, `patch.txt` and `expected/`; only the files that are there afterwards count. The exit code is 1 if a scenario
differs for a reason that is not given here.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from forge.core.context import Scope
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.tools.file_patch import FilePatch

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


def scenarios(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/patch.txt"))


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


def _files(root: Path) -> dict[str, bytes | None]:
    """Every file with its content, every directory with none; without what Forge keeps for itself."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if ".forge" not in path.relative_to(root).parts
    }


async def main(folder: Path) -> int:
    outcomes = [await run_scenario(scenario) for scenario in scenarios(folder)]
    for outcome in outcomes:
        if not outcome.same:
            print(
                f"{outcome.name}: {INTENDED.get(outcome.name, 'NOT EXPLAINED')}\n    {outcome.answer.splitlines()[0]}"
            )
    print(f"{sum(outcome.same for outcome in outcomes)} of {len(outcomes)} scenarios give the same files")
    unexplained = [outcome for outcome in outcomes if not outcome.same and outcome.name not in INTENDED]
    return 1 if unexplained or not outcomes else 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(f"usage: python -m scripts.codex_scenarios FOLDER\n\n{__doc__}")
    sys.exit(asyncio.run(main(Path(sys.argv[1]))))
