"""Runs of the maintainer with a scripted model: it fixes a bug, and prepares a release that a person approves in part.

They need no model and no key: `python -m pytest`.
"""

import shutil
import sys
from pathlib import Path

import pytest

from forge import Answer, PermissionRequest, Scripted, load_project
from forge.testing import calls, says

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="trials need Linux, with bubblewrap")
PROJECT = Path(__file__).parents[1]
FIX = 'return "-".join("".join(c for c in title.lower() if c.isalnum() or c == " ").split())'
TESTS = "python3 -m unittest -q tests/test_slug.py"


def run(folder: Path, model: Scripted, asked: list[str]) -> list[str]:
    """Runs the project's agent on a copy of the project. Returns what the model learnt from each call."""
    workspace = folder / "repository"
    shutil.copytree(PROJECT, workspace, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))

    async def decide(request: PermissionRequest) -> Answer:
        """The person: applies everything but deletions."""
        assert request.effects is not None, "only effects are asked about here"
        asked.append(request.effects.summary)
        kept = [path for kind, path in request.effects.files if kind != "delete"]
        return Answer.some(kept, "Keep the notes until the release is out.", by="Ada")

    agent = load_project(workspace, config=workspace / "forge.yaml").agent(model, approve=decide)
    result = agent.run_sync("Slugs keep punctuation: fix it, then prepare the release.")
    return [message.text for message in result.messages if message.role == "tool"]


def test_it_fixes_a_bug_without_a_question(tmp_path: Path) -> None:
    asked: list[str] = []
    model = Scripted(
        calls("file_read", path="src/slug.py"),
        calls("file_edit", path="src/slug.py", old_text='return title.lower().replace(" ", "-")', new_text=FIX),
        calls("bash", command=f"{TESTS} && python3 -c 'import src.slug as s; print(s.slug(\"What? A  slug!\"))'"),
        says("Slugs drop punctuation now."),
    )
    learnt = run(tmp_path, model, asked)
    assert "what-a-slug" in learnt[2]
    assert asked == []


def test_a_person_approves_the_effects_of_a_script_and_keeps_what_it_would_delete(tmp_path: Path) -> None:
    asked: list[str] = []
    learnt = run(tmp_path, Scripted(calls("bash", command="python3 scripts/release.py"), says("Ready.")), asked)
    assert asked == ["changes 1 file, deletes 1 file"]
    assert "Keep the notes" in learnt[0]
    assert "- Slugs drop punctuation." in (tmp_path / "repository/CHANGELOG.md").read_text()
    assert (tmp_path / "repository/changes/12.md").exists()


def test_it_cannot_change_what_runs_in_ci(tmp_path: Path) -> None:
    asked: list[str] = []
    line = "sed -i s/push/workflow_dispatch/ .github/workflows/ci.yml"
    learnt = run(tmp_path, Scripted(calls("bash", command=line), says("A person must do it.")), asked)
    assert "denied by the rule `deny write .github/**`" in learnt[0]
    assert "on: push" in (tmp_path / "repository/.github/workflows/ci.yml").read_text()
    assert asked == []
