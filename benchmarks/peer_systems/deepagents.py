"""Deep Agents: `create_deep_agent` with the chat model of LangChain's module."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peer_systems import Action, RunEndedError, Script
from benchmarks.peer_systems.langchain import It as LangChain


class It(LangChain):
    actions: ClassVar[dict[str, Action]] = {
        "read": Action("read_file", {"path": "file_path"}),
        "write": Action("write_file", {"path": "file_path", "text": "content"}),
        "edit": Action("edit_file", {"path": "file_path", "old": "old_string", "new": "new_string"}),
        "run": Action("execute", {"command": "command"}),
        "delegate": Action("task", {"task": "description"}, {"subagent_type": "general-purpose"}),
    }

    def __init__(self) -> None:
        super().__init__()
        self.create_agent = import_module("deepagents").create_deep_agent
        self.guarded: Any = None

    def define_guarded(self, function: Callable[..., Any]) -> Any:
        """Its mark stands in the agent: `interrupt_on`, which needs a checkpointer."""
        self.guarded = self.define(function)
        return self.guarded

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        if self.guarded not in tools:
            await super().run(tools, script, turns)
            return
        saver = import_module("langgraph.checkpoint.memory").InMemorySaver()
        agent = self.create_agent(self.model(script), tools, interrupt_on={self.guarded.name: True}, checkpointer=saver)
        ended = await agent.ainvoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "1"}})
        if "__interrupt__" in ended:
            raise RunEndedError("interrupt")

    def name_file(self, directory: Path, name: str) -> str:
        return f"/{name}"

    async def work(self, script: Script, place: Path, home: Path, *, allowed: bool) -> None:
        """Its default backend is the run's state. Where everything is allowed, its local shell stands instead."""
        local = import_module("deepagents.backends").LocalShellBackend
        chosen = {"backend": local(root_dir=str(place))} if allowed else {}
        await self.create_agent(self.model(script), **chosen).ainvoke({"messages": [("user", "go")]})
