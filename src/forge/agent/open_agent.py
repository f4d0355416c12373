"""An agent in use: its resources, its runs in progress, and the checks before a run."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import copy_context
from copy import copy
from threading import Thread
from typing import Any, TypeVar

from forge.agent.run_control import LocalRun, RunsInProgress
from forge.core.arguments.call_style import check_deps, check_tool_deps
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.background import BackgroundWork
from forge.core.execution.session_programs import end_started
from forge.core.registry import ToolRegistry

log = logging.getLogger(__name__)
T = TypeVar("T")


class OpenAgent:
    """The resources of an agent in use; copies made by `replace` share them."""

    def __init__(self) -> None:
        self.contexts: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        self.background: BackgroundWork | None = None
        self.runs = RunsInProgress()
        self.started: set[LocalRun[Any]] = set()  # runs that began while it was open, and are not over
        self.sessions: set[str] = set()  # named sessions: their programs end with the agent
        self._stack = AsyncExitStack()
        self._users = 0  # `async with` blocks that are open
        self.is_open = False

    def fork(self) -> OpenAgent:
        """Returns the same with background work and an opening of its own."""
        other = copy(self)
        other.background, other._stack, other.started, other._users = None, AsyncExitStack(), set(), 0
        return other

    async def open(self) -> None:
        self._users += 1
        try:
            for make in self.contexts:
                await self._stack.enter_async_context(make())
        except BaseException:
            await self.close()
            raise
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False
        self._users -= 1
        left = [run for run in self.started if run.is_here] if not self._users else ()
        if left:
            log.warning("an agent is closed while %d of its runs are in progress: they are cancelled", len(left))
            for run in left:
                await run.cancel().ended()
        while self.sessions:
            end_started(self.sessions.pop())
        await self._stack.aclose()

    def check(self) -> None:
        if self.contexts and not self.is_open:
            raise RuntimeError("this agent mounts tool sources: use it inside `async with agent:`")


class DeclaredDeps:
    """The types of dependencies that an agent and its tools declare, read once for each state of a registry."""

    def __init__(self, owner: str, declared: Any) -> None:
        """`declared` is the agent's own `deps_type`, or None."""
        self._owner, self._declared = owner, declared
        self._read: tuple[ToolRegistry | None, int] = (None, -1)
        self._tools: list[tuple[str, Any, bool]] = []

    def check(self, registry: ToolRegistry, deps: Any) -> None:
        """Raises `ToolError` where `deps` is missing or of another type than the agent or a tool declares."""
        if self._declared is not None:
            check_deps(self._owner, self._declared, deps)
        if self._read[0] is not registry or self._read[1] != registry.version:
            found = ((one.spec, one.deps_type()) for one in registry.values())
            self._tools = [(spec.name, declared, spec.isolate) for spec, declared in found if declared is not None]
            self._read = (registry, registry.version)
        for name, declared, is_isolated in self._tools:
            check_tool_deps(name, declared, deps, is_isolated=is_isolated)


def check_session(session: str, scope: Scope | None) -> None:
    """Raises where the session of a run is not a name, or is named by its scope."""
    if not isinstance(session, str):
        raise TypeError(f'Agent.run(session={session!r:.80}): a session is a name, such as session="alice"')
    if scope is not None and scope.names_session and scope.session_id != session:
        raise ValueError(
            f"Agent.run was given session={session!r:.80} and a scope of the session {scope.session_id!r:.80}. The "
            f"scope of a run has the user and the directories; name its session with session={scope.session_id!r:.80}."
        )


def check_stored(*, is_named: bool, has_history: bool) -> None:
    """Raises `ToolError` where a run with a store names no session, or brings a history of its own."""
    message = "Agent.run was given a store"
    if not is_named:
        hint = 'Name the session whose conversation it continues: session="alice".'
        raise ToolError(f"{message} and no session", ErrorKind.VALIDATION, hint)
    if has_history:
        hint = "Leave one of them out: the store has the history of the session."
        raise ToolError(f"{message} and a history", ErrorKind.VALIDATION, hint)


def check_in_loop() -> None:
    """Raises `RuntimeError` where no event loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        message = "Agent.start was called where no event loop runs, so that nothing would work on the run"
        raise RuntimeError(f"{message}. Call it in an async function, or use agent.run_sync(prompt).") from None


def run_to_end(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs async work where no event loop runs; in a notebook, whose loop runs always, in a thread of its own.

    Raises `RuntimeError` inside another event loop, which would stand still.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    if not _is_notebook():
        raise RuntimeError(
            "Agent.run_sync was called where an event loop runs already, as in an async function. "
            "Write `await agent.run(prompt)` there."
        )
    return _run_in_thread(work)


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def _run_in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs async work beside the loop of this thread, and waits. An interrupt of the person cancels it."""
    outcome: Future[T] = Future()
    begun: Future[Callable[[], object]] = Future()

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        begun.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await work()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:
            outcome.set_exception(error)

    thread = Thread(target=copy_context().run, args=(run,), name="forge-run", daemon=True)
    thread.start()
    try:
        return outcome.result()
    except KeyboardInterrupt:
        begun.result()()
        thread.join()
        raise
