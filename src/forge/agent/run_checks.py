"""The resources of an agent in use, and the checks before a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from forge.agent.inbox import Inbox
from forge.core.arguments.call_style import check_deps, check_tool_deps
from forge.core.context import Scope
from forge.core.execution.background import BackgroundWork
from forge.core.execution.other_processes import end_started
from forge.core.registry import ToolRegistry


class OpenAgent:
    """The resources of an agent in use; copies made by `replace` share them."""

    def __init__(self) -> None:
        self.contexts: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        self.background: BackgroundWork | None = None
        self.inbox = Inbox()
        self.sessions: set[str] = set()  # named sessions: their programs end with the agent
        self._stack = AsyncExitStack()
        self._is_open = False

    async def open(self) -> None:
        try:
            for make in self.contexts:
                await self._stack.enter_async_context(make())
        except BaseException:
            await self.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        while self.sessions:
            end_started(self.sessions.pop())
        await self._stack.aclose()

    def check(self) -> None:
        if self.contexts and not self._is_open:
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
    """Raises where the session of a run is not a name, or differs from the session of its scope."""
    if not isinstance(session, str):
        raise TypeError(f'Agent.run(session={session!r:.80}): a session is a name, such as session="alice"')
    if session and scope is not None and scope.names_session and scope.session_id != session:
        raise ValueError(
            f"Agent.run was given session={session!r:.80} and a scope of the session {scope.session_id!r:.80}. "
            "Leave one of them out."
        )


def check_no_loop() -> None:
    """Raises `RuntimeError` inside an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "Agent.run_sync was called where an event loop runs already, as in a notebook or an async function. "
        "Write `await agent.run(prompt)` there."
    )
