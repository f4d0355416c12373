"""The contract every built-in tool keeps, whatever it does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest

from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.tools import GROUPS, built_ins, register_all
from forge.tools.conversation import CONVERSATION

EXAMPLES: dict[str, dict[str, Any]] = {
    "ask_question": {"question": "Which colour?"},
    "bash": {"command": "echo hi"},
    "bash_jobs": {},
    "bash_kill": {"id": "job_1"},
    "bash_output": {"id": "job_1"},
    "cli_execute": {"binary": "cat", "args": ["here.txt"]},
    "converse": {"message": "Hello."},
    "csv_parse": {"data": "a,b\n1,2"},
    "datetime_now": {},
    "debug_console": {},
    "directory_list": {},
    "directory_tree": {},
    "file_create": {"filename": "report.md", "content": "# Done"},
    "file_edit": {"path": "here.txt", "old_text": "one", "new_text": "two"},
    "file_patch": {"operations": [{"action": "add", "path": "new.txt", "content": "new"}]},
    "file_read": {"path": "here.txt"},
    "file_write": {"path": "written.txt", "content": "written"},
    "glob_search": {"pattern": "*.txt"},
    "grep_search": {"pattern": "one"},
    "http_request": {"method": "GET", "url": "http://127.0.0.1:9/"},
    "json_parse": {"data": "{}"},
    "local_file_browser": {"path": "here.txt"},
    "local_shell": {"command": "echo hi"},
    "math_calculate": {"expression": "1 + 1"},
    "mcp_call": {"server": "http://127.0.0.1:9/", "tool_name": "say"},
    "memory_get": {"path": "MEMORY.md"},
    "memory_search": {"query": "colour"},
    "memory_write": {"content": "The person likes blue."},
    "openapi_call": {"spec": "http://127.0.0.1:9/", "operation_id": "say"},
    "read_skill": {"name": "code-agent"},
    "schedule_delete": {"id": "tidy-up"},
    "schedule_history": {},
    "schedule_list": {},
    "schedule_set": {"cron": "@daily", "task": "Tidy up."},
    "send_message": {"content": "Hello."},
    "task_completion": {"result": "Done."},
    "test_runner": {"framework": "unittest"},
    "todo_read": {},
    "todo_write": {"items": [{"content": "Rest."}]},
    "tool_search": {"query": "clock"},
    "undo": {},
    "uuid_generate": {},
    "run_code": {"code": "1 + 1"},
    "web_fetch": {"url": "http://127.0.0.1:9/"},
    "web_search": {"query": "forge"},
    "webhook_call": {"url": "http://127.0.0.1:9/", "payload": {"text": "Hello."}},
}
ELSEWHERE = {"bash_kill", "bash_output", "http_request", "mcp_call", "memory_get", "openapi_call"}
ELSEWHERE |= {"schedule_delete", "web_fetch", "web_search", "webhook_call"}
"""They need a job, a note, a schedule or a server, and their own tests have one."""
DEV = {"debug_console", "local_file_browser", "local_shell", "test_runner"}
ADAPTERS = {"mcp_call", "openapi_call", "webhook_call"}
READERS = "directory_list directory_tree file_read glob_search grep_search todo_read todo_write".split()
READERS += "memory_get memory_search read_skill schedule_history schedule_list".split()
WRITERS = "file_create file_edit file_patch file_write memory_write schedule_delete schedule_set undo".split()
RUNNERS = "bash bash_jobs bash_kill bash_output cli_execute".split()
ASKERS = "http_request openapi_call web_fetch web_search webhook_call".split()
PERMISSIONS = {  # of the tools that need any
    **{key: {"read"} for key in READERS},
    **{key: {"write"} for key in WRITERS},
    **{key: {"execute"} for key in [*RUNNERS, *DEV]},
    **{key: {"network"} for key in ASKERS},
    "mcp_call": {"execute", "network"},
}

NAMES = list(EXAMPLES)
UNREADABLE = ["", "{", "nope", "[]", "null", "5", '"text"', '{"a": NaN}', '{"a": 1,}', "[" * 100_000, '{"a":' * 100_000]
STRANGE = {
    "blank": " ",
    "a NUL byte": "a\0b",
    "half a surrogate pair": "\ud800",
    "right to left": "\u202egnp.exe",
    "an emoji of many parts": "👩‍👩‍👧‍👦",
    "a combining pile": "e" + "\u0301" * 1_000,
    "a long word": "x" * 200_000,
    "many brackets": "[" * 200_000,
    "many lines": "\n" * 200_000,
    "a parent path": "../../etc/passwd",
    "a format": "%s%n{0}{__class__}",
    "a script": "<script>alert(1)</script>",
    "a number": "9" * 5_000,
}


def some_are_slow(text):
    """Long ones, for forty tools: a minute of their own."""
    return pytest.param(text, marks=pytest.mark.slow) if len(text) > 10_000 else text


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_every_built_in_has_an_example_here(shared_bench):
    assert sorted(shared_bench.registry) == sorted(EXAMPLES)


def test_the_tools_of_the_code_agent_group_are_registered_only_where_they_are_asked_for():
    registry = ToolRegistry()
    register_all(registry)
    assert "file_create" in registry
    assert sorted(registry.group("code-agent")) == ["file_create"]
    everything = ToolRegistry()
    everything.add(*built_ins(everything))
    groups = {group: sorted(everything.group(group)) for group in GROUPS}
    assert groups["search"] == ["directory_list", "directory_tree", "glob_search", "grep_search"]
    assert groups["read"] == sorted([*groups["search"], "file_read"])
    assert groups["write"] == ["file_edit", "file_patch", "file_write"]
    assert groups["code-agent"] == sorted(
        [*groups["read"], *groups["write"], "file_create", "todo_read", "todo_write", "undo"]
    )


@pytest.mark.parametrize(
    ("alias", "canonical"),
    [
        *(("read", "file_read"), ("read_file", "file_read"), ("write", "file_write"), ("write_file", "file_write")),
        *(("edit", "file_edit"), ("edit_file", "file_edit"), ("patch", "file_patch"), ("apply_patch", "file_patch")),
        *(("glob", "glob_search"), ("grep", "grep_search"), ("tree", "directory_tree"), ("list", "directory_list")),
        *(("ls", "directory_list"), ("list_files", "directory_list"), ("message", "send_message")),
        *(("todowrite", "todo_write"), ("todoread", "todo_read"), ("webfetch", "web_fetch")),
        *(("shell", "bash"), ("execute_command", "bash")),
    ],
)
def test_an_alias_finds_the_tool_and_is_not_shown_to_models(shared_bench, alias, canonical):
    assert shared_bench.registry.find(alias) is shared_bench.registry[canonical]
    shown = [one["function"]["name"] for one in shared_bench.registry.definitions()]
    assert alias not in shown
    assert canonical in shown


def test_its_example_works(bench, name):
    if name in ELSEWHERE:
        return
    result = bench.call(name, **EXAMPLES[name])
    assert result.success, result.for_llm
    assert result.for_llm


def test_it_is_described_in_a_few_words(shared_bench, name):
    spec = shared_bench.registry[name].spec
    assert 8 <= len(re.findall(r"\w+", spec.description)) <= 40
    assert spec.description[0].isupper()
    assert spec.description.endswith(".")
    assert "\n" not in spec.description


def test_its_schema_is_valid_and_closed(shared_bench, name):
    schema = shared_bench.registry[name].spec.parameters
    jsonschema_rs.meta.validate(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert jsonschema_rs.is_valid(schema, EXAMPLES[name])
    json.dumps(schema)


def test_its_category_permissions_and_limits_are_declared(shared_bench, name):
    spec = shared_bench.registry[name].spec
    assert spec.category is (
        Category.DEV if name in DEV else Category.ADAPTER if name in ADAPTERS else Category.BUILTIN
    )
    assert spec.permissions == {Permission(one) for one in PERMISSIONS.get(name, ())}
    assert spec.groups <= {*GROUPS, "default"}
    assert spec.timeout
    assert re.match(r"forge\.(tools|mcp|openapi|skills|memory|schedules)\.", spec.origin)
    assert spec.ends_turn == (name in CONVERSATION)


def test_its_target_exists(shared_bench, name):
    spec = shared_bench.registry[name].spec
    assert set(spec.targets) <= set(spec.parameters["properties"])


def test_an_unknown_argument_is_explained(shared_bench, name):
    result = shared_bench.call(name, **EXAMPLES[name], no_such_argument=1)
    assert result.failure is not None
    assert result.failure.kind == "validation_error"
    assert "no_such_argument" in result.for_llm


def test_a_missing_argument_is_named(shared_bench, name):
    for required in shared_bench.registry[name].spec.parameters.get("required", ()):
        result = shared_bench.call(name, **{key: value for key, value in EXAMPLES[name].items() if key != required})
        assert result.failure is not None
        assert result.failure.kind == "validation_error"
        assert required in result.failure.message


@pytest.mark.matrix
@pytest.mark.parametrize(
    "wrong", [{"x": {"y": 1}}, [[1]], [{"x": 1}]], ids=["object", "nested list", "list of objects"]
)
def test_a_value_of_the_wrong_type_is_named(shared_bench, name, wrong):
    schema = shared_bench.registry[name].spec.parameters
    for key in schema["properties"]:
        if jsonschema_rs.is_valid(schema, {**EXAMPLES[name], key: wrong}):
            continue  # it takes any JSON
        result = shared_bench.call(name, **{**EXAMPLES[name], key: wrong})
        assert result.failure is not None, key
        assert result.failure.kind == "validation_error"
        assert key in result.failure.message


@pytest.mark.matrix
@pytest.mark.parametrize("text", [some_are_slow(text) for text in UNREADABLE], ids=lambda text: repr(text[:12]))
def test_arguments_that_cannot_be_read_are_an_error(shared_bench, name, text):
    result = shared_bench.send(name, text)
    if text == "" and "required" not in shared_bench.registry[name].spec.parameters:
        return  # no text at all is a call without arguments
    assert result.failure is not None
    assert result.failure.kind == "validation_error"


@pytest.mark.matrix
@pytest.mark.parametrize("text", [some_are_slow(text) for text in STRANGE.values()], ids=STRANGE.keys())
def test_strange_text_is_answered_and_harms_nobody(shared_bench, name, text):
    for key, schema in shared_bench.registry[name].spec.parameters["properties"].items():
        if schema.get("type") == "string":
            assert_told(shared_bench.call(name, **{**EXAMPLES[name], key: text}))


@pytest.mark.matrix
@pytest.mark.parametrize("number", [-1, 0, 2**63, 10**400, -(10**4_000), 1e308, 0.5])
def test_strange_numbers_are_answered_and_harm_nobody(shared_bench, name, number):
    for key, schema in shared_bench.registry[name].spec.parameters["properties"].items():
        if schema.get("type") == "integer":
            assert_told(shared_bench.call(name, **{**EXAMPLES[name], key: number}))


def test_listing_the_tools_imports_nothing_heavy():
    heavy = ["asyncio", "pydantic", "pydantic_core", "jsonschema_rs", "docstring_parser", "ctypes", "zoneinfo", "uuid"]
    code = (
        "import sys; from forge.core.registry import ToolRegistry; from forge.tools import register_all\n"
        "registry = ToolRegistry(); register_all(registry); registry.summaries()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_groups_contain_each_other():
    assert GROUPS["search"] > GROUPS["read"] > GROUPS["code-agent"]
    assert GROUPS["write"] > GROUPS["code-agent"]
    assert "write" not in GROUPS["read"]


def test_registries_do_not_share_what_tools_remember():
    one, two = ToolRegistry(), ToolRegistry()
    register_all(one)
    register_all(two)
    assert one["send_message"] is not two["send_message"]
    assert one["tool_search"] is not two["tool_search"]


def assert_told(result: ToolResult) -> None:
    """One result, with words for the model, that survives the way to a file and to a provider."""
    assert isinstance(result, ToolResult)
    assert result.for_llm
    if result.failure is not None:
        assert result.failure.kind != "system_error", result.for_llm[:300]
        assert len(result.for_llm) < 3_000
    json.dumps(result.to_dict()).encode()
