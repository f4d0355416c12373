"""`forge skill`."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types

import pytest

import forge.cli
from forge.project.assemble.access import project_scope
from forge.project.config import load_configuration
from forge.skills.catalog import Catalog

GOOD = "---\nname: deploy\ndescription: Deploys it.\nmetadata:\n  tags: ops\n---\n# Deploying\n\nStep by step.\n"
LACKING = "---\ndescription: Lacks.\nmetadata: {forge: {requires: {bins: [no-such-program]}}}\n---\n"


@pytest.fixture
def skill(here, monkeypatch, workspace):
    """Registered as the project does it; what reads forge.yaml is replaced where it is not there."""
    monkeypatch.setattr(forge.cli.forge, "modules", {**forge.cli.forge.modules, "skill": "forge.cli.commands.skill"})
    if importlib.util.find_spec("forge.project.assemble.knowledge") is None:
        module = types.ModuleType("forge.project.assemble.knowledge")
        vars(module)["project_skills"] = lambda options: Catalog(
            ("skills",), project_scope(options.workspace, load_configuration(options.config))
        )
        monkeypatch.setitem(sys.modules, "forge.project.assemble.knowledge", module)
    return lambda *arguments: here("skill", *arguments)


def put(workspace, path, content):
    file = workspace / "skills" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def test_list_shows_the_skills_and_what_is_wrong(skill, workspace):
    put(workspace, "deploy/SKILL.md", GOOD)
    put(workspace, "lacking.md", LACKING)
    put(workspace, "broken/SKILL.md", "nothing")
    ended = skill("list")
    assert ended.code == 0
    assert "deploy      Deploys it." in ended.out
    assert "lacking     Lacks. (not usable: the program no-such-program is not installed)" in ended.out
    assert "code-agent" in ended.out
    assert "skills/broken/SKILL.md: it has no front matter" in ended.err
    told = skill("list", "--json").json
    assert [one["name"] for one in told["skills"]] == ["code-agent", "deploy", "lacking"]
    assert told["skills"][1] == {
        "name": "deploy",
        "description": "Deploys it.",
        "tags": ["ops"],
        "version": "",
        "path": "skills/deploy/SKILL.md",
        "built_in": False,
        "missing": [],
        "notes": [],
    }
    assert told["problems"][0]["path"] == "skills/broken/SKILL.md"


def test_show_prints_all_of_it(skill, workspace):
    put(workspace, "deploy/SKILL.md", GOOD)
    ended = skill("show", "deploy")
    assert ended.code == 0
    assert "Deploys it." in ended.out
    assert "# Deploying\n\nStep by step." in ended.out
    told = skill("show", "code-agent", "--json").json
    assert told["groups"] == ["code-agent"]
    assert told["body"].startswith("# Working on code")


def test_an_unknown_skill_is_refused_with_a_hint(skill, workspace):
    put(workspace, "deploy/SKILL.md", GOOD)
    for command in ("show", "check"):
        ended = skill(command, "deplpy")
        assert ended.code == 2
        assert "there is no skill 'deplpy'" in ended.err
        assert "Did you mean 'deploy'?" in ended.err
    assert skill("show", "../deploy").code == 2


def test_check_says_what_is_wrong(skill, workspace):
    put(workspace, "deploy/SKILL.md", GOOD)
    assert skill("check").code == 0
    assert "no problems" in skill("check", "deploy").out
    put(workspace, "lacking.md", LACKING)
    put(workspace, "broken/SKILL.md", "nothing")
    put(workspace, "tools.md", "---\ndescription: x\n---\n## Tool: bash\nB.\n")
    ended = skill("check")
    assert ended.code == 1
    assert "skills/broken/SKILL.md: it has no front matter" in ended.out
    assert "lacking: the program no-such-program is not installed" in ended.out
    assert "tool bash: the name is taken by another tool" in ended.out
    assert skill("check", "deploy").code == 0
    assert skill("check", "broken").code == 1
    told = skill("check", "lacking", "--json")
    assert (told.code, told.json["ok"]) == (1, False)
    assert told.json["missing"] == {"lacking": ["the program no-such-program is not installed"]}


def test_new_writes_a_skill_that_passes(skill, workspace):
    ended = skill("new", "weather-report")
    assert ended.code == 0, ended.err
    assert (
        "Wrote skills/weather-report/SKILL.md and skills/weather-report/scripts/weather_report_repeat.py." in ended.out
    )
    assert skill("check", "weather-report").code == 0
    told = skill("show", "weather-report", "--json").json
    assert told["tools"][0]["name"] == "weather_report_repeat"
    assert list(told["tools"][0]["parameters"]["properties"]) == ["text", "times"]
    assert skill("new", "other", "--json").json["skill"] == "other"


@pytest.mark.parametrize("name", ["../evil", "Upper", "a/b", "-x", "x" * 65, "a b"])
def test_names_that_cannot_be_used_are_refused(skill, workspace, name):
    ended = skill("new", "--", name)
    assert ended.code == 2
    assert "cannot be the name of a skill" in ended.err
    assert list(workspace.iterdir()) == []


def test_nothing_is_overwritten(skill, workspace):
    assert skill("new", "weather").code == 0
    assert "already is a skill with that name" in skill("new", "weather").err
    (workspace / "skills/climate").mkdir()
    ended = skill("new", "climate")
    assert ended.code == 2
    assert "skills/climate already exists" in ended.err


def test_a_disk_that_is_full_leaves_nothing_behind(skill, workspace, monkeypatch):
    def full(self, *arguments, **options):
        if self.name.endswith(".py"):
            raise OSError(28, "No space left on device")
        return opened(self, *arguments, **options)

    opened = pathlib.Path.open
    monkeypatch.setattr(pathlib.Path, "open", full)
    ended = skill("new", "weather")
    assert ended.code == 2
    assert "scripts/weather_repeat.py cannot be written: No space left on device" in ended.err
    assert list((workspace / "skills").iterdir()) == []


def test_a_folder_that_leads_out_is_refused(skill, workspace, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (workspace / "skills").symlink_to(outside)
    ended = skill("new", "weather")
    assert ended.code == 2
    assert "outside" in ended.err
    assert list(outside.iterdir()) == []


def test_what_would_steer_the_terminal_is_not_printed(skill, workspace):
    put(workspace, "a.md", '---\ndescription: "\\e[31mred"\n---\nbody \x1b[2J\n')
    assert "\x1b" not in skill("show", "a").out
    assert "\x1b" not in skill("list").out
