"""Deep Agents: `create_deep_agent` with the chat model of LangChain's module."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peer_systems import RunEndedError, Script
from benchmarks.peer_systems.langchain import It as LangChain


class It(LangChain):
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
