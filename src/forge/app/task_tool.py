"""The `task` tool for commands that list, describe or call tools: as an agent has it, loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forge.app.choose import TASK, configured
from forge.app.config import Configuration
from forge.core.registry import ToolRegistry
from forge.core.spec import Category
from forge.core.tool import DeferredTool, Tool

if TYPE_CHECKING:  # listing tools does without
    from forge.core.executor import Step

DESCRIPTION = (
    "Give a self-contained task to a sub-agent and get its report back. It sees the prompt, not this conversation."
)


def add_task(registry: ToolRegistry, configuration: Configuration, steps: tuple[Step, ...] = ()) -> None:
    """With the configured model; without one, a call answers that it needs a model."""

    def make() -> Tool:
        from forge.app.agent import task_of  # the loop and the models, which listing tools does without
        from forge.providers.names import provider_for

        model = configuration.agent.model
        made = task_of(configuration, provider_for(model) if model else None, registry, steps)
        return configured(made, configuration)

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
