"""`forge init`: what it writes passes its own checks, and nothing that is there is touched."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.cli.commands.init import NAMES
from forge.core.registry import ToolRegistry
from forge.project.assemble.choose_tools import MADE_FOR_PROJECTS
from forge.project.templates import TEMPLATES
from forge.tools import built_ins
from tests import programs
from tests.cli.conftest import environment


@pytest.fixture(autouse=True)
def home(workspace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(place))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "FORGE_CONFIG", "FORGE_MODEL", "FORGE_SANDBOX", "FORGE_EGRESS"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.mark.parametrize("template", NAMES)
def test_every_template_passes_its_own_checks(
    here: Any, workspace: Path, tmp_path_factory: pytest.TempPathFactory, template: str
) -> None:
    """As its README says; then what was built runs where the project is not."""
    assert here("init", "--template", template, "--name", "helper").code == 0
    listed = here("tool", "list", "--json")
    assert listed.err == ""  # it is trusted, and nothing is left out
    assert "word_count" in {tool["name"] for tool in listed.json["tools"]}
    examined = here("policy", "test", "policy-tests.yaml")
    assert examined.code == 0, examined.out + examined.err
    doctor = here("doctor", "--json")
    assert [one for one in doctor.json["checks"] if one["status"] == "broken"] == []
    assert doctor.code == 0
    shown = here("config", "show", "--json")
    assert shown.json["values"]["agent"]["id"] == "helper"
    for flags in ([], ["--prod"]):
        built = here("build", *flags, "--json")
        assert built.code == 0, built.out + built.err
        assert built.json["notes"] == []
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    script = elsewhere / "model.yaml"
    script.write_text("- {call: word_count, arguments: {text: to be or not}}\n- Four.\n")
    os.chdir(elsewhere)
    ran = here(
        "run", "How many?", "--from", str(workspace / ".forge-output"), "--expect", built.json["sha256"],
        "--model", f"scripted:{script}", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    ended = [line for line in ran.lines if line["event"] == "tool_call_end"]
    assert '"words": 4' in json.dumps(ended).replace("\\", "")


@pytest.mark.parametrize("template", [NAMES[0], *(pytest.param(one, marks=pytest.mark.slow) for one in NAMES[1:])])
def test_the_tests_of_a_template_pass(here: Any, workspace: Path, template: str) -> None:
    """They use the testing kit, and the agent of the project with its own rules."""
    assert here("init", "--template", template).code == 0
    assert "forge.testing" in (workspace / "tests" / "test_word_count.py").read_text()
    done = programs.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=workspace, env=environment(PYTEST_ADDOPTS=None), capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_commands_of_the_readme_work_in_their_order(
    here: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("init", "--template", "coding").code == 0
    (workspace / "model.yaml").write_text("- Hello.\n")
    monkeypatch.setenv("FORGE_MODEL", f"scripted:{workspace / 'model.yaml'}")
    lines = [line.split("  #")[0].strip() for line in (workspace / "README.md").read_text().splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith(("forge ", "python ", "pip "))]
    assert [line[:2] for line in commands if line[0] != "forge"] == [["pip", "install"], ["python", "-m"]]
    for program, *arguments in commands:
        if program == "forge":
            done = here(*arguments)
            assert done.code == 0, (arguments, done.out + done.err)


def test_the_templates_that_can_be_chosen_are_those_there_are() -> None:
    assert set(NAMES) == TEMPLATES.keys()


def test_it_is_said_what_was_written_and_what_comes_next(here: Any, workspace: Path) -> None:
    done = here("init", "my helper")
    assert "  cd 'my helper'\n  forge tool list\n" in done.out
    assert '  id: "my-helper"\n' in (workspace / "my helper" / "forge.yaml").read_text()
    assert "  cd other\n" in here("init", "--workspace", "other").out
    told = here("init", "third", "--json").json
    assert told["directory"] == str(workspace / "third")
    assert {"forge.yaml", "README.md", "tools/word_count.py"} <= set(told["files"])


@pytest.mark.parametrize("directory", ["2026", "null", "yes", "1e5", "日本"])
def test_whatever_the_directory_is_called_the_project_can_be_read(
    here: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    assert here("init", directory).code == 0
    monkeypatch.chdir(workspace / directory)
    assert here("config", "show").code == 0


def test_what_a_directory_with_code_has_already_stays(here: Any, workspace: Path) -> None:
    (workspace / "README.md").write_text("Mine.\n")
    (workspace / ".gitignore").symlink_to("nowhere")
    done = here("init", "--template", "coding", "--json")
    assert done.code == 0
    assert done.json["kept"] == [".gitignore", "README.md"]
    assert (workspace / "README.md").read_text() == "Mine.\n"
    assert not (workspace / "nowhere").exists()
    assert (workspace / "forge.yaml").is_file()


def test_nothing_is_written_where_a_file_is_in_the_way(here: Any, workspace: Path, home: Path) -> None:
    (workspace / "tools").mkdir()
    (workspace / "tools" / "word_count.py").write_text("mine")
    done = here("init")
    assert done.code == 2
    assert "tools/word_count.py is there already" in done.err
    assert sorted(os.listdir(workspace)) == ["tools"]
    assert not list(home.rglob("trust.json"))
    (workspace / "tools" / "word_count.py").unlink()
    assert here("init").code == 0


def test_no_link_leads_what_is_written_out_of_the_project(
    here: Any, workspace: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (workspace / "tools").symlink_to(outside)
    assert here("init").code == 2
    assert os.listdir(outside) == []
    assert os.listdir(workspace) == ["tools"]


@pytest.mark.parametrize("name", ["", "A b", "-", "a/b", "a\nb", "ü"])
def test_an_id_that_no_agent_can_have_is_refused_before_anything_is_made(here: Any, workspace: Path, name: str) -> None:
    done = here("init", "new", "--name", name)
    assert done.code == 2
    assert "cannot be the id" in done.err
    assert os.listdir(workspace) == []


def test_a_directory_that_cannot_be_one_is_refused(here: Any, workspace: Path) -> None:
    (workspace / "file").write_text("")
    for directory in ("file", "file/below", "/proc/nowhere", "x" * 300):
        done = here("init", directory)
        assert done.code == 2
        assert "cannot be the project's directory" in done.err


def test_where_nothing_can_be_remembered_the_next_step_is_to_trust_it(
    here: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    done = here("init")
    assert done.code == 0
    assert "Next:\n  forge trust\n" in done.out


@pytest.mark.parametrize("template", NAMES)
def test_a_template_names_only_tools_it_has(here: Any, workspace: Path, template: str) -> None:
    assert here("init", "--template", template, "--name", "helper").code == 0
    has = {tool["name"] for tool in here("tool", "list", "--json").json["tools"]}
    every = {tool.spec.name for tool in built_ins(ToolRegistry())} | MADE_FOR_PROJECTS
    skills = [*workspace.glob("skills/**/*.md"), workspace / "forge.yaml", workspace / "README.md"]
    active = here("config", "show", "--json").json["values"].get("skills", {}).get("active", [])
    texts = [path.read_text() for path in skills if path.exists()] + [here("skill", "show", one).out for one in active]
    named = {word for text in texts for word in re.findall(r"[a-z]+_[a-z_]+", text)} & every
    assert named <= has
    if any(workspace.glob("skills/**/*.md")):
        assert "read_skill" in has, "the model is told to read them"
