"""Adds the `task` tool for commands that list, describe or call tools; it is loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forge.core.registry import ToolRegistry
from forge.core.spec import Category
from forge.core.tool import DeferredTool, Tool
from forge.project.assemble.choose import TASK, apply_settings
from forge.project.config import Configuration

if TYPE_CHECKING:  # listing tools does without
    from forge.agent.subagent import SubAgent

DESCRIPTION = "Give a task to a sub-agent and get its report. It sees the prompt, not this conversation."


def add_task(
    registry: ToolRegistry, configuration: Configuration, parent: Callable[[], SubAgent] | None = None
) -> None:
    """Adds the tool. `parent` returns the agent of the sub-agents; without it, a call answers that it needs a model."""

    def make() -> Tool:
        from forge.agent.subagent import Task  # the loop and the models, which listing tools does without
        from forge.project.assemble.agent_types import agent_types

        return apply_settings(Task(parent, agent_types(configuration)), configuration)

    if TASK not in registry.names:
        registry.add(apply_settings(_DeferredTask(make), configuration))


class _DeferredTask(DeferredTool):
    """Has the description of the task tool without loading sub-agents."""

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
