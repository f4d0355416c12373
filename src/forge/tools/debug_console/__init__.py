"""Inspects the live run: its history, pending approvals and stored session state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakKeyDictionary

from forge.core.arguments.parameters import Limits, Setting
from forge.core.context import Scope, ToolContext
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool

if TYPE_CHECKING:  # they load what only a call needs
    from forge.core.activity import ActivityStream
    from forge.core.executor import ToolExecutor
    from forge.tools.debug_console.record import Recorder

LIMIT = 20  # entries
MOST = 200

Topic = Literal["history", "registry", "results", "approvals", "session", "background", "events"]


class DebugConsole(
    Tool,
    category=Category.DEV,
    argument_aliases={"command": "topic", "section": "topic", "tool": "name", "max_results": "limit"},
    permissions={"execute"},  # as all development tools, so that nothing offers it where only reading is meant
    optional_permissions={"read"},
    timeout=30.0,
):
    """Inspect this run: its history, tools, last results, pending approvals, session state, background work, events."""

    def __init__(self, registry: ToolRegistry, max_entries: int = MOST) -> None:
        self._registry = registry
        self.max_entries = max_entries
        self._recorders: WeakKeyDictionary[ActivityStream, Recorder] = WeakKeyDictionary()
        self.show_settings()

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"limit": Setting(min(LIMIT, self.max_entries))}

    def inside(self, registry: ToolRegistry) -> DebugConsole:
        """Returns a copy for a sub-agent: it sees the sub-agent's tools and the events of the whole run."""
        other = DebugConsole(registry, self.max_entries)
        other._recorders = self._recorders
        return other

    def watch(self, executor: ToolExecutor) -> None:
        """Starts recording now, instead of at the first call."""
        self._recorder(executor.activity).steps = executor.steps

    async def run(
        self,
        ctx: ToolContext,
        topic: Annotated[Topic, "What to look at."] = "history",
        name: Annotated[str, "Only entries about this tool; with registry: its details."] = "",
        limit: Annotated[int, Limits(ge=1, le=MOST), "How many of the latest entries."] = LIMIT,
    ) -> ToolResult:
        from forge.core.execution.threads import in_thread  # they load what only a call needs
        from forge.tools.debug_console import topics

        known = ctx.owner is not None and ctx.activity in self._recorders
        recorder = self._recorder(ctx.activity) if ctx.owner is not None else None
        look = topics.TopicRequest(ctx, self._registry, recorder, name.strip(), min(limit, self.max_entries), known)
        found: ToolResult = await in_thread(lambda: topics.TOPICS[topic](look))
        return found.masked(ctx.activity.secrets.mask_everything)

    def wants(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        """Asks only to read: asking for more would wait for the very question to inspect."""
        return [(Permission.READ, "")]

    def _recorder(self, activity: ActivityStream) -> Recorder:
        from forge.tools.debug_console.record import Recorder

        recorder = self._recorders.get(activity)
        if recorder is None:
            recorder = self._recorders[activity] = Recorder()
            activity.subscribe(recorder.take)
        return recorder
