"""Reads one call per line and writes one result per line: in order, each its own turn, in parallel if that is safe."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn
from uuid import uuid4

from pydantic_core import from_json

from forge.cli.terminal.print_result import as_line
from forge.core.arguments.names import near
from forge.core.context import Scope
from forge.core.errors import ErrorKind
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import article, json_type, text_of
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.core.tool import UnavailableTool

MAX_LINE = 8 * 1024 * 1024  # bytes
MOST_AT_ONCE = 64  # lines read but not answered; a line of more than a MiB counts as several
KEYS = ("name", "arguments", "id")

Read = Callable[[], Awaitable[bytes]]  # the next piece of the input, empty at its end
Write = Callable[[bytes], Awaitable[None]]
LeftOut = Callable[[str], str | None]  # why this project lacks a tool that exists


class CallLine(NamedTuple):
    """The call of one line, or the reason why the line cannot be read."""

    call: ToolCall | None
    id: Any  # echoed as it came
    name: str
    problem: ToolResult | None


class Answers:
    """Runs the calls of one stream. A call that may change something runs alone; others run in parallel."""

    def __init__(self, executor: ToolExecutor, scope: Scope, left_out: LeftOut) -> None:
        self.executor = executor
        self.scope = scope
        self.left_out = left_out
        self.stream = uuid4().hex[:12]
        self._running: set[asyncio.Task[bytes]] = set()
        self._alone: asyncio.Task[bytes] | None = None

    def start(self, number: int, content: bytes | LongLine) -> asyncio.Task[bytes]:
        line = parse_line(number, content)
        reads = line.call is None or _only_reads(self.executor, line.call.name)
        before = tuple(self._running) if not reads else (self._alone,) if self._alone is not None else ()
        task = asyncio.create_task(self._answer(line, number, before))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if not reads:
            self._alone = task
        return task

    async def _answer(self, line: CallLine, number: int, before: Iterable[asyncio.Task[bytes]]) -> bytes:
        if before:
            await asyncio.wait(before)
        if line.call is None:
            assert line.problem is not None
            return as_line(line.problem, line.id, line.name)
        try:
            turn = replace(self.scope, message_id=f"{self.stream}-{number}")
            result = await self.executor.execute(line.call, turn)
            return as_line(self._explain_missing_tool(line.call.name, result), line.id, line.name)
        except Exception as error:  # a result that cannot be serialised must not end the stream
            return as_line(ToolResult.error(text_of(error), ErrorKind.SYSTEM), line.id, line.name)

    def _explain_missing_tool(self, name: str, result: ToolResult) -> ToolResult:
        """Explains a tool that exists but is not part of this project."""
        found = self.executor.registry.find(name)
        if result.failure is None or isinstance(found, UnavailableTool) or found.spec.name in self.executor.registry:
            return result
        why = self.left_out(name)
        if why is None:
            return result
        message, _, advice = f"the tool {name!r} exists, but this project does not {why}".partition("\n")
        return ToolResult.error(message, ErrorKind.NOT_FOUND, advice)


async def answer_lines(
    executor: ToolExecutor, scope: Scope, read: Read, write: Write, left_out: LeftOut = lambda name: None
) -> None:
    """Answers calls until the input ends. Reads no further ahead than it can answer; raises what `write` raises."""
    answers = Answers(executor, scope, left_out)
    room = asyncio.Semaphore(MOST_AT_ONCE)
    started: asyncio.Queue[tuple[asyncio.Task[bytes], int] | None] = asyncio.Queue()

    async def write_in_order() -> None:
        while (entry := await started.get()) is not None:
            task, weight = entry
            await write(await task)
            for _ in range(weight):
                room.release()

    async def start_all() -> None:
        number = 0
        async for content in split_lines(read):
            number += 1
            if isinstance(content, bytes) and not content.strip():
                continue
            weight = 1 + (len(content) // (1024 * 1024) if isinstance(content, bytes) else 0)
            for _ in range(weight):
                await room.acquire()
            started.put_nowait((answers.start(number, content), weight))
        started.put_nowait(None)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(write_in_order())
            group.create_task(start_all())
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None


async def split_lines(read: Read) -> AsyncIterator[bytes | LongLine]:
    """Yields the lines of the input without their ends; of a line that is too long, only its edges."""
    parts: list[bytes] = []
    size = 0
    long: LongLine | None = None
    while piece := await read():
        for index, part in enumerate(piece.split(b"\n")):
            if index:
                yield b"".join(parts) if long is None else long
                parts, size, long = [], 0, None
            size += len(part)
            if long is not None:
                long.add(part)
                continue
            parts.append(part)
            if size > MAX_LINE:
                long = LongLine(b"".join(parts))
                parts.clear()
    if size:
        yield b"".join(parts) if long is None else long


def parse_line(number: int, content: bytes | LongLine) -> CallLine:
    """Returns the call of a line, or an error result."""
    if isinstance(content, LongLine):
        problem, members = f"the line is longer than {MAX_LINE // (1024 * 1024)} MiB", content.find_name()
        id_, name = members.get("id", ""), members.get("name", "")
        tool_name = name if isinstance(name, str) else ""
        return _refuse_line(number, problem, "Send less at once.", id_ if _is_id(id_) else "", tool_name)
    try:
        entry = _parse_json(content.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        return _refuse_line(number, f"the line is not valid JSON: {str(error)[:200]}", _SHAPE)
    if not isinstance(entry, dict):
        return _refuse_line(number, f"the line is {article(json_type(entry))}, not an object", _SHAPE)
    return _call_of(number, entry)


def _parse_json(content: bytes) -> Any:
    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError:
        if b"\\ud" not in content.lower():
            raise
        return json.loads(content, parse_constant=_refuse_constant)  # half a surrogate pair: the call still has its id


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number of JSON")


_SHAPE = 'Write one call a line: {"name": "math_calculate", "arguments": {"expression": "1 + 1"}, "id": "1"}'


def _call_of(number: int, entry: dict[str, Any]) -> CallLine:
    given, name, arguments = entry.get("id", ""), entry.get("name"), entry.get("arguments")
    id_, tool_name = given if _is_id(given) else "", name if isinstance(name, str) else ""
    problem = ""
    for key in entry:
        if key not in KEYS:
            hint = near(key, KEYS, 1)
            problem = f"unknown key {key[:60]!r}" + (f"; did you mean {hint[0]!r}?" if hint else "")
    if not _is_id(given):
        problem = f"id: expected string or integer, got {json_type(given)}"
    if not isinstance(arguments, dict | str | None):
        problem = f"arguments: expected object, got {json_type(arguments)}"
    if not tool_name:
        problem = "name: required, but missing" if not name else f"name: expected string, got {json_type(name)}"
    if problem:
        return _refuse_line(number, problem, _SHAPE, id_, tool_name)
    call = ToolCall(tool_name, arguments or {}, str(id_)) if id_ != "" else ToolCall(tool_name, arguments or {})
    return CallLine(call, id_ if id_ != "" else call.id, tool_name, None)


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _refuse_line(number: int, problem: str, advice: str, id_: Any = "", name: str = "") -> CallLine:
    result = ToolResult.error(f"line {number}: {problem}", ErrorKind.VALIDATION, advice).with_data(line=number)
    return CallLine(None, id_, name, result)


def _only_reads(executor: ToolExecutor, name: str) -> bool:
    spec = executor.registry.find(name).spec
    return spec.parallel and spec.permissions | spec.optional_permissions <= {Permission.READ}


EDGE = 4 * 1024  # bytes of the beginning and of the end of a line that is too long
_VALUE = r'(?:"(?:[^"\\]|\\.)*"|-?[0-9]{1,1000})'
_MEMBER = rf'"(?:id|name)"\s*:\s*{_VALUE}'
_FIRST = re.compile(rf"\s*\{{((?:\s*{_MEMBER}\s*,){{1,2}})")
_LAST = re.compile(rf"((?:,\s*{_MEMBER}\s*){{1,2}})\}}\s*\Z")


class LongLine:
    """The beginning and the end of a line that is too long; the middle is dropped."""

    def __init__(self, beginning: bytes) -> None:
        self.first = beginning[:EDGE]
        self.last = beginning[-EDGE:]

    def add(self, part: bytes) -> None:
        self.last = (self.last + part[-EDGE:])[-EDGE:]

    def find_name(self) -> dict[str, Any]:
        """Returns the line's id and name if they stand before or after the arguments, at the top of the object."""
        first = _FIRST.match(self.first.decode(errors="replace").removeprefix("\ufeff"))
        last = _LAST.search(self.last.decode(errors="replace"))
        found: dict[str, Any] = {}
        for members in (first[1] if first else "", last[1] if last else ""):
            found |= _parse_members(members)
        return found


def _parse_members(members: str) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(f"{{{members.strip().strip(',')}}}")
    except ValueError:
        return {}
    return read
