"""`forge tool list`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from forge.agent.subagent import Task
from forge.project.assemble.agents import DESCRIPTION
from forge.project.assemble.choose_tools import CORE
from tests.cli.conftest import environment
from tests.cli.scripts import script

HEAVY = (
    *("asyncio", "pydantic", "pydantic_core", "jsonschema_rs", "rich", "yaml", "docstring_parser", "shutil", "heapq"),
    *(
        "forge.core.events",
        "forge.core.messages",
        "forge.core.arguments.schema",
        "forge.core.arguments.repair",
        "forge.workspace.paths",
    ),
)


def test_programs_get_every_tool_sorted_by_name(here):
    tools = here("tool", "list", "--json").json["tools"]
    names = [tool["name"] for tool in tools]
    assert names == sorted(names)
    assert {"ask_question", "csv_parse", "math_calculate"} <= set(names)
    for tool in tools:
        assert set(tool) == {"name", "category", "description", "permissions", "aliases", "origin"}
        assert tool["description"]


def test_people_get_an_aligned_table(here):
    lines = here("tool", "list").out.splitlines()
    assert lines[0].split() == ["NAME", "ORIGIN", "NEEDS", "DESCRIPTION"]
    column = lines[0].index("ORIGIN")
    assert all(line[column:].startswith(("builtin", "adapter")) for line in lines[1:])


@pytest.mark.parametrize(
    ("flags", "there", "absent"),
    [
        (["--permission", "read"], "csv_parse", "math_calculate"),
        (["--permission", "none"], "math_calculate", "csv_parse"),
        (["--category", "builtin"], "csv_parse", "webhook_call"),
        (["--category", "adapter"], "webhook_call", "csv_parse"),
        (["--dev"], "debug_console", None),
        ([], "bash", "debug_console"),
    ],
)
def test_the_list_can_be_narrowed(here, flags, there, absent):
    names = [tool["name"] for tool in here("tool", "list", "--json", *flags).json["tools"]]
    assert there in names
    assert absent not in names


def test_nothing_that_matches_is_no_error(here):
    ended = here("tool", "list", "--category", "dev")
    assert (ended.code, ended.out) == (0, "No tool matches.\n")


def test_an_unknown_category_is_a_usage_error(here):
    ended = here("tool", "list", "--category", "bultin")
    assert ended.code == 2
    assert "builtin" in ended.err


def test_a_configuration_chooses_the_tools(here, workspace):
    (workspace / "mine.yaml").write_text("tools: [{name: 'math_*'}]\n")
    names = [tool["name"] for tool in here("tool", "list", "--json", "--config", "mine.yaml").json["tools"]]
    assert names == ["ask_question", "converse", "math_calculate", "task", "task_completion"]


def test_a_configuration_that_nobody_named_is_not_loaded(here, workspace):
    (workspace / "forge.yaml").write_text("tools: []\n")
    assert "math_calculate" in here("tool", "list").out


def test_listing_loads_nothing_heavy(workspace):
    code = f"""
import sys
from forge.cli import perform as run
assert run(["tool", "list", "--json"]) == 0
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=150)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


def test_the_log_of_a_command_prints_errors_once(workspace):
    code = """
import logging
from forge.cli import perform as run
assert run(["tool", "list", "--json"]) == 0
logging.getLogger("forge.somewhere").warning("only %s", "a warning")
logging.getLogger("forge.somewhere").error("gone %s", "wrong")
logging.getLogger("forge.somewhere").error("gone %s", "wrong")
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=150)
    assert (done.returncode, done.stderr) == (0, "forge: gone wrong\n")


def test_with_debug_all_of_the_log_is_shown(workspace):
    code = """
import logging
from forge.cli import perform as run
assert run(["tool", "list", "--json", "--debug"]) == 0
logging.getLogger("forge.somewhere").warning("only %s", "a warning")
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=150)
    assert done.returncode == 0
    assert done.stderr.endswith("ms forge.somewhere: only a warning\n")


def listed(here, workspace, text):
    (workspace / "mine.yaml").write_text(text)
    return [tool["name"] for tool in here("tool", "list", "--json", "--config", "mine.yaml").json["tools"]]


def test_what_a_section_turns_on_brings_its_tools_beside_a_list_of_tools(here, workspace):
    assert "memory_search" not in listed(here, workspace, "tools: [math_calculate]\nmemory: {enabled: false}\n")
    with_memory = listed(here, workspace, "tools: [math_calculate]\nmemory: {enabled: true}\n")
    assert {"memory_get", "memory_search", "memory_write"} < {*with_memory}
    assert "csv_parse" not in with_memory
    assert "read_skill" not in listed(here, workspace, "tools: [math_calculate]\n")
    assert "read_skill" in listed(here, workspace, "tools: [math_calculate]\nskills: {paths: [skills]}\n")


