"""Lists what is in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from forge.core.arguments.parameters import ParameterLimits, Setting
from forge.core.context import ToolContext
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.tools.shared.listing import (
    ALIASES,
    MAX_ENTRIES,
    MOST_ENTRIES,
    PATIENCE,
    is_directory,
    list_directory,
    list_one_entry,
)


class DirectoryList(
    Tool,
    category=Category.BUILTIN,
    groups={"search", "read", "code-agent"},
    aliases=("list", "ls", "list_files"),
    argument_aliases={
        **ALIASES,
        "all": "include_hidden",
        "show_hidden": "include_hidden",
    },
    permissions={"read"},
    target="path",
    repeatable=False,
    idempotent=True,
):
    """List a directory: directories first, then files with their sizes."""

    def __init__(self, max_entries: int = MAX_ENTRIES, patience: float = PATIENCE) -> None:
        self.max_entries = max_entries
        self.patience = patience
        self.show_settings()

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"max_entries": Setting(self.max_entries)}

    async def run(
        self,
        ctx: ToolContext,
        path: Annotated[str, "Default: the workspace."] = "",
        recursive: Annotated[bool, "Also subdirectories, without ignored files."] = False,
        include_hidden: bool = False,
        max_entries: Annotated[int, ParameterLimits(ge=1, le=MOST_ENTRIES)] = MAX_ENTRIES,
    ) -> ToolResult:
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without
        from forge.tools.shared.approved_paths import resolve_approved

        location = (await resolve_approved(ctx, Permission.READ, path, blank=True))[0]

        def work() -> ToolResult:
            if not is_directory(ctx, location):
                return list_one_entry(ctx, location)
            return list_directory(
                ctx,
                location,
                include_hidden=include_hidden,
                recursive=recursive,
                max_entries=max_entries,
                patience=self.patience,
            )

        result: ToolResult = await in_thread(work)
        return result
