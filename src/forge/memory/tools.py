"""The tools of the memory: search it, read a note, write something down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from forge.core.arguments.parameters import ParameterLimits
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import UNTRUSTED, Label, ToolResult, merge_labels
from forge.core.secrets import Secrets
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.memory.memory import Hit, Memory
from forge.memory.notes import append_entry, decode_note, find_entry_labels
from forge.permissions.labels.settings import current_provenance

MAX_RESULTS = 50
LONGEST_QUERY = 2_000  # characters
LONGEST_ENTRY = 20_000  # characters written at once


def memory_tools(memory: Memory) -> list[Tool]:
    """Returns the tools of a memory: search, read and write notes.

    Args:
        memory: the memory.

    Example:
        >>> [made.spec.name for made in memory_tools(Memory(Path("notes")))]
        ['memory_search', 'memory_get', 'memory_write']
    """
    return [MemorySearch(memory), MemoryGet(memory), MemoryWrite(memory)]


class MemorySearch(
    Tool,
    category=Category.BUILTIN,
    permissions={"read"},
    argument_aliases={
        "q": "query",
        "text": "query",
        "limit": "max_results",
        "top_k": "max_results",
        "k": "max_results",
    },
    idempotent=True,
):
    """Search the notes of earlier sessions, by keywords and meaning. Read the whole note with memory_get."""

    def __init__(self, memory: Memory, max_results: int = 5) -> None:
        self.memory = memory
        self.max_results = max_results

    async def run(
        self,
        query: Annotated[str, ParameterLimits(min_length=1, max_length=LONGEST_QUERY, example="how do we deploy?")],
        max_results: Annotated[int, ParameterLimits(ge=1, le=MAX_RESULTS), "Maximum number of results."] = 5,
    ) -> ToolResult:
        if not query.strip():
            raise ToolError("the query is blank", ErrorKind.VALIDATION, "Write what to search for.")
        most = self.max_results if max_results == 5 else max_results
        found = await self.memory.search(query, most)
        data: dict[str, Any] = {"results": [hit._asdict() for hit in found.hits]}
        if found.remarks:
            data["remarks"] = found.remarks
        listed = "\n\n".join(_format_hit(number, hit) for number, hit in enumerate(found.hits, 1))
        text = listed or "Nothing was found. Try other words; memory_get reads MEMORY.md whole."
        count = len(found.hits)
        return ToolResult(
            for_llm="\n\n".join([text, *(f"[{remark}]" for remark in found.remarks)]),
            title=f"{count} piece{'s' * (count != 1)} of notes for {' '.join(query.split())[:60]}",
            data=data,
            labels=await self._find_labels(found.hits),
        )

    async def _find_labels(self, hits: list[Hit]) -> tuple[Label, ...]:
        """Returns the labels of the entries that were found."""
        if not hits or current_provenance.get() is None:
            return ()
        from forge.core.execution.threads import in_thread

        def read() -> dict[str, str | None]:
            return {source: self._read_note(source) for source in dict.fromkeys(hit.source for hit in hits)}

        texts: dict[str, str | None] = await in_thread(read)
        found = (
            (Label(UNTRUSTED, f"memory_search {hit.source}"),)
            if (text := texts[hit.source]) is None
            else find_entry_labels(text, hit.line_start, hit.line_end)
            for hit in hits
        )
        return merge_labels(*found)

    def _read_note(self, source: str) -> str | None:
        try:
            return self.memory.read(source)
        except ToolError:  # it was removed meanwhile: nobody knows its labels
            return None


class MemoryGet(
    Tool,
    category=Category.BUILTIN,
    permissions={"read"},
    target="path",
    argument_aliases={"file": "path", "file_path": "path", "name": "path", "source": "path"},
    repeatable=False,
    idempotent=True,
):
    """Read a whole note of the memory: MEMORY.md, a day such as 2026-11-20.md, or a source that memory_search named."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        return [self.memory.notes.workspace_path(arguments["path"])]

    def run(self, path: Annotated[str, ParameterLimits(min_length=1, example="MEMORY.md"), "The note."]) -> ToolResult:
        text = self.memory.read(path)
        name = self.memory.notes.name_of(self.memory.notes.resolve(path))
        lines = text.count("\n") + (not text.endswith("\n") and bool(text))
        data = {"path": name, "content": text, "lines": lines, "bytes": len(text.encode("utf-8", "replace"))}
        title, labels = f"{name}: {lines} lines", find_entry_labels(text)
        return ToolResult(for_llm=text or "The note is empty.", title=title, data=data, labels=labels)


