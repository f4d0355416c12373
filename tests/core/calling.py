"""Calls tools the way an agent does, and notes what is heard of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forge
from forge.core.activity import ActivityStream
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind
from forge.core.events import Event, ToolFinished, ToolStarted
from forge.core.execution.chain import Next, Step
from forge.core.execution.deadline import Deadline, DeadlinePassed
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.tool import Tool

SCOPE = Scope(session_id="test", workspace=Path())

Made = Tool | Callable[..., Any]

_NOTHING: dict[str, Any] = {}


class Heard(list[Event]):
    """A plain subscriber that keeps what it gets."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    @property
    def names(self) -> list[str]:
        return [event.type for event in self]

    def of(self, *types: type[Event]) -> list[Any]:
        return [event for event in self if isinstance(event, types)]

    @property
    def balanced(self) -> bool:
        """Exactly one end for every start, and never before it."""
        open_calls: Counter[str] = Counter()
        for event in self:
            if isinstance(event, ToolStarted):
                open_calls[event.call.id] += 1
            elif isinstance(event, ToolFinished):
                open_calls[event.call.id] -= 1
            if any(count not in (0, 1) for count in open_calls.values()):
                return False
        return not any(open_calls.values()) and len(self.of(ToolStarted)) == len(self.of(ToolFinished))


def executor(*tools: Made, steps: Iterable[Step] = (), heard: Heard | None = None) -> ToolExecutor:
    activity = ActivityStream()
    if heard is not None:
        activity.subscribe(heard)
    return ToolExecutor(ToolRegistry(tools), steps, activity)


async def execute(
    made: Made,
    arguments: Any = _NOTHING,
    *,
    steps: Iterable[Step] = (),
    heard: Heard | None = None,
    scope: Scope = SCOPE,
) -> ToolResult:
    runs = executor(made, steps=steps, heard=heard)
    (name,) = runs.registry
    result = await runs.execute(ToolCall(name, arguments), scope)
    await all_told(runs)
    return result


async def all_told(runs: ToolExecutor) -> None:
    """On a busy machine a listener can seem slow, and hears the rest in a thread of its own: wait for it."""
    if any(listener.waiting for listener in runs.activity._listeners if not listener.is_async):
        assert await runs.activity.drain(30)


def call(made: Made, arguments: Any = _NOTHING, **options: Any) -> ToolResult:
    results: list[ToolResult] = []

    async def main() -> None:  # asyncio.run looks at the repr of what it returns
        results.append(await execute(made, arguments, **options))

    asyncio.run(main())
    return results[0]


def within(seconds: float, grace: float = 0.05) -> Step:
    """A deadline around every call."""

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        coroutine: Any = proceed(ctx)
        try:
            return await Deadline(coroutine, seconds, grace)
        except DeadlinePassed:
            ctx.cancelled = True
            return ToolResult.error("timed out", ErrorKind.TIMEOUT)

    return step


LONG = 25.0
"""Seconds. What must not be waited for in `at_most` takes longer than this."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """The body computes for so many seconds at most, and does not wait for something that takes `LONG` or for ever.
    The clock is not compared with `seconds`: other programs may have the processors."""
    started, computed = time.perf_counter(), time.process_time()
    yield
    computed = time.process_time() - computed
    taken = time.perf_counter() - started
    assert computed < seconds, f"computed for {computed:.2f} s"
    assert taken < max(LONG, 5 * seconds), f"took {taken:.2f} s"


def python(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Another Python that can import forge, and nothing of ours."""
    path = os.pathsep.join([str(Path(forge.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
    )


def ends(program: subprocess.Popen[str], seconds: float = 150.0) -> tuple[int, str, str]:
    """Exit code, output and errors of a program that must end by itself."""
    try:
        output, errors = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        program.kill()
        output, errors = program.communicate()
        raise AssertionError(f"it did not end in {seconds} s\n{output}\n{errors}") from None
    return program.returncode, output, errors
