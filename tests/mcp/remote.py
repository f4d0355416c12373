"""A server without a process: what it lists and answers is what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.mcp.client import connection as connection_module
from forge.permissions.policy import rules
from forge.permissions.questions import Answer, PermissionRequest
from forge.pipeline import standard_executor

Answering = Callable[[str, Mapping[str, Any], object], Any]


def definition(name: Any = "status", description: str = "Show the status.", **more: Any) -> dict[str, Any]:
    properties = more.pop("properties", {"path": {"type": "string"}})
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
        **more,
    }


class Remote:
    """Stands behind every connection that is opened while it is installed."""

    def __init__(self, *definitions: Any) -> None:
        self.definitions: list[Any] = list(definitions)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.listener: Any = None
        self.transport: Any = None
        self.opened = self.closed = self.listed = 0
        self.answer: Answering = lambda name, arguments, key: {"content": [{"type": "text", "text": f"{name} done"}]}
        self.failure: Exception | None = None

    def install(self, patch: pytest.MonkeyPatch) -> Remote:
        patch.setattr(connection_module, "Connection", self._connection)
        return self

    def _connection(self, name: str, transport: Any, listener: Any, *, login: Any) -> Remote:
        self.listener, self.transport = listener, transport
        return self

    instructions = "Be kind."
    is_up = True
    is_modern = False
    is_list_expired = False
    runs_tasks = False

    async def open(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    async def list_tools(self) -> list[Any]:
        self.listed += 1
        return list(self.definitions)

    async def call_and_watch(
        self, name: str, arguments: Mapping[str, Any], key: object, *, as_task: bool = False
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        self.calls.append((name, dict(arguments)))
        answer = self.answer(name, arguments, key)
        return (await answer if asyncio.iscoroutine(answer) else answer), []

    async def change(self, *definitions: Any) -> None:
        """The server says that its list is another one, and is asked for it."""
        self.definitions = list(definitions)
        before = self.listed
        self.listener.tools_changed()
        await until(lambda: self.listed > before)


class Person:
    """Answers what is asked, and notes it."""

    def __init__(self, answer: Answer = Answer.ONCE) -> None:
        self.answer = answer
        self.asked: list[PermissionRequest] = []

    async def __call__(self, request: PermissionRequest) -> Answer:
        self.asked.append(request)
        return self.answer


class Desk:
    """Tools behind the standard steps, with a person who is asked."""

    def __init__(self, *policy: str, person: Any = None) -> None:
        self.registry = ToolRegistry()
        self.person = person if person is not None else Person()
        self.executor = standard_executor(self.registry, policy=rules(*(policy or ("allow *",))), approve=self.person)
        self.scope = Scope(session_id="desk")

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.executor.execute(ToolCall(name, arguments), self.scope)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is about to happen."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is nothing to wait for but the thing itself
            await asyncio.sleep(0.01)
