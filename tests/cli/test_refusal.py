"""What a command refuses is said in three parts: what was tried, what went wrong, what to do next."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from forge.core.errors import ToolError
from forge.schedules.store import _check_room
from forge.schedules.tables import MOST_SCHEDULES
from tests.cli.scripts import script

REFUSED: list[tuple[list[str], str, str]] = [
    (["audit", "--file", "no.ndjson"], "cannot show the audit log 'no.ndjson': there is no such", "omit --file"),
    (["audit", "--follow", "--summary"], "cannot be combined", "Remove one of them."),
    (["undo", "--call", "1", "--turn", "2"], "cannot be combined", "Remove one of them."),
    (["run", " "], "The prompt is empty.", 'forge run "TASK"'),
    (["session", "show", "x"], "there is no session 'x': none is stored", "forge run creates one"),
    (["tool", "call", "nothing_like_it"], "there is no tool 'nothing_like_it'", "forge tool list"),
    (["tool", "new", "a__b"], "'a__b' cannot be the name of a tool", "Write a letter"),
    (["mcp", "approve", "none"], "there is no MCP server 'none'", "name another file with --config"),
    (["skill", "new", "A B"], "cannot be the name of a skill", "Use up to 64"),
    (["init", "--name", "!"], "cannot be the id of an agent", "Write lower-case letters"),
    (
        ["serve", "--http", "--host", "0.0.0.0"],
        "can be reached from other machines, but there is no token",
        "--token-env NAME",
    ),
    (["session", "abc"], "There is no command 'abc'", "`forge run --session abc` to resume it"),
    (["run", "go", "--modle", "x"], "There is no option --modle", "Did you mean --model?"),
    (["memory", "search", "x", "--dev"], "There is no option --dev", "no effect on `forge memory search`"),
    (["serve", "--http", "--token-env", "NOT_SET_AT_ALL"], "holds no token", "plain characters or more"),
]


@pytest.mark.parametrize(("arguments", "wrong", "next_step"), REFUSED, ids=lambda one: str(one)[:40])
def test_a_refusal_says_what_to_do_next(here: Any, arguments: list[str], wrong: str, next_step: str) -> None:
    ended = here(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert wrong in ended.err
    assert next_step in ended.err


def test_a_prompt_that_is_not_there_or_too_long_is_refused_with_a_way(there: Any) -> None:
    assert "echo 'TASK' | forge run -" in there("run", "-", given=b" \n").err
    long = there("run", "-", given=b"x" * 20_000_000)
    assert "Put the long part into a file of the workspace" in long.err


def test_a_log_that_cannot_be_written_is_refused_with_a_way(here: Any, workspace: Path) -> None:
    model = script(workspace, "ok", "ok")
    refused = here("run", "go", "--model", model, "--audit", "no/such/place.ndjson")
    assert refused.code == 2
    assert "cannot write the audit log" in refused.err
    assert "--no-audit" in refused.err
    assert here("run", "go", "--model", model, "--audit", "log.ndjson").code == 0


def test_what_cannot_be_remembered_is_refused_with_a_way(here: Any, workspace: Path) -> None:
    from forge.agent.session import SessionStore

    with SessionStore.of(workspace) as store:
        store.open("an empty one")
    ended = here("session", "remember", "an empty one", "--model", script(workspace, "ok"))
    assert ended.code == 2
    assert "cannot remember session 'an empty one'" in ended.err
    assert "forge session show 'an empty one'" in ended.err


def test_a_schedule_too_many_is_refused_with_a_way() -> None:
    with pytest.raises(ToolError, match="no schedule can be added") as caught:
        _check_room(MOST_SCHEDULES)
    assert "schedule_delete" in caught.value.suggestion
    _check_room(MOST_SCHEDULES - 1)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("agent: {model: x\ntools: []\n", "Close the brace { that line 1 opens."),
        ("tools: [{name: a}\n", "Close the bracket [ that line 1 opens."),
        ("agent:\n  model: 'x\n", "Close the quote that line 2 opens."),
        ("permissions: {rules: [*]}\n", "Quote a value that begins with *."),
        ("agent: model: x\n", "Quote a value that contains a colon and a space"),
        ("agent: @x\n", "Quote a value that begins with @"),
        ("agent:\n   model: x\n  limits: 3\n", "Check the indentation"),
    ],
)
def test_the_hint_for_text_that_is_no_yaml_fits_the_mistake(here: Any, workspace: Path, text: str, hint: str) -> None:
    (workspace / "broken.yaml").write_text(text)
    ended = here("tool", "list", "--config", "broken.yaml")
    assert ended.code == 2
    assert hint in ended.err


def test_a_port_in_use_is_said_in_plain_words(here: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for command in (["console"], ["serve", "--http"]):
            ended = here(*command, "--port", port)
            assert ended.code == 2
            assert f"cannot listen on 127.0.0.1 port {port}: another program is using the port" in ended.err
            assert "Choose another --port" in ended.err


def test_a_variable_with_a_wrong_value_is_named_with_what_to_do(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TURNS", "abc")
    ended = here("config", "show")
    assert "the environment variable FORGE_TURNS: expected a whole number from 1, got 'abc'" in ended.err
    assert "unset FORGE_TURNS" in ended.err


def test_arguments_of_a_call_that_are_no_json_are_explained_to_a_person(here: Any) -> None:
    ended = here("tool", "call", "csv_parse", "{bad")
    assert ended.code == 1
    assert "not valid JSON" in ended.json["error"]
    assert "in single quotes: forge tool call csv_parse '{" in ended.json["suggestion"]
