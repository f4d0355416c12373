"""A call a line in, a result a line out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from forge.cli.terminal import answer_lines as stream
from forge.cli.terminal.answer_lines import MAX_LINE, MOST_AT_ONCE, answer_lines
from forge.cli.terminal.print_result import as_line
from forge.core.context import Scope, ToolContext
from forge.core.executor import ToolExecutor
from forge.core.registry import ToolRegistry
from forge.core.tool import tool


def line(name: str, id: Any = None, **arguments: Any) -> bytes:
    call = {"name": name, "arguments": arguments, **({} if id is None else {"id": id})}
    return json.dumps(call).encode() + b"\n"


class Wire:
    """What is read and written, and tools that say when they run."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.taken = 0
        self.written: list[dict[str, Any]] = []
        self.running: list[str] = []
        self.most = 0
        self.turns: list[str] = []
        self.open = asyncio.Event()

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        self.taken += 1
        return self.pieces[self.taken - 1] if self.taken <= len(self.pieces) else b""

    async def write(self, content: bytes) -> None:
        assert content.endswith(b"\n")
        assert content.count(b"\n") == 1
        self.written.append(json.loads(content))

    async def answer(self) -> list[dict[str, Any]]:
        await answer_lines(self.executor(), Scope(workspace=Path()), self.read, self.write)
        return self.written

    def executor(self) -> ToolExecutor:
        @tool(permissions={"read"})
        async def look(ctx: ToolContext, what: str = "") -> str:
            """Look."""
            return await self._during(ctx, f"look {what}")

        @tool(permissions={"write"})
        async def change(ctx: ToolContext, what: str = "") -> str:
            """Change."""
            return await self._during(ctx, f"change {what}")

        @tool(permissions={"read"}, parallel=False)
        async def alone(ctx: ToolContext, what: str = "") -> str:
            """Look, alone."""
            return await self._during(ctx, f"alone {what}")

        @tool
        async def wait(what: str = "") -> str:
            """Wait."""
            await self.open.wait()
            return "waited"

        @tool
        def leave() -> str:
            """Leave."""
            raise SystemExit(3)

        return ToolExecutor(ToolRegistry([look, change, alone, wait, leave]), [])

    async def _during(self, ctx: ToolContext, what: str) -> str:
        self.turns.append(ctx.scope.message_id)
        self.running.append(what)
        if not what.startswith("look"):
            assert self.running == [what]
        self.most = max(self.most, len(self.running))
        for _ in range(10):
            await asyncio.sleep(0)
        self.running.remove(what)
        return what


async def test_every_line_is_answered_in_order_with_its_id():
    wire = Wire(*(line("look", id=f"n{n}", what=str(n)) for n in range(200)))
    answers = await wire.answer()
    assert [answer["id"] for answer in answers] == [f"n{n}" for n in range(200)]
    assert [answer["for_llm"] for answer in answers] == [f"look {n}" for n in range(200)]


async def test_reads_run_side_by_side_and_changes_alone():
    calls = [line("look", what="a"), line("look", what="b"), line("change"), line("look", what="c"), line("alone")]
    wire = Wire(b"".join(calls * 3))
    answers = await wire.answer()
    assert all(answer["success"] for answer in answers), answers
    assert wire.most >= 2


async def test_each_line_is_its_own_turn():
    wire = Wire(line("look") * 3)
    await wire.answer()
    assert len(set(wire.turns)) == 3


async def test_an_id_comes_back_as_it_was_sent_and_is_made_where_there_is_none():
    wire = Wire(line("look", id=7) + line("look", id="7") + line("look"))
    first, second, third = await wire.answer()
    assert (first["id"], second["id"]) == (7, "7")
    assert third["id"].startswith("call_")


async def test_lines_arrive_in_any_pieces():
    text = line("look", id=1) + b"\n  \r\n" + line("look", id=2).rstrip()
    wire = Wire(*(text[n : n + 1] for n in range(len(text))))
    assert [answer["id"] for answer in await wire.answer()] == [1, 2]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"nonsense", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"name": "look", "id": "\xff"}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"name": NaN}', "not valid JSON"),
        (b'{"name": "\\ud800", "id": NaN}', "not valid JSON"),
        (b"[1]", "an array, not an object"),
        (b'"look"', "a string, not an object"),
        (b"{}", "name: required, but missing"),
        (b'{"name": 5}', "name: expected string, got integer"),
        (b'{"name": "look", "arguments": [1]}', "arguments: expected object, got array"),
        (b'{"name": "look", "argumnts": {}}', "did you mean 'arguments'?"),
        (b'{"name": "look", "id": {}}', "id: expected string or integer, got object"),
        (b'{"name": "look", "id": true}', "id: expected string or integer, got boolean"),
    ],
)
async def test_a_line_that_cannot_be_understood_gets_an_error_in_its_place(bad, words):
    wire = Wire(line("look", id=1) + bad + b"\n" + line("look", id=3))
    first, second, third = await wire.answer()
    assert (first["id"], third["id"]) == (1, 3)
    assert second["error_type"] == "validation_error"
    assert words in second["error"]
    assert second["data"] == {"line": 2}
    assert len(json.dumps(second)) < 2_000


async def test_the_id_of_a_bad_line_comes_back_where_it_can_be_read():
    wire = Wire(b'{"id": "x", "arguments": {}}\n')
    assert (await wire.answer())[0]["id"] == "x"


