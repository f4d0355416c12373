"""Runs tools on a bench: everything is allowed, every call is recorded, and only its directory is touched.

Turns of a scripted model and tapes, which replay the results of tools, are here, too.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self

from forge.core.activity import ActivityStream
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Step, ToolExecutor, render_call
from forge.core.messages import ToolCall
from forge.core.provider import ProviderError
from forge.core.registry import ToolRegistry, ToolSource, mount_source
from forge.core.result import Failure, ToolResult
from forge.core.secrets import Secrets
from forge.core.tool import Tool
from forge.models.scripted import ReplyPart
from forge.network.egress import Egress
from forge.permissions.answers import Approver, nobody
from forge.permissions.gate import PolicyGate
from forge.permissions.policy import rules
from forge.permissions.request import Policy
from forge.pipeline import standard_steps
from forge.pipeline.record import record, replay
from forge.testing.called import Called, Calls
from forge.testing.person import Person

Item = Tool | Callable[..., Any] | ToolSource
LEFT_OUT = ("break_loops", "skip_repeats")  # a test may well call the same thing a hundred times
HERE = ("127.0.0.0/8", "[::1]", "localhost")  # servers of the test itself


def bench(*tools: Item | Iterable[Item], **settings: Any) -> Bench:
    """Tools, lists of tools and sources on a `Bench`, whose settings these are."""
    return Bench(*tools, **settings)


class Bench:
    """`bench(add).call("add", a=1, b=2)` runs a call through the steps that every call passes.

    Without a policy everything is allowed, and every question is approved; with one, what asks is refused
    unless `approve` says otherwise. What is never allowed stays refused: leaving the workspace, protected files, what
    would destroy the machine. Each call is a turn of its own; to
    call the same thing again and again is no loop here. `calls` are the calls so far, `person` is who is asked,
    `workspace` a new directory that is removed with the bench, unless one is given. `deps` is what tools find as
    `ctx.deps`.

    Sources, such as MCP servers, are open inside `with` (or `async with`); so is the event loop that calls share.
    """

    def __init__(
        self,
        *tools: Item | Iterable[Item],
        workspace: Path | str | None = None,
        policy: Policy | None = None,
        approve: Approver | None = None,
        secrets: Secrets | Iterable[str] = (),
        egress: Egress | None = None,
        tape: str | os.PathLike[str] | Step | None = None,
        without: Iterable[str] = LEFT_OUT,
        session: str = "bench",
        deps: Any = None,
    ) -> None:
        self.workspace = _directory(self) if workspace is None else Path(workspace).resolve()
        self.person = (
            approve
            if isinstance(approve, Person)
            else Person(otherwise=approve or ("yes" if policy is None else nobody))
        )
        self.registry = ToolRegistry()
        self.scope = Scope(session_id=session, workspace=self.workspace, deps=deps)
        hidden = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        gate = PolicyGate(policy if policy is not None else rules("allow *"), self.person)
        steps = standard_steps(
            gate, hidden, egress=egress if egress is not None else Egress(private=HERE), without=frozenset(without)
        )
        if tape is not None:
            steps.insert(
                1, _open_tape(tape) if isinstance(tape, str | os.PathLike) else tape
            )  # outside everything but `trace`
        self.executor = RecordingExecutor(self.registry, steps, ActivityStream(hidden), hidden)
        self._sources: list[ToolSource] = []
        self._turns = count(1)
        self._runner: asyncio.Runner | None = None
        self._held: _OpenSources | None = None
        for item in _flat(tools):
            if isinstance(item, AbstractAsyncContextManager):
                self._sources.append(item)
            else:
                self.registry.add(item)

    @property
    def calls(self) -> Calls:
        return self.executor.calls

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> ToolResult:
        """Runs one call to its result. In `async def` tests: `await bench.execute(…)`."""
        if _is_inside_a_loop():
            raise RuntimeError(
                f"bench.call({name!r}, …) inside an event loop: write `await bench.execute({name!r}, …)`"
            )
        if self._runner is not None:
            return self._runner.run(self.execute(name, arguments, **named))
        return asyncio.run(self.execute(name, arguments, **named))

    async def execute(self, name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> ToolResult:
        """Async version of `call`."""
        if self._sources and self._held is None:
            raise RuntimeError(
                "this bench has sources, which are open only inside `with bench:` or `async with bench:`"
            )
        scope = replace(self.scope, message_id=f"turn-{next(self._turns)}")
        return await self.executor.execute(calls(name, arguments, **named), scope)

    def text(self, name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> str:
        """Returns the text for the model of a call that must succeed."""
        __tracebackhide__ = True
        result = self.call(name, arguments, **named)
        if result.failure is not None:
            raise AssertionError(f"expected success, got {result.failure.kind}: {result.for_llm}")
        return result.for_llm

    def failure(self, name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> Failure:
        """Returns the failure of a call that must fail: `message`, `kind`, `suggestion`."""
        __tracebackhide__ = True
        result = self.call(name, arguments, **named)
        if result.failure is None:
            made = render_call(calls(name, arguments, **named))
            raise AssertionError(f"{made} was expected to fail, but returned: {result.for_llm[:500]}")
        return result.failure

    def completed(self, seconds: float = 10.0) -> list[ToolResult]:
        """Waits for background work of calls; returns its results. Only inside `with`."""
        if self._runner is None:
            raise RuntimeError(
                "without `with bench:` each call has its own event loop, and background work ends with it"
            )
        if not self._runner.run(self.executor.background.settled(seconds)):
            raise AssertionError(f"background work did not end within {seconds:g} s")
        return [result for _, result in self.executor.background.take_completed(self.scope.session_id)]

    def __enter__(self) -> Self:
        if _is_inside_a_loop():
            raise RuntimeError("`with bench:` inside an event loop: write `async with bench:`")
        self._runner = asyncio.Runner()
        try:
            return self._runner.run(self.__aenter__())
        except BaseException:
            self._runner.close()
            self._runner = self._held = None
            raise

    def __exit__(self, *exception: object) -> None:
        assert self._runner is not None
        try:
            self._runner.run(self.__aexit__(*exception))
        finally:
            self._runner.close()
            self._runner = None

    async def __aenter__(self) -> Self:
        self._held = _OpenSources(self.registry, self._sources)
        await self._held.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._held is not None
        self.executor.background.cancel(self.scope.session_id)
        held, self._held = self._held, None
        await held.close()

    def __repr__(self) -> str:
        return f"<Bench of {len(self.registry)} tools, {len(self.calls)} calls>"


class RecordingExecutor(ToolExecutor):
    """Records every call with its result."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.calls = Calls()

    async def execute(self, call: ToolCall, scope: Scope) -> ToolResult:
        result = await super().execute(call, scope)
        self.calls.note(Called.of(call, result=result))
        return result


