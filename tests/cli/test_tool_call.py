"""`forge tool call NAME`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forge.cli.running.call_tool import parse_pairs
from forge.core.errors import ToolError
from forge.core.spec import ToolSpec

WIRE = {"id", "name", "success", "is_error", "for_llm", "silent", "async", "title", "data", "attachments", "error"}


def test_a_call_prints_its_result_on_one_line(here):
    ended = here("tool", "call", "math_calculate", '{"expression": "2^10"}')
    assert ended.code == 0
    assert ended.out.count("\n") == 1
    assert set(ended.json) == WIRE
    assert ended.json["for_llm"] == "1024"
    assert ended.err == ""


def test_without_arguments_there_are_none(here):
    assert here("tool", "call", "uuid_generate").code == 0


@pytest.mark.parametrize("broken", ['{"expression"', "[1]", '{"expression": 5, "x": 1}', "{}", "NaN"])
def test_a_call_that_fails_validation_is_a_result(here, broken):
    ended = here("tool", "call", "math_calculate", broken)
    assert ended.code == 1
    assert ended.json["error_type"] == "validation_error"
    assert ended.json["suggestion"]
    assert ended.err == ""


def test_an_unknown_tool_is_a_usage_error(here, workspace):
    ended = here("tool", "call", "math_calculat", "{}")
    assert (ended.code, ended.out) == (2, "")
    assert "Did you mean 'math_calculate'?" in ended.err
    assert not (workspace / ".forge").exists()


def test_arguments_come_from_the_standard_input(there):
    ended = there("tool", "call", "math_calculate", "-", given='\ufeff{"expression": "6 * 7"}\n'.encode())
    assert ended.json["for_llm"] == "42"


@pytest.mark.parametrize("given", [b"", b" \n"])
def test_an_empty_input_means_no_arguments(there, given):
    ended = there("tool", "call", "math_calculate", "-", given=given)
    assert ended.code == 1
    assert ended.json["error"] == "expression: required, but missing"


def test_an_input_that_is_no_text_is_a_result(there):
    ended = there("tool", "call", "converse", "-", given=b'{"message": "\xff"}')
    assert ended.code == 1
    assert "not UTF-8" in ended.json["error"]


def test_text_of_every_script_comes_back_whatever_the_locale(there):
    text = "naïve — 漢字 🙂 \u202e"
    for locale in ({"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        ended = there("tool", "call", "converse", "-", given=json.dumps({"message": text}).encode(), **locale)
        assert ended.json["for_llm"] == text


def test_what_a_rule_asks_is_refused_where_nobody_is(here, workspace):
    _csv(workspace)
    ended = here("tool", "call", "csv_parse", '{"path": "t.csv"}', "--policy", "ask.rules")
    assert ended.code == 1
    assert ended.json["error_type"] == "permission_error"
    assert "--yes" in ended.json["suggestion"]
    assert "allow read" in ended.json["suggestion"]


def test_yes_answers_what_asks(here, workspace):
    _csv(workspace)
    ended = here("tool", "call", "csv_parse", '{"path": "t.csv"}', "--policy", "ask.rules", "--yes")
    assert ended.json["data"]["records"] == [{"a": "1"}]


def test_yes_does_not_answer_what_is_denied(here, workspace):
    _csv(workspace)
    (workspace / "deny.rules").write_text("deny read\n")
    ended = here("tool", "call", "csv_parse", '{"path": "t.csv"}', "--policy", "deny.rules", "--yes")
    assert ended.code == 1
    assert "deny read" in ended.json["error"]


def test_a_policy_cannot_loosen_what_the_project_denies(here, workspace):
    _csv(workspace)
    (workspace / "forge.yaml").write_text("permissions: {rules: [deny read t.csv]}\n")
    (workspace / "allow.rules").write_text("allow read\n")
    call = ("tool", "call", "csv_parse", '{"path": "t.csv"}', "--policy", "allow.rules")
    assert here(*call, "--config", "forge.yaml").code == 1
    assert here(*call).code == 0


def test_a_dry_run_only_says_what_would_happen(here, workspace):
    (workspace / "c.yaml").write_text("tools: [{name: uuid_generate, config: {permissions: [execute]}}]\n")
    call = ("tool", "call", "uuid_generate", "--config", "c.yaml")
    assert here(*call).json["error_type"] == "permission_error"
    dry = here(*call, "--dry-run").json
    assert dry["data"]["dry_run"] is True
    assert "Would call uuid_generate" in dry["for_llm"]
    assert "uuids" in here(*call, "--yes").json["data"]


def test_a_recorded_call_can_be_replayed(here):
    call = ("tool", "call", "uuid_generate", '{"count": 1}')
    first = here(*call, "--record", "calls.ndjson").json
    again = here(*call, "--replay", "calls.ndjson").json
    assert again["for_llm"] == first["for_llm"]
    other = here("tool", "call", "uuid_generate", '{"count": 2}', "--replay", "calls.ndjson")
    assert (other.code, other.json["error_type"]) == (1, "not_found")


@pytest.mark.parametrize("flag", ["--replay", "--config", "--policy", "--workspace"])
def test_a_file_that_is_not_there_is_a_usage_error(here, flag):
    ended = here("tool", "call", "uuid_generate", flag, "no/such")
    assert (ended.code, ended.out) == (2, "")
    assert "no/such" in ended.err


@pytest.mark.parametrize("flag", ["--record", "--audit"])
def test_a_file_that_cannot_be_written_is_a_usage_error(here, flag):
    ended = here("tool", "call", "uuid_generate", flag, "no/such/file")
    assert (ended.code, ended.out) == (2, "")
    assert "no/such/file" in ended.err


def test_a_broken_recording_is_a_usage_error(here, workspace):
    (workspace / "calls.ndjson").write_bytes(b"\xff\n")
    assert here("tool", "call", "uuid_generate", "--replay", "calls.ndjson").code == 2


def test_every_call_is_in_the_audit_log_of_the_workspace(here, workspace):
    here("tool", "call", "uuid_generate", "--session", "s1")
    log = workspace / ".forge" / "audit.ndjson"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["event"] for event in events] == ["tool_call_start", "tool_call_end"]
    assert {event["session"] for event in events} == {"s1"}
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_audit_log_may_be_elsewhere_or_not_at_all(here, workspace):
    here("tool", "call", "uuid_generate", "--audit", "log.ndjson")
    assert (workspace / "log.ndjson").read_text().count("\n") == 2
    here("tool", "call", "uuid_generate", "--no-audit")
    assert not (workspace / ".forge").exists()


def test_a_workspace_without_room_for_the_log_is_said_and_the_call_goes_on(here, workspace):
    (workspace / ".forge").write_text("a file in its place")
    ended = here("tool", "call", "math_calculate", '{"expression": "1"}')
    assert ended.code == 0
    assert ended.json["for_llm"] == "1"
    assert ended.err.count("no audit log") == 1


def test_the_cap_of_the_environment_can_only_be_narrowed(here, workspace, monkeypatch):
    inside = workspace / "inside"
    inside.mkdir()
    (inside / "t.csv").write_text("a\n1\n")
    monkeypatch.setenv("AGENT_WORKSPACE_ROOT", str(workspace))
    call = ("tool", "call", "csv_parse", '{"path": "t.csv"}', "--no-audit", "--workspace")
    assert here(*call, "inside").code == 0
    ended = here(*call, str(workspace.parent))
    assert (ended.code, ended.out) == (2, "")
    assert "AGENT_WORKSPACE_ROOT" in ended.err


def test_a_named_secret_is_masked_in_results_and_in_the_log(here, workspace, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    (workspace / "c.yaml").write_text("secrets: [MY_TOKEN]\n")
    ended = here("tool", "call", "converse", '{"message": "it is hunter2-hunter2"}', "--config", "c.yaml")
    assert "hunter2" not in ended.out
    assert "hunter2" not in (workspace / ".forge" / "audit.ndjson").read_text()
    assert "hunter2" in here("tool", "call", "converse", '{"message": "it is hunter2-hunter2"}').out


def test_a_huge_result_is_cut_and_kept(here, workspace):
    ended = here("tool", "call", "converse", json.dumps({"message": "line\n" * 20_000}))
    assert len(ended.json["for_llm"]) < 60_000
    assert "[cut:" in ended.json["for_llm"]
    assert list((workspace / ".forge" / "spill").iterdir())


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201])
def test_a_session_has_a_printable_name(here, name):
    assert here("tool", "call", "uuid_generate", "--session", name).code == 2
    assert here("tool", "call", "uuid_generate", "--session", "été 1").code == 0


def test_a_stream_takes_no_arguments(here):
    ended = here("tool", "call", "-", "{}")
    assert (ended.code, ended.out) == (2, "")


def _csv(workspace: Path) -> None:
    (workspace / "t.csv").write_text("a\n1\n")
    (workspace / "ask.rules").write_text("ask read\n")


def test_a_stream_is_told_which_tools_exist_but_are_left_out(there, workspace):
    (workspace / "forge.yaml").write_text("tools: [math_calculate]\n")
    lines = [{"id": 1, "name": "bash"}, {"id": 2, "name": "bahs"}, {"id": 3, "name": "math_calculate"}]
    lines[2]["arguments"] = {"expression": "6 * 7"}
    given = "\n".join(json.dumps(line) for line in lines).encode()
    ended = there("tool", "call", "--config", "forge.yaml", "-", given=given)
    left_out, unknown, listed = map(json.loads, ended.out.splitlines())
    assert left_out["error"] == "the tool 'bash' exists, but this project does not list it"
    assert "- name: bash" in left_out["suggestion"]
    assert (left_out["id"], left_out["error_type"]) == (1, "not_found")
    assert unknown["error"] == "no such tool"
    assert listed["for_llm"] == "42"


@pytest.mark.parametrize(
    ("words", "llm"),
    [
        (("math_calculate", "expression=6 * 7"), "42"),
        (("converse", "message=a=b"), "a=b"),
        (("json_parse", 'data={"a": [1]}', "query=a[0]"), "1"),
        (("csv_parse", "data=a,b\n1,2", "delimiter=,"), "1"),
    ],
)
def test_arguments_may_be_typed_as_pairs(here, words, llm):
    ended = here("tool", "call", *words)
    assert ended.code == 0
    assert llm in ended.json["for_llm"]


def test_a_value_may_be_the_text_of_a_file(here, workspace):
    (workspace / "notes.txt").write_text("to be\n")
    (workspace / "list.json").write_text('["a.txt", "b.txt"]')
    assert here("tool", "call", "converse", "message=@notes.txt").json["for_llm"] == "to be\n"
    assert here("tool", "call", "converse", "message=@@notes.txt").json["for_llm"] == "@notes.txt"
    assert here("tool", "call", "converse", "message=a@b").json["for_llm"] == "a@b"
    (workspace / "a.txt").write_text("first")
    (workspace / "b.txt").write_text("second")
    assert "second" in here("tool", "call", "file_read", "path=@list.json").json["for_llm"]


def test_a_file_outside_or_hidden_by_a_rule_is_no_value(here, workspace, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "secret.txt"
    outside.write_text("hidden words")
    (workspace / "link.txt").symlink_to(outside)
    (workspace / ".env").write_text("KEY=1")
    (workspace / "image.png").write_bytes(b"\x89PNG\x00\x00")
    (workspace / "p.rules").write_text("deny read .env\n")
    for path, why in {
        str(outside): "outside",
        "link.txt": "outside",
        ".env": "denied",
        "image.png": "binary",
        "gone.txt": "exist",
        "": "missing",
    }.items():
        ended = here("tool", "call", "converse", f"message=@{path}", "--policy", "p.rules")
        assert (ended.code, ended.json["success"]) == (1, False), path
        assert why in ended.json["error"], ended.json
        assert f"message=@{f'@{path}'[:60]}" in ended.json["suggestion"]
        assert "hidden words" not in ended.json["for_llm"]


def test_values_of_pairs_follow_the_schema():
    schema = {
        "properties": {
            "text": {"type": "string"},
            "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "ratio": {"type": "number"},
            "loud": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "array", "items": {"$ref": "#/$defs/size"}},
            "more": {"type": "object"},
            "level": {"enum": [1, 2, "high"]},
        },
        "$defs": {"size": {"type": "integer"}},
    }
    spec = ToolSpec(name="t", description="", parameters=schema)
    words = ["text=5", "count=3", "ratio=2", "loud=True", "tags=a", "tags=1", "sizes=1", "sizes=2", "level=high"]
    assert parse_pairs([*words, 'more={"a": null}'], spec) == {
        "text": "5",
        "count": 3,
        "ratio": 2,
        "loud": True,
        "tags": ["a", "1"],
        "sizes": [1, 2],
        "level": "high",
        "more": {"a": None},
    }
    assert parse_pairs(['tags=["a", "b"]', "level=2", "text=null", "count=many"], spec) == {
        "tags": ["a", "b"],
        "level": 2,
        "text": "null",
        "count": "many",
    }
    with pytest.raises(ToolError, match="text is given 2 times"):
        parse_pairs(["text=a", "text=b"], spec)


def test_an_unknown_name_of_a_pair_is_explained(here):
    ended = here("tool", "call", "math_calculate", "expresion=1")
    assert (ended.code, ended.json["suggestion"]) == (1, "Did you mean 'expression'?")
    assert "has no parameter 'nonsense'" in here("tool", "call", "math_calculate", "nonsense=1").json["error"]


@pytest.mark.parametrize("words", [('{"expression": "1"}', "expression=1"), ("expression=1", "2"), ("one", "two")])
def test_json_and_pairs_are_not_mixed(here, words):
    ended = here("tool", "call", "math_calculate", *words)
    assert ended.code == 2
    assert "either one JSON object, or only name=value pairs" in " ".join(ended.err.split())
    assert here("tool", "call", "math_calculate", words[0].replace("one", '{"expression": "1"}')).code == 0
