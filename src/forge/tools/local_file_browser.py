"""Shows the files of a project during development: reads a file, or lists a directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import Scope, ToolContext
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.tools.directory_list import DirectoryList
from forge.tools.file_read import FileRead


class LocalFileBrowser(
    Tool,
    category=Category.DEV,
    argument_aliases={"file_path": "path", "file": "path", "directory": "path", "action": "operation"},
    permissions={"execute"},  # as all development tools, so that nothing offers it where only reading is meant
    optional_permissions={"read"},
    target="path",
    repeatable=False,
    idempotent=True,
):
    """Look at the project's files: read one with line numbers, or list a directory with sizes."""

    def __init__(self) -> None:
        self._read = FileRead()
        self._list = DirectoryList()

    async def run(
        self,
        ctx: ToolContext,
        path: Annotated[str, ParameterLimits(example="."), "A file or directory in the workspace."],
        operation: Annotated[Literal["read", "list"], "read or list; a directory is always listed."] = "read",
    ) -> ToolResult:
        if operation == "list":
            return await self._list.run(ctx, path)
        return await self._read.run(ctx, [path])

    def required_permissions(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        """Asks to read, its only action."""
        return [(Permission.READ, arguments["path"])]
