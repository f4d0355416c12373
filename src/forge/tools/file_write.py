"""Writes whole files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.result import Reconciled, ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.tools.shared.change_files import change_files, note_changes, preview_change, reconcile_changes
from forge.tools.shared.listing import printable

if TYPE_CHECKING:  # it loads what only a change needs
    from forge.workspace.draft import Draft
    from forge.workspace.text import DecodedText


class WriteOutcome(NamedTuple):
    path: str
    action: str
    size: int


class FileWrite(
    Tool,
    category=Category.BUILTIN,
    groups={"write", "code-agent"},
    aliases=("write", "write_file"),
    argument_aliases={
        "file_path": "path",
        "filepath": "path",
        "filename": "path",
        "contents": "content",
        "text": "content",
        "file_text": "content",
    },
    permissions={"write"},
    target="path",
    harmless={"content"},
):
    """Create a file, or overwrite one that was read before. To change a part, use file_edit."""

    async def run(
        self,
        ctx: ToolContext,
        path: Annotated[str, ParameterLimits(example="notes.txt")],
        content: Annotated[str, ParameterLimits(example="Hello\n")],
    ) -> ToolResult:
        written, draft = await change_files(ctx, [path], lambda draft: plan(draft, path, content))
        done = "Wrote" if written.action == "created" else "Overwrote"
        name = printable(written.path)
        if draft.is_empty:
            done = "Nothing to change in"
        return ToolResult(
            for_llm=f"{done} {name} ({written.size:,} byte{'s' * (written.size != 1)}).",
            for_user=draft.diff(),
            title=f"{done} {name}",
            data={"path": written.path, "action": written.action, "bytes": written.size},
        )

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return await preview_change(ctx, self._plan(arguments))

    def _plan(self, arguments: Mapping[str, Any]) -> Callable[[Draft], WriteOutcome]:
        return lambda draft: plan(draft, arguments["path"], arguments["content"])

    def note_intent(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Mapping[str, Any]:
        return note_changes(ctx, self._plan(arguments))

    async def reconcile(self, key: str, arguments: Mapping[str, Any], ctx: ToolContext) -> Reconciled:
        return await reconcile_changes(ctx)


def plan(draft: Draft, path: str, content: str) -> WriteOutcome:
    """Encodes the content. An existing file keeps its encoding, byte order mark, line endings and mode."""
    location = draft.resolve(path)
    draft.require_read(location)
    text = draft.text(location)
    data = encode_content(text, content)
    draft.write(location, data)
    return WriteOutcome(location.shown, "created" if text is None else "updated", len(data))


def encode_content(old: DecodedText | None, content: str) -> bytes:
    """Encodes the new content of a whole file in the manner of its old content."""
    from forge.tools.shared.placeholders import refuse_placeholders  # they load what only a change needs
    from forge.workspace.text import DecodedText, with_endings_of

    if old is None:
        return DecodedText("").encode_whole(content)
    refuse_placeholders(content, old.text)
    text_only = content.removeprefix("\ufeff") if old.mark else content
    return old.encode_whole(with_endings_of(old.text, text_only))