class _OpenSources:
    """Keeps sources open in one task: the task that opened them must close them, and fixtures use several."""

    def __init__(self, registry: ToolRegistry, sources: list[ToolSource]) -> None:
        self.registry = registry
        self.sources = sources
        self._closing = asyncio.Event()

    async def open(self) -> None:
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())
        await self._ready

    async def close(self) -> None:
        self._closing.set()
        await self._task

    async def _hold(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                for source in self.sources:
                    await stack.enter_async_context(mount_source(self.registry, source))
                self._ready.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)


def _flat(tools: Iterable[Any]) -> Iterable[Any]:
    for item in tools:
        if isinstance(item, Mapping):  # a registry
            yield from item.values()
        elif isinstance(item, Iterable) and not isinstance(item, Tool):
            yield from item
        else:
            yield item


def _directory(owner: object) -> Path:
    """Returns a new directory, removed with its owner, at the latest when the process ends."""
    made = Path(tempfile.mkdtemp(prefix="forge-bench-")).resolve()
    weakref.finalize(owner, shutil.rmtree, made, ignore_errors=True)
    return made


def _open_tape(path: str | os.PathLike[str]) -> Step:
    return tape(path)


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# Writes the turns of a scripted model: `Scripted(calls("file_read", path="a.txt"), says("Done."))`.


def says(*parts: str | ToolCall) -> list[ReplyPart]:
    """One turn: a text, and calls with it. `says("Let me look.", calls("file_read", path="a.txt"))`."""
    for part in parts:
        if not isinstance(part, str | ToolCall):
            raise TypeError(f"says({part!r}): expected texts and calls; `fails(…)` is a separate turn")
    if not parts:
        raise TypeError("says(): pass a text or a call; for a model that says nothing, pass an empty text")
    return list(parts)


def calls(name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> ToolCall:
    """A call with its arguments by name, or as they are: an object, or a text such as JSON that is broken."""
    if isinstance(arguments, str):
        if named:
            raise TypeError(f"calls({name!r}, …): if the arguments are a text, no others can be passed")
        return ToolCall(name, arguments)
    return ToolCall(name, {**(arguments or {}), **named})


def fails(
    message: str = "overloaded",
    kind: ErrorKind | str = ErrorKind.SYSTEM,
    *,
    passing: bool = False,
    status: int = 0,
) -> ProviderError:
    """A turn in which the model cannot be reached. `passing`: a retry may succeed; `status`: the HTTP status."""
    return ProviderError(message, kind, passing=passing, status=status)


# Tapes: a file beside the test stores the results of tools, and replays them.

VARIABLE = "FORGE_TAPE"

Mode = Literal["auto", "record", "replay"]


def tape(path: str | os.PathLike[str], mode: Mode | None = None, *, secrets: Secrets | None = None) -> Step:
    """Returns a step that answers from the file, or makes the file if there is none ("auto").

    "record" makes a new one; "replay" never runs a tool, and fails without a file. Without a mode, the variable
    FORGE_TAPE says which: `FORGE_TAPE=record pytest`. Registered secrets are masked in the file.
    """
    chosen = mode or os.environ.get(VARIABLE) or "auto"
    if chosen not in ("auto", "record", "replay"):
        raise ValueError(f"tape({os.fspath(path)!r}): the mode must be auto, record or replay, not {chosen!r}")
    file = Path(path)
    if chosen == "record" or (chosen == "auto" and not file.exists()):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        return record(file, secrets)
    if not file.exists():
        raise ToolError(
            f"there is no tape {os.fspath(path)!r} to replay", ErrorKind.CONFIG, f"Record it: {VARIABLE}=record pytest."
        )
    return replay(file, secrets)
