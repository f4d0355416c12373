"""Makes files for the person to download."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool

MEDIA_TYPES = {
    ".md": "text/markdown",
    ".json": "application/json",
    ".yaml": "text/yaml",
    ".yml": "text/yaml",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".csv": "text/csv",
    ".sh": "text/x-shellscript",
    ".xml": "text/xml",
    ".html": "text/html",
    ".py": "text/x-python",
    ".ts": "text/typescript",
}
FOLDER = ".forge/files"
MAX_NAME = 255  # bytes

_ALLOWED = f"Use a name without directories that ends in one of {' '.join(MEDIA_TYPES)}, such as report.md."


class FileCreate(
    Tool,
    category=Category.BUILTIN,
    groups={"code-agent", "default"},
    permissions={"write"},
    harmless={"content"},
    aliases=("create_file",),
    argument_aliases={
        "name": "filename",
        "file_name": "filename",
        "path": "filename",
        "file_path": "filename",
        "text": "content",
    },
    timeout=30.0,
):
    """Create a file for the person to download, such as a report. It is not for files of the project."""

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        return [f"{FOLDER}/{check_name(arguments['filename'])}"]

    def run(
        self,
        ctx: ToolContext,
        filename: Annotated[str, ParameterLimits(example="report.md"), "With extension, without directories."],
        content: Annotated[str, ParameterLimits(example="# Report\n")],
    ) -> ToolResult:

        from forge.workspace.changes.artefacts import write_artefact  # loads what only a change needs
        from forge.workspace.paths import PathValidator
        from forge.workspace.text import DecodedText

        name = check_name(filename)
        media_type = MEDIA_TYPES[_extension(name)]
        PathValidator.of(ctx.scope).resolve_for_writing(f"{FOLDER}/{name}", follow=False)  # are writes enabled at all?
        written = DecodedText("").encode_whole(content)
        artefact = write_artefact(ctx.scope.workspace, name, written)
        answer = {"filename": name, "mime_type": media_type, "path": str(artefact.path), "bytes": len(written)}
        if artefact.replaced:
            answer["replaced"] = True
        return ToolResult(
            for_llm=json.dumps(answer, ensure_ascii=False),
            for_user=f"{'Replaced' if artefact.replaced else 'Created'} {artefact.path}",
            title=f"{name} ({len(written):,} byte{'s' * (len(written) != 1)})",
            data={**answer, "content": content},
            attachments=(Attachment(media_type, written, name),),
        )


def check_name(name: str) -> str:
    """Returns the name if it is allowed. Raises `ToolError` that lists the allowed forms."""
    problem = ""
    if not name.strip():
        problem = "the filename is empty"
    elif "/" in name or "\\" in name:
        problem = "it contains a path separator"
    elif ".." in name:
        problem = 'it contains ".."'
    elif not name.isprintable():
        problem = "it contains a control character or an invisible one"
    elif name.startswith("-"):
        problem = "it begins with a dash"
    elif name != name.strip() or name.startswith(".forge-"):
        problem = "it begins or ends with a blank, or begins with .forge-"
    elif len(name.encode()) > MAX_NAME:
        problem = f"it has more than {MAX_NAME} bytes"
    elif _extension(name) not in MEDIA_TYPES:
        problem = f'the extension "{_extension(name)}" is not allowed' if _extension(name) else "it has no extension"
    if problem:
        shown = f"filename {name[:80]!r}: " if name.strip() else ""
        raise ToolError(f"{shown}{problem}", ErrorKind.VALIDATION, _ALLOWED)
    return name


def _extension(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return f"{dot}{extension}".lower() if stem else ""