class MemoryWrite(
    Tool,
    category=Category.BUILTIN,
    permissions={"write"},
    target="target",
    harmless={"content"},
    argument_aliases={"text": "content", "note": "content", "file": "target", "where": "target"},
):
    """Write a note for later sessions: in today's note or, for lasting facts, in MEMORY.md. Never secrets."""

    def __init__(self, memory: Memory, max_length: int = LONGEST_ENTRY) -> None:
        self.memory = memory
        self.max_length = max_length

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

        self._check(arguments["content"], ctx)
        preview: str = await in_thread(lambda: self._diff(arguments["content"], arguments.get("target", "today")))
        return preview

    def run(
        self,
        ctx: ToolContext,
        content: Annotated[
            str, ParameterLimits(min_length=1, example="The person prefers short answers."), "Markdown."
        ],
        target: Annotated[Literal["today", "memory"], "today: the daily note. memory: MEMORY.md."] = "today",
    ) -> ToolResult:
        self._check(content, ctx)
        if ctx.cancelled:
            raise ToolError("stopped before anything was written", ErrorKind.CANCELLED)
        provenance = current_provenance.get()
        labels = provenance.label_copy(content) if provenance is not None else ()
        written = self.memory.write(content, target, labels=labels)
        where = f"{written.source}, lines {written.line_start} to {written.line_end}"
        data = {"source": written.source, "line_start": written.line_start, "line_end": written.line_end}
        return ToolResult(for_llm=f"Noted in {where}.", title=f"Noted in {written.source}", data=data)

    def _check(self, content: str, ctx: ToolContext) -> None:
        if not ctx.scope.writes:
            problem = "notes cannot be written: writing files is disabled here"
            raise ToolError(problem, ErrorKind.PERMISSION, "The person can enable it: workspace.writes in forge.yaml.")
        if not content.strip():
            raise ToolError("there is nothing to remember", ErrorKind.VALIDATION, "Write the content to remember.")
        if len(content) > self.max_length:
            problem = f"the content has {len(content):,} characters, the limit is {self.max_length:,}"
            raise ToolError(problem, ErrorKind.VALIDATION, "Shorten the content.")
        check_secrets(content, ctx.activity.secrets)

    def _diff(self, content: str, target: Literal["today", "memory"]) -> str:
        from forge.workspace.text.diff import content_diff  # needed only for a preview

        name = self.memory.name_of(target)
        note = self.memory.notes.read(name)
        before = note.content if note else None
        after, _ = append_entry(
            decode_note(name, before) if before is not None else None, self.memory.entry(content, target)
        )
        return content_diff(before, after, self.memory.notes.workspace_path(name))


def check_secrets(content: str, secrets: Secrets) -> None:
    """Raises `ToolError` for a registered secret, and for a text that looks like one."""
    if secrets.mask_all(content) == content:
        return
    lines = content.split("\n")
    line = next((number for number, one in enumerate(lines, 1) if secrets.mask_all(one) != one), 0)
    where = f"line {line}" if line and len(lines) > 1 else "the content"
    what = "contains a secret" if secrets.mask(content) != content else "contains something that looks like a secret"
    raise ToolError(
        f"{where} {what}; nothing was written",
        ErrorKind.SECURITY,
        "Remove the secret: note where it is stored, not its value.",
    )


def _format_hit(number: int, hit: Hit) -> str:
    lines = f"{hit.line_start}" if hit.line_start == hit.line_end else f"{hit.line_start}-{hit.line_end}"
    return f"{number}. {hit.source}:{lines} (score {hit.score:.2f})\n{hit.text}"
