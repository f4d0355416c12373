"""A call from a script against the same call made directly, on the clock, and the start of a script.

The interpreter is a process of its own. So a call from a script is at least one message to that process and its answer,
and the same call made directly. A file is read as scripts of models do it. A function that does nothing shows what the
message itself costs; its second row has the bare message and the call as its floor: nothing of Forge is in it.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

from benchmarks.timing import Measure, side_by_side_async
from forge import Scope, ToolCall, rules, tool
from forge.core.registry import ToolRegistry
from forge.pipeline import standard_executor
from forge.tools.file_read import FileRead
from forge.tools.run_code import RunCode

CALLS = 190
LINES = 100  # of each file


@tool(permissions={"read"})
def look(name: str) -> str:
    """Look at something: a plain function, as most tools are.

    Args:
        name: what to look at.
    """
    return name


class _Kind(NamedTuple):
    """Calls of one tool: `arguments` for a direct call, `code` for a script, where `n` is the number."""

    tool: str
    argument: str
    value: str

    def direct(self, number: int) -> ToolCall:
        return ToolCall(self.tool, {self.argument: self.value.format(n=number)})

    def script(self, calls: int) -> str:
        return f"for n in range({calls}):\n    await {self.tool}(f{self.value!r})"


LOOK = _Kind("look", "name", "{n}")
READ = _Kind("file_read", "path", "{n}.txt")


async def measures() -> list[Measure]:
    with TemporaryDirectory() as name:
        for number in range(CALLS):
            (Path(name) / f"{number}.txt").write_text("".join(f"line {line} of {number}\n" for line in range(LINES)))
        bench = _Bench(Path(name))
        read, read_in_script = await side_by_side_async(lambda: bench.directly(READ), lambda: bench.from_script(READ))
        look, look_in_script = await side_by_side_async(lambda: bench.directly(LOOK), lambda: bench.from_script(LOOK))
        trip, again = await side_by_side_async(bench.round_trips, lambda: bench.from_script(LOOK))
        start = await bench.start()
    bare = "a bare message to the interpreter, then the call"
    return [
        Measure("script: a file read from a script", "the same call, made directly", read, read_in_script, "µs", 2.0),
        Measure("script: an empty function", "the same call, made directly", look, look_in_script, "µs", 3.0),
        Measure("script: an empty function", bare, trip, again, "µs", 1.5),
        Measure("script: start and end of a script without calls", "", 0.0, start, "ms", 10.0, absolute=True),
    ]


class _Bench:
    def __init__(self, folder: Path) -> None:
        registry = ToolRegistry([look, FileRead()])
        registry.add(RunCode(registry))
        self.executor = standard_executor(registry, policy=rules("allow read"))
        self.scope = Scope(workspace=folder)

    async def directly(self, kind: _Kind) -> float:
        self.scope = self.scope.in_turn(uuid4().hex)  # so that no call repeats one of the same turn
        begun = time.perf_counter()
        for number in range(CALLS):
            await self._call(kind.direct(number))
        return (time.perf_counter() - begun) / CALLS * 1e6

    async def round_trips(self) -> float:
        """Microseconds for a message to the interpreter, its answer, and a direct call."""
        import pydantic_monty as monty

        with monty.Monty(max_processes=1) as pool, pool.checkout() as session:
            at = session.feed_start(f"for n in range({CALLS}):\n    echo(str(n))")
            begun = time.perf_counter()
            while isinstance(at, monty.FunctionSnapshot):
                at = at.resume({"return_value": await self._call(ToolCall("look", {"name": at.args[0]}))})
            assert isinstance(at, monty.MontyComplete), at
        return (time.perf_counter() - begun) / CALLS * 1e6

    async def from_script(self, kind: _Kind) -> float:
        """Microseconds for each call, without the start of the script."""
        with_calls = await self._least(kind.script(CALLS))
        without = await self._least(kind.script(1))
        return (with_calls - without) / (CALLS - 1) * 1e6

    async def start(self) -> float:
        return await self._least("1", times=10) * 1e3

    async def _least(self, code: str, times: int = 3) -> float:
        return min([await self._seconds(code) for _ in range(times)])

    async def _seconds(self, code: str) -> float:
        begun = time.perf_counter()
        await self._call(ToolCall("run_code", {"code": code}))
        return time.perf_counter() - begun

    async def _call(self, call: ToolCall) -> str:
        result = await self.executor.execute(call, self.scope)
        assert result.success, result.for_llm
        return result.for_llm
