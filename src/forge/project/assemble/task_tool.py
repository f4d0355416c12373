"""The `task` tool for commands that list, describe or call tools: as an agent has it, loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forge.core.registry import ToolRegistry
from forge.core.spec import Category
from forge.core.tool import DeferredTool, Tool
from forge.project.assemble.choose import TASK, configured
from forge.project.config import Configuration

if TYPE_CHECKING:  # listing tools does without
    from forge.agent.subagent import SubAgent

DESCRIPTION = (
    "Give a self-contained task to a sub-agent and get its report back. It sees the prompt, not this conversation."
)


def add_task(
    registry: ToolRegistry, configuration: Configuration, parent: Callable[[], SubAgent] | None = None
) -> None:
    """`parent` gives the agent whose sub-agents work; without one, a call answers that it needs a model."""

    def make() -> Tool:
        from forge.agent.subagent import Task  # the loop and the models, which listing tools does without
        from forge.project.assemble.agent_types import agent_types

        return configured(Task(parent, agent_types(configuration)), configuration)

    if TASK not in registry.names:
        registry.add(configured(_DeferredTask(make), configuration))


class _DeferredTask(DeferredTool):
    """Its description is known without the sub-agents that it stands for."""

    def __init__(self, make: Callable[[], Tool]) -> None:
        super().__init__(
            TASK,
            make,
            {
                "category": Category.BUILTIN,
                "permissions": {"execute"},
                "target": "description",
                "origin": "forge.agent.subagent",
            },
        )
        self.spec = self.spec.changed(timeout=None)

    def reset(self) -> None:
        super().reset()
        self.spec = self.spec.changed(description=DESCRIPTION)
