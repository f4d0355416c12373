"""Shows a directory and what is below it as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

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
    kind_mark,
    listing_result,
    no_directory_error,
    printable,
    scan_directory,
    size_text,
)

if TYPE_CHECKING:  # it loads what only a call needs
    from forge.workspace.search.walk import OverviewItem

MAX_DEPTH = 3
WORTH_SAYING = 1024  # bytes from which on a size is shown


class DirectoryTree(
    Tool,
    category=Category.BUILTIN,
    groups={"search", "read", "code-agent"},
    aliases=("tree",),
    argument_aliases={
        **ALIASES,
        "depth": "max_depth",
    },
    permissions={"read"},
    target="path",
    repeatable=False,
    idempotent=True,
):
    """Show a directory as a tree, without ignored files. Skipped directories end in /…."""

    def __init__(self, max_depth: int = MAX_DEPTH, max_entries: int = MAX_ENTRIES, patience: float = PATIENCE) -> None:
        self.max_depth = max_depth
        self.max_entries = max_entries
        self.patience = patience
        self.show_settings()

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"max_depth": Setting(self.max_depth), "max_entries": Setting(self.max_entries)}

    async def run(
        self,
        ctx: ToolContext,
        path: Annotated[str, "Default: the workspace."] = "",
        max_depth: Annotated[int, ParameterLimits(ge=1, le=100)] = MAX_DEPTH,
        max_entries: Annotated[int, ParameterLimits(ge=1, le=MOST_ENTRIES)] = MAX_ENTRIES,
    ) -> ToolResult:
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without
        from forge.tools.shared.approved_paths import resolve_approved

        location = (await resolve_approved(ctx, Permission.READ, path, blank=True))[0]

        def work() -> ToolResult:
            if not is_directory(ctx, location):
                raise no_directory_error(location)
            depth, most = max_depth, max_entries
            found = scan_directory(ctx, location, depth, most, self.patience, hidden=True, ignored=False)
            return listing_result(location, found, [f"{printable(location.shown)}/", *branches(found.top)])

        drawn: ToolResult = await in_thread(work)
        return drawn


def branches(item: OverviewItem, indent: str = "") -> Iterator[str]:
    """Yields a line for each item below, with the branches that lead to it."""
    for number, one in enumerate(item.items, 1):
        is_last = number == len(item.items) and not item.more
        size = f" ({size_text(one.size)})" if one.kind == "file" and one.size >= WORTH_SAYING else ""
        yield f"{indent}{'└── ' if is_last else '├── '}{printable(one.name)}{kind_mark(one)}{size}"
        yield from branches(one, indent + ("    " if is_last else "│   "))
    if item.more:
        yield f"{indent}└── … {item.more:,} more"