def test_the_task_tool_is_listed_described_and_called_as_an_agent_has_it(here, workspace):
    assert Task.__doc__ == DESCRIPTION
    assert "task" in listed(here, workspace, "tools: [math_calculate]\n")
    described = here("tool", "describe", "task", "--json").json
    assert described["description"] == DESCRIPTION
    assert described["parameters"] == Task.spec.parameters
    assert described["permissions"] == ["execute"]
    arguments = '{"description": "count the words", "prompt": "Count them."}'
    called = here("tool", "call", "task", arguments, "--yes")
    assert called.code == 0
    assert called.json["data"]["error"] == "LLM_ASSIST_REQUIRED"
    assert here("tool", "call", "task", arguments).code == 1  # nobody was there to allow it


def test_the_task_tool_uses_the_model_that_is_configured_and_takes_settings(here, workspace):
    model = script(workspace, "Seven words.")
    (workspace / "mine.yaml").write_text(
        f"tools: [{{name: task, config: {{timeout: 9}}}}]\nagent: {{model: '{model}'}}\n"
    )
    arguments = '{"description": "count the words", "prompt": "Count them."}'
    called = here("tool", "call", "task", arguments, "--yes", "--config", "mine.yaml")
    assert "Seven words." in called.json["for_llm"]
    assert "9 s" in here("tool", "describe", "task", "--config", "mine.yaml").out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("csv_parse", "exists, but this project does not list it"),
        ("schedule_set", "exists, but this project does not list it"),
        ("memory_get", "exists, but this project does not turn on memory"),
        ("debug_console", "it is for development"),
        ("csv_pars", "there is no tool 'csv_pars'"),
    ],
)
def test_a_tool_that_the_project_leaves_out_is_told_as_such(here, workspace, name, words):
    (workspace / "mine.yaml").write_text("tools: [math_calculate]\n")
    for verb in ("describe", "call"):
        ended = here("tool", verb, name, "--config", "mine.yaml")
        assert ended.code == 2
        assert words in ended.err
    assert here("tool", "describe", "math_calculate", "--config", "mine.yaml").code == 0
    assert here("tool", "describe", "debug_console", "--config", "mine.yaml", "--dev").code == 0


@pytest.mark.parametrize(("pattern", "matches"), [("grpe_*", False), ("grep_*", True)])
def test_a_pattern_that_no_tool_matches_is_told(here, workspace, pattern, matches):
    (workspace / "forge.yaml").write_text(f"tools: [file_read, '{pattern}']\n")
    ended = here("tool", "list", "--config", "forge.yaml")
    assert ended.code == 0
    told = f"forge.yaml: tools[1].name: no tool matches '{pattern}'"
    assert (told in ended.err) is not matches
    found = next(
        one for one in here("doctor", "--config", "forge.yaml", "--json").json["checks"] if one["check"] == "tools"
    )
    assert found["status"] == ("ok" if matches else "warning")


def test_the_costs_of_definitions_are_shown_with_what_is_sent(here):
    listed = here("tool", "list", "--tokens", "--json").json
    tools = {one["name"]: one for one in listed["tools"]}
    assert {name for name, one in tools.items() if one["sent"]} == CORE
    assert all(one["tokens"] > 20 for one in tools.values())
    assert listed["tokens"] == {
        "sent": sum(one["tokens"] for one in tools.values() if one["sent"]),
        "deferred": sum(one["tokens"] for one in tools.values() if not one["sent"]),
    }
    lines = here("tool", "list", "--tokens").out.splitlines()
    assert lines[0].split() == ["NAME", "TOKENS", "SENT", "ORIGIN", "NEEDS", "DESCRIPTION"]
    assert [line.split()[1:3] for line in lines if line.startswith("bash ")] == [[str(tools["bash"]["tokens"]), "yes"]]
    assert lines[-2] == f"In every request: {len(CORE)} definitions, {listed['tokens']['sent']:,} tokens."
    assert lines[-1].startswith(f"Found with tool_search: {len(tools) - len(CORE)} definitions, ")


def test_what_a_project_lists_or_sends_in_code_mode_is_what_costs(here, workspace):
    (workspace / "forge.yaml").write_text("tools: [math_calculate, bash]\n")
    assert here("trust", "--yes").code == 0
    sent = {one["name"]: one["sent"] for one in here("tool", "list", "--tokens", "--json").json["tools"]}
    assert sent["math_calculate"] is sent["bash"] is sent["task_completion"] is True
    (workspace / "forge.yaml").write_text("agent: {code_mode: true}\n")
    assert here("trust", "--yes").code == 0
    sent = {one["name"]: one["sent"] for one in here("tool", "list", "--tokens", "--json").json["tools"]}
    assert sent["run_code"] is sent["tool_search"] is True
    assert sent["bash"] is False


def test_a_project_in_code_mode_has_run_code_in_every_command(here, workspace):
    assert "run_code" not in here("tool", "list").out
    assert here("tool", "describe", "run_code").code == 2
    (workspace / "forge.yaml").write_text("agent: {code_mode: true}\n")
    here("trust", "--yes")
    assert "\nrun_code " in here("tool", "list").out
    described = here("tool", "describe", "run_code", "--json")
    assert described.json["parameters"]["required"] == ["code"]
    assert here("tool", "call", "run_code", "code=1 + 1").json["for_llm"] == "2"
