"""Forge: the standard executor with every guard on, and `Agent`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peer_systems import Action, RunEndedError, Script, System
from forge import Agent, Limits, Message, Scope, ToolCall, load_project, rules, tool
from forge.events import TextDelta
from forge.models import ModelRequest
from forge.permissions.questions import PermissionRequest, nobody
from forge.pipeline import standard_executor
from forge.project.templates import files_of, write_new


def allow_all(request: PermissionRequest) -> bool:
    return True


class Model:
    def __init__(self, script: Script) -> None:
        self.script = script

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Message]:
        calls = self.script.next(request.messages, request)
        made = tuple(ToolCall(call.name, call.text, call.id) for call in calls)
        yield Message("assistant", "" if made else "done", tool_calls=made)


class It(System):
    actions: ClassVar[dict[str, Action]] = {
        "read": Action("file_read", {"path": "path"}),
        "write": Action("file_write", {"path": "path", "text": "content"}),
        "edit": Action("file_edit", {"path": "path", "old": "old_text", "new": "new_text"}),
        "run": Action("bash", {"command": "command"}),
        "delegate": Action("task", {"task": "prompt"}, {"description": "a task"}),
    }

    def __init__(self) -> None:
        self.policy = rules("allow *")
        self.scope = Scope()

    def define(self, function: Callable[..., Any]) -> Any:
        made = tool(name=function.__name__)(function)
        made.spec.to_function()  # the schema comes from the validator: both are built now
        return made

    def define_guarded(self, function: Callable[..., Any]) -> Any:
        return tool(name=function.__name__, confirm=True)(function)

    async def serve(self, tools: list[Any]) -> Any:
        return standard_executor(tools, policy=self.policy)

    async def send(self, server: Any, name: str, text: str) -> str:
        return str((await server.execute(ToolCall(name, text, "c1"), self.scope)).for_llm)

    async def definitions(self, server: Any) -> list[Any]:
        definitions: list[Any] = server.registry.definitions()
        return definitions

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        limits = Limits(turns=turns + 1, calls=0) if turns else Limits()
        result = await Agent(Model(script), tools=tools, policy=self.policy, limits=limits).run("go")
        if result.reason != "answer":
            raise RunEndedError(result.reason)

    async def work(self, script: Script, place: Path, home: Path, *, allowed: bool) -> None:
        """The project that `forge init --template coding` makes, with its rules."""
        write_new(place, files_of("coding", "helper"))
        person = allow_all if allowed else nobody
        async with load_project(place, config=place / "forge.yaml").agent(Model(script), approve=person) as agent:
            result = await agent.run("go")
        if result.reason != "answer":
            raise RunEndedError(result.reason)

    def results(self, messages: Any) -> list[str]:
        return [message.text for message in messages if message.role == "tool"]
