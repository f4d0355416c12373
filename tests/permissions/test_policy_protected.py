"""Protected files: written only where a rule names them, whatever their spelling, whether or not they exist."""

from __future__ import annotations

import asyncio
import os

import pytest

from forge.core.context import Scope
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.tool import tool
from forge.permissions.gate import PolicyGate, approve_all
from forge.permissions.policy import Decision, layered, rules
from forge.pipeline.authorize import Authorize


@tool(permissions={"write"}, target="path")
def save(path: str) -> str:
    """Save nothing."""
    return "saved"


@tool(permissions={"read"}, target="path")
def look(path: str) -> str:
    """Look at nothing."""
    return "seen"


def write(workspace, path, policy=None, name="save", **scope):
    gate = PolicyGate(policy if policy is not None else rules("allow write"), approve_all)
    executor = ToolExecutor(ToolRegistry([save, look]), [Authorize(gate)])
    return asyncio.run(executor.execute(ToolCall(name, {"path": path}), Scope(workspace=workspace, **scope)))


PROTECTED = [
    ".git/config",
    ".git",
    "sub/module/.git/hooks/pre-commit",
    ".GIT/config",
    ".git\u200b/config",
    "x/../.git/HEAD",
    "./.git//config",
    ".forge/state.db",
    ".forge/journal/x",
    "deep/.forge/pins.json",
    ".forge/files/../state.db",
    "forge.yaml",
    "Forge.YAML",
    "sub/forge.yml",
    "skills/deploy/SKILL.md",
    "skills/deploy.md",
    "sub/skills/deploy/skill.md",
]
FREE = [
    ".gitignore",
    ".github/workflows/ci.yml",
    "git/config",
    "src/.gitkeep",
    "forge.yaml.bak",
    "my-forge.yaml",
    ".forge/files/report.md",
    "forge/state.db",
    "skills/deploy/scripts/run.py",
    "docs/skills.md",
    "README.md",
]


@pytest.mark.parametrize("path", PROTECTED)
def test_a_protected_file_is_refused_even_where_all_writing_is_allowed_and_everyone_says_yes(tmp_path, path):
    for policy in (rules("allow write"), rules("allow write **"), rules("ask write"), lambda request: Decision.ALLOW):
        result = write(tmp_path, path, policy)
        assert result.is_error, policy
        assert result.failure.kind == "permission_error"
        assert "protection" in result.for_llm
        assert "`allow write " in result.for_llm, "it says what would allow it"
    assert write(tmp_path, str(tmp_path / path)).is_error


@pytest.mark.parametrize("path", FREE)
def test_what_only_looks_like_it_is_free(tmp_path, path):
    assert write(tmp_path, path).success


@pytest.mark.parametrize("path", PROTECTED)
def test_reading_is_not_protected(tmp_path, path):
    assert write(tmp_path, path, name="look").success


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("allow write .git/config", ".git/config"),
        ("allow write .git/**", ".git/hooks/x"),
        ("allow write .forge/memory/*", ".forge/memory/MEMORY.md"),
        ("allow write forge.yaml", "forge.yaml"),
        ("allow write skills/**", "skills/a/SKILL.md"),
    ],
)
def test_a_rule_that_names_it_lifts_the_protection(tmp_path, rule, path):
    assert write(tmp_path, path, rules(rule)).success
    assert write(tmp_path, path, layered(project=[rule])).success
    assert write(tmp_path, path, rules(rule, "deny write")).is_error


def test_a_rule_about_one_file_lifts_nothing_else(tmp_path):
    policy = rules("allow write .git/config", "allow write src/**")
    assert write(tmp_path, ".git/config", policy).success
    assert write(tmp_path, ".git/hooks/pre-commit", policy).is_error
    assert write(tmp_path, "src/.git/config", policy).is_error


def test_a_link_is_as_protected_as_what_it_leads_to(tmp_path):
    (tmp_path / ".git").mkdir()
    os.symlink(".git", tmp_path / "innocent")
    os.symlink(".git/config", tmp_path / "dangling")
    assert write(tmp_path, "innocent/config").is_error
    assert write(tmp_path, "dangling").is_error
    (tmp_path / "fine").mkdir()
    os.symlink("fine", tmp_path / "link")
    assert write(tmp_path, "link/config").success


def test_a_workspace_below_a_directory_called_like_one_is_no_prison(tmp_path):
    workspace = tmp_path / ".forge" / "skills" / "ws"
    workspace.mkdir(parents=True)
    assert write(workspace, "notes.md").success


@pytest.mark.parametrize(
    "path",
    ["know/how/deploy/SKILL.md", "know/how/deploy.md", "Know/How/deploy.md", "x/../know/how/a/skill.md", "link/a.md"],
)
def test_a_skill_is_protected_whatever_its_folder_is_called(tmp_path, path):
    (tmp_path / "know" / "how").mkdir(parents=True)
    (tmp_path / "link").symlink_to("know/how")
    folders = {"skills": ("skills", "know/how")}
    assert write(tmp_path, path, **folders).is_error
    assert write(tmp_path, path).success  # which no project calls a folder of skills


@pytest.mark.parametrize("path", ["know/how/deploy/run.py", "know/how/deploy/notes.md", "know/other.md", "knowhow.md"])
def test_what_is_no_skill_in_such_a_folder_is_free(tmp_path, path):
    assert write(tmp_path, path, skills=("skills", "know/how")).success


def test_a_rule_that_names_the_folder_lifts_the_protection_of_its_skills(tmp_path):
    assert write(tmp_path, "know/how/deploy.md", rules("allow write know/how/**"), skills=("know/how",)).success
    assert write(tmp_path, "know/how/deploy.md", rules("allow write know/**"), skills=("know/how",)).is_error


@pytest.mark.parametrize("path", [".husky/pre-commit", ".HUSKY/pre-push", "./.husky//_/h", ".husky"])
def test_hooks_in_a_folder_that_the_settings_name_are_protected(tmp_path, path):
    assert write(tmp_path, path).failure is None
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("[core]\n\thooksPath = .husky\n")
    refused = write(tmp_path, path)
    assert refused.failure is not None
    assert "a Git hook (core.hooksPath)" in refused.for_llm
    assert write(
        tmp_path, path, rules("allow write", "allow write .husky/**", "allow write .husky")
    ).failure is None or ("HUSKY" in path)
    assert write(tmp_path, ".husky-notes").failure is None
    assert write(tmp_path, path, rules("allow read"), "look").failure is None