async def test_half_a_surrogate_pair_does_not_lose_the_id():
    wire = Wire(b'{"name": "look", "arguments": {"what": "\\ud800"}, "id": "x"}\n')
    answer = (await wire.answer())[0]
    assert (answer["id"], answer["name"]) == ("x", "look")
    assert answer["error"] == "the arguments cannot be written as JSON: half a surrogate pair is not a character"


async def test_arguments_may_be_json_text():
    wire = Wire(json.dumps({"name": "look", "arguments": '{"what": "text"}'}).encode())
    assert (await wire.answer())[0]["for_llm"] == "look text"


async def test_an_unknown_tool_and_one_that_tries_to_leave_do_not_end_the_stream():
    wire = Wire(line("lok") + line("leave") + line("look", id=3))
    unknown, left, last = await wire.answer()
    assert unknown["error_type"] == "not_found"
    assert "look" in unknown["suggestion"]
    assert "SystemExit" in left["error"]
    assert last["success"]


async def test_a_line_too_long_is_dropped_while_it_is_read():
    piece = b"x" * (1024 * 1024)
    wire = Wire(line("look", id=1), *[piece] * (MAX_LINE // len(piece) + 2), b"\n", line("look", id=3))
    first, second, third = await wire.answer()
    assert (first["id"], third["id"]) == (1, 3)
    assert "longer than 8 MiB" in second["error"]


async def test_it_reads_no_further_ahead_than_it_can_answer():
    wire = Wire(*[line("wait")] * 500)
    task = asyncio.create_task(wire.answer())
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert MOST_AT_ONCE <= wire.taken <= MOST_AT_ONCE + 1
    wire.open.set()
    assert len(await task) == 500


async def test_long_lines_count_as_several():
    big = line("wait", what="x" * (3 * 1024 * 1024))
    wire = Wire(*[big] * 40)
    task = asyncio.create_task(wire.answer())
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert wire.taken <= MOST_AT_ONCE // 4 + 1
    wire.open.set()
    assert len(await task) == 40


async def test_it_stops_when_nobody_reads_the_answers():
    wire = Wire(*[line("look")] * 1_000)

    async def broken(content: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await answer_lines(wire.executor(), Scope(workspace=Path()), wire.read, broken)
    assert wire.taken < 1_000


async def test_a_result_that_cannot_be_written_down_is_an_error_in_its_place(monkeypatch):
    real = as_line

    def fails(result: Any, id_: Any, name: str) -> bytes:
        if result.success and id_ == 2:
            raise ValueError("no")
        return real(result, id_, name)

    monkeypatch.setattr(stream, "as_line", fails)
    wire = Wire(line("look", id=1) + line("look", id=2) + line("look", id=3))
    assert [answer["success"] for answer in await wire.answer()] == [True, False, True]


def test_the_command_answers_a_thousand_calls(there):
    given = b"".join(line("math_calculate", id=n, expression=f"{n} + 1") for n in range(1_000))
    ended = there("tool", "call", "-", given=given)
    assert ended.code == 0
    assert [answer["for_llm"] for answer in ended.lines] == [str(n + 1) for n in range(1_000)]
    assert ended.err == ""


def test_failed_lines_and_the_end_of_a_turn_do_not_change_the_exit_code(there):
    given = line("task_completion", result="done") + b"nonsense\n" + line("math_calculate", expression="1")
    ended = there("tool", "call", "-", given=given)
    assert [answer["success"] for answer in ended.lines] == [True, False, True]
    assert ended.code == 0


def test_going_in_circles_does_not_close_the_stream(there):
    ended = there("tool", "call", "-", given=line("math_calculate", expression="1") * 12)
    assert len(ended.lines) == 12
    stops = [answer["data"].get("stop") for answer in ended.lines]
    assert stops.count("loop") == 8  # all but the four that ended first; they run beside each other
    assert ended.code == 0


def test_no_lines_need_no_answers(there):
    assert there("tool", "call", "-") == (0, "", "")


@pytest.mark.parametrize(
    ("before", "after", "id", "name"),
    [
        ('{"id": "first", "name": "look", "arguments": {"x": "', '"}}', "first", "look"),
        ('{"name": "look", "id": 7, "arguments": {"x": "', '"}}', 7, "look"),
        ('{"name": "look", "arguments": {"x": "', '"}, "id": "last"}', "last", "look"),
        ('{"arguments": {"x": "', '"}, "id": "l\\u00e4st", "name": "look"}', "läst", "look"),
        ('{"id": 5, "arguments": {"x": "', '"}, "name": "look"}  ', 5, "look"),
        ('{"name": "look", "arguments": {"x": "', '", "id": "inner"}}', "", "look"),
        ('{"name": "look", "arguments": {"id": 3, "x": "', '"}}', "", "look"),
        ('{"id": true, "arguments": {"x": "', '"}}', "", ""),
        ('["id", 3, "', '"]', "", ""),
    ],
)
async def test_a_line_too_long_is_answered_with_its_id(before, after, id, name):
    body = b"y" * (MAX_LINE + 10)
    whole = before.encode() + body + after.encode() + b"\n"
    pieces = [whole[at : at + 500_000] for at in range(0, len(whole), 500_000)]
    (answered, then) = await Wire(*pieces, line("look", id=3)).answer()
    assert "longer than 8 MiB" in answered["error"]
    assert (answered["id"], answered["name"]) == (id, name)
    assert then["success"]
