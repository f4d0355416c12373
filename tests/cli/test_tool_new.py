"""`forge tool new`."""

from __future__ import annotations

import sys

import pytest

from forge.cli.commands import tool
from forge.scripts.folder import scripts
from tests import programs
from tests.cli.conftest import environment


@pytest.fixture
def new(here, monkeypatch):
    monkeypatch.setattr(tool.command, "modules", {**tool.command.modules, "new": "forge.cli.commands.tool.new"})
    return lambda *arguments: here("tool", "new", *arguments)


@pytest.mark.parametrize(
    ("lang", "script"),
    [("py", "tools/weather-now.py"), pytest.param("ts", "tools/tool_weather-now.ts", marks=pytest.mark.slow)],
)
def test_it_writes_a_tool_and_a_test_that_passes(new, workspace, lang, script):
    ended = new("weather-now", "--lang", lang)
    assert ended.code == 0, ended.err
    assert f"Wrote {script} and tests/test_weather_now.py." in ended.out
    assert "forge tool call weather-now" in ended.out
    folder = scripts(root=workspace)
    (made,) = folder.load()
    assert (made.spec.name, made.spec.origin, folder.problems) == ("weather-now", f"script:{script}", [])
    assert list(made.spec.parameters["properties"]) == ["text", "times"]
    run = programs.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=workspace,
        env=environment(PYTEST_ADDOPTS=None),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout or (lang == "ts" and "1 passed, 1 skipped" in run.stdout)


def test_json_says_what_was_written(new):
    ended = new("weather", "--json")
    assert ended.json["script"] == "tools/weather.py"
    assert ended.json["test"] == "tests/test_weather.py"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("bash", "is a built-in tool (bash)"),
        ("read", "is a built-in tool (file_read)"),
        ("task_completion", "built-in"),
        ("../evil", "cannot be the name"),
        ("a__b", "cannot be the name"),
        ("1st", "cannot be the name"),
        ("x" * 65, "cannot be the name"),
    ],
)
def test_names_that_cannot_be_used_are_refused(new, workspace, name, why):
    ended = new(name)
    assert ended.code == 2
    assert why in ended.err
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize("path", ["tools/weather.py", "tests/test_weather.py"])
def test_nothing_is_overwritten(new, workspace, path):
    (workspace / path).parent.mkdir()
    (workspace / path).write_text("mine")
    ended = new("weather")
    assert ended.code == 2
    assert f"{path} is there already" in ended.err
    assert [file.name for file in workspace.rglob("*.py")] == [path.rpartition("/")[2]]
    assert (workspace / path).read_text() == "mine"
    assert new("climate").code == 0


def test_a_name_that_another_script_has_is_refused(new, workspace):
    assert new("weather").code == 0
    ended = new("weather", "--lang", "ts")
    assert ended.code == 2
    assert "tools/weather.py is a tool of that name already" in ended.err


def test_a_folder_that_leads_out_of_the_project_is_refused(new, workspace, tmp_path_factory):
    (workspace / "tools").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    ended = new("weather")
    assert ended.code == 2
    assert "outside" in ended.err


def test_a_name_that_python_has_hides_no_module(new, workspace):
    assert new("json").code == 0
    (made,) = scripts(root=workspace).load()
    assert (made.spec.name, made.spec.origin) == ("json", "script:tools/tool_json.py")


def test_it_writes_both_files_or_none(new, workspace):
    (workspace / "tests").write_text("in the way")
    ended = new("weather")
    assert ended.code == 2
    assert "tests/test_weather.py cannot be written" in ended.err
    assert list((workspace / "tools").iterdir()) == []
    (workspace / "tests").unlink()
    assert new("weather").code == 0


def test_it_names_the_rule_that_allows_the_tool(new, here, workspace):
    (workspace / "forge.yaml").write_text("permissions:\n  rules:\n    - ask execute\n")
    flags = ("--config", "forge.yaml")
    asked = new("weather", *flags)
    rule = asked.out.splitlines()[-1]
    assert (asked.code, rule.strip()) == (0, "- allow execute tools/weather.py")
    call = ("tool", "call", "weather", "text=hello", *flags)
    assert here(*call).json["error_type"] == "permission_error"
    (workspace / "forge.yaml").write_text(f"permissions:\n  rules:\n    - ask execute\n{rule}\n")
    assert here(*call).json["success"], here(*call).out


def test_it_names_no_rule_where_one_allows_the_tool(new, workspace):
    (workspace / "forge.yaml").write_text("permissions: {rules: [allow execute tools/*]}\n")
    assert "allow execute" not in new("weather", "--config", "forge.yaml").out
    told = new("climate", "--config", "forge.yaml", "--json").json
    assert (told["decision"], told["rule"]) == ("allow", "allow execute tools/climate.py")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (("tool", "create", "x"), "Did you mean `forge tool new`?"),
        (("tool", "show", "x"), "Did you mean `forge tool describe`?"),
        (("tool", "delete", "x"), "To remove a tool of the project, delete its file in tools/."),
        (("schedule", "create"), "Did you mean `forge schedule add`?"),
        (("session", "rm"), "`forge session delete`"),
        (("runs", "approve"), "Did you mean `forge runs answer`?"),
        (("chat",), "Did you mean `forge run`?"),
        (("tol",), "Did you mean `forge tool`?"),
        (("tool", "frobnicate"), "Known are call, describe, list, new."),
    ],
)
def test_a_verb_of_another_program_is_hinted_to_ours(here, typed, hint):
    ended = here(*typed)
    assert ended.code == 2
    assert hint in ended.err
