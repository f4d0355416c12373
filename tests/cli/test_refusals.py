"""What a command refuses is said in three parts: what was tried, what went wrong, what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forge.core.errors import ToolError
from forge.schedules.schedule_rows import MOST_SCHEDULES
from forge.schedules.store import _check_room
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
