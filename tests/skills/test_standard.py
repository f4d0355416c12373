"""Agent Skills: Forge judges skills as the standard's reference validator does, and can use what that one allows."""

from __future__ import annotations

from pathlib import Path

import pytest
from skills_ref.validator import validate

from forge.core.context import Scope
from forge.skills.catalog import BUILT_IN, Catalog
from forge.skills.skill import files_of
from scores.skills import compare
from tests.cli.conftest import here, workspace

__all__ = ["here", "workspace"]  # fixtures

GOOD = "---\nname: deploy\ndescription: Deploys it.\n---\nDo it.\n"


def test_every_verdict_is_the_one_of_the_validator(tmp_path):
    unlike, unused, valid, broken = [], [], 0, 0
    for label, theirs, ours, usable in compare(tmp_path):
        valid, broken = valid + theirs, broken + (not theirs)
        if theirs is not ours:
            unlike.append(label)
        if theirs and not usable:
            unused.append(label)
    assert not unlike
    assert valid > 200
    assert broken > 500
    # `null` is no description, and a tab where YAML has none is not read
    assert all("description: null" in label or "\\t" in label for label in unused)
    assert len(unused) <= 2


def test_our_own_skills_pass(tmp_path):
    for name, files in (("mine", files_of("mine")), ("été", files_of("été"))):
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text, encoding="utf-8")
        assert validate(tmp_path / name) == []
        assert name in Catalog((".",), Scope(workspace=tmp_path), built_in=False).skills
    for folder in BUILT_IN.iterdir():
        assert validate(folder) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD, ""),
        (GOOD.replace("name: deploy", "name: other"), "not the name of its folder"),
        (GOOD.replace("---\nDo", "version: 1\n---\nDo"), "the standard has no keys version"),
        (GOOD.replace("---\nDo", "allowed-tools: [Read]\n---\nDo"), "no [lists]"),
        ("\ufeff" + GOOD, "very first characters"),
    ],
)
def test_skill_check_says_what_the_standard_does_not_allow(here, workspace, text, problem):
    folder = Path(workspace, "skills", "deploy")
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    checked = here("skill", "check", "--json")
    assert checked.code == bool(problem) == bool(validate(folder))
    assert [problem in one["why"] for one in checked.json["problems"]] == [True] * bool(problem)
    assert "deploy" in [
        one["name"] for one in here("skill", "list", "--json").json["skills"]
    ]  # it is used all the same


def test_the_file_may_have_a_small_name(here, workspace):
    folder = Path(workspace, "skills", "deploy")
    folder.mkdir(parents=True)
    (folder / "skill.md").write_text(GOOD)
    assert here("skill", "check", "deploy").code == 0
