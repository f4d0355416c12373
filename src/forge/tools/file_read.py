"""Reads files: text page by page with line numbers, images as attachments, directories as their listing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from stat import S_ISDIR
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from forge.core.arguments.parameters import ParameterLimits, Setting
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.tools.shared.listing import MAX_ENTRIES, list_directory, printable

if TYPE_CHECKING:
    from forge.workspace.paths import Location
    from forge.workspace.reading import FileContent
    from forge.workspace.text.page import Page


LIMIT = 2_000  # lines
MAX_BYTES = 50 * 1024  # of all that is shown: the output budget
MAX_LINE = 2_000  # characters
MAX_IMAGE = 5 * 1024 * 1024  # bytes
IMAGES = 4  # times that for all images of a call
MAX_FILES = 50
FOOTER = 150  # bytes kept free for what is said below a page


class FileRead(
    Tool,
    category=Category.BUILTIN,
    groups={"read", "code-agent"},
    aliases=("read", "read_file"),
    argument_aliases={
        "file_path": "path",
        "file_paths": "path",
        "filepath": "path",
        "filename": "path",
        "file": "path",
        "files": "path",
        "paths": "path",
        "start_line": "offset",
        "max_lines": "limit",
    },
    permissions={"read"},
    target="path",
    repeatable=False,
    idempotent=True,
):
    """Read one or several files with line numbers, page by page. Images are attached, directories listed."""

    def __init__(
        self,
        max_lines: int = LIMIT,
        max_bytes: int = MAX_BYTES,
        max_line: int = MAX_LINE,
        max_image_bytes: int = MAX_IMAGE,
        max_files: int = MAX_FILES,
    ) -> None:
        self.max_lines = max_lines
        self.max_bytes = max_bytes
        self.max_line = max_line
        self.max_image_bytes = max_image_bytes
        self.max_files = max_files
        self.show_settings()

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"limit": Setting(self.max_lines)}

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        return _read_paths(arguments["path"])

    async def run(
        self,
        ctx: ToolContext,
        path: Annotated[str | list[str], ParameterLimits(example="README.md")],
        offset: Annotated[int, ParameterLimits(ge=0), "First line."] = 1,
        limit: Annotated[int, ParameterLimits(ge=0), "Lines per file; 0: as many as fit."] = LIMIT,
    ) -> ToolResult:
        paths = _read_paths(path)
        if not 0 < len(paths) <= self.max_files:
            problem = f"{len(paths):,} paths at once, the limit is {self.max_files}" if paths else "no path is given"
            raise ToolError(problem, ErrorKind.VALIDATION, "Name one file, or a few.")
        shares = _Shares(len(paths), self.max_lines, self.max_bytes, self.max_image_bytes)
        parts = []
        for one in paths:
            part = await self._try_read(ctx, one, max(offset, 1), limit, shares)
            shares.use(part)
            parts.append(part)
        if all(part.failure for part in parts):
            raise combined_failure(parts)
        return build_result(parts)

    async def _try_read(self, ctx: ToolContext, path: str, offset: int, limit: int, shares: _Shares) -> FilePart:
        try:
            return await self._read(ctx, path, offset, limit, shares)
        except ToolError as error:
            return FilePart(path, failure=error)

    async def _read(self, ctx: ToolContext, path: str, offset: int, limit: int, shares: _Shares) -> FilePart:
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without
        from forge.tools.shared.approved_paths import resolve_approved
        from forge.workspace.paths.open import status_of
        from forge.workspace.reading import read_for_model
        from forge.workspace.text.page import PageBounds

        location, *links = await resolve_approved(ctx, Permission.READ, path)
        lines = min(limit or shares.lines, shares.lines)
        bounds = PageBounds(lines, shares.size(path), self.max_line)

        def work() -> FilePart:
            status = status_of(location)
            if status is None:
                raise _missing_file_error(ctx, location, is_link=bool(links))
            if S_ISDIR(status.st_mode):
                return _list_directory(ctx, location, shares.lines)
            reading = read_for_model(location, offset, bounds, shares.image, lambda: ctx.cancelled)
            return build_part(location, reading, offset)

        part: FilePart = await in_thread(work)
        return part


class _Shares:
    """Divides the output among several files: a file's unused share is left to the others."""

    def __init__(self, files: int, lines: int, size: int, image: int) -> None:
        self._files = files
        self._lines = lines
        self._size = size
        self._image = image
        self._images = IMAGES * image
        self._several = files > 1

    @property
    def lines(self) -> int:
        """Counts a page's lines; each of several files also has a heading, a line below it and a blank line."""
        return max(1, self._lines // self._files - 3) if self._several else self._lines

    def size(self, path: str) -> int:
        heading = len(path.encode("utf-8", "replace")) if self._several else 0
        return max(1, self._size // self._files - heading - FOOTER)

    @property
    def image(self) -> int:
        return min(self._image, self._images)

    def use(self, part: FilePart) -> None:
        shown = part_body(part)
        self._files -= 1
        self._lines -= shown.count("\n") + 4
        self._size -= len(f"{part.path}{shown}".encode("utf-8", "replace")) + FOOTER
        self._images -= sum(len(image.data) for image in part.attachments)


def _read_paths(path: str | list[str]) -> list[str]:
    """Returns the paths, also of a list that was sent as text."""
    if isinstance(path, str):
        if not (path.startswith("[") and path.endswith("]")):
            return [path]

        try:
            values = json.loads(path)
        except (ValueError, RecursionError):
            return [path]
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            return [path]
        path = values
    return list(dict.fromkeys(path))


def _missing_file_error(ctx: ToolContext, location: Location, *, is_link: bool) -> ToolError:
    from forge.tools.shared.approved_paths import denied_predicate
    from forge.workspace.search.glob import find_similar_names

    is_denied = denied_predicate(ctx)
    names = [f'"{printable(name)}"' for name in find_similar_names(location) if not is_denied(name)]
    hint = f"Did you mean {' or '.join(names)}?" if names else "Look for it with glob_search or directory_list."
    where = f': it is a link to "{printable(location.shown)}", which is missing' if is_link else ""
    return ToolError(f"no such file{where}", ErrorKind.NOT_FOUND, hint)


def _list_directory(ctx: ToolContext, location: Location, most: int) -> FilePart:
    found = list_directory(ctx, location, max_entries=min(most, MAX_ENTRIES))
    entries, total, clipped = (found.data[key] for key in ("entries", "total", "truncated"))
    what = f"directory, {len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
    return FilePart(location.shown, found.for_llm, what=what, clipped=clipped, entries=entries, total_entries=total)


# Combines what file_read shows of each path into one result.


class FilePart(NamedTuple):
    """The shown part of one path."""

    path: str
    text: str = ""
    lines: int = 0
    total: int = 0
    size: int = 0
    next_offset: int = 0  # 0: all that follows was shown
    clipped: bool = False
    what: str = ""  # in a few words, for the person
    attachments: tuple[Attachment, ...] = ()
    entries: list[dict[str, Any]] | None = None  # of a directory
    total_entries: int = 0
    failure: ToolError | None = None


def build_part(location: Location, reading: FileContent, offset: int) -> FilePart:
    if reading.page is None:
        assert reading.kind is not None
        what = f"{reading.kind.name}, {reading.size:,} bytes"
        image = Attachment(reading.kind.media_type, reading.image, printable(location.name))
        return FilePart(location.shown, f"[{what}, attached]", size=reading.size, what=what, attachments=(image,))
    page = reading.page
    if not page.lines and page.total:
        raise ToolError(
            f"offset {brief(offset)} is past the end: {printable(location.shown)} has {_lines(page.total)}",
            ErrorKind.USER,
            f"Use an offset from 1 to {page.total}.",
        )
    text, footer = _number_lines(page), _footer(page)
    return FilePart(
        location.shown,
        f"{text}\n{footer}" if text and footer else text or footer,
        lines=len(page.lines),
        total=page.total,
        size=reading.size,
        next_offset=0 if page.ended else page.last + 1,
        clipped=any(line.more for line in page.lines),
        what=footer[1:-1].partition(";")[0] or _lines(page.total),
    )


def _number_lines(page: Page) -> str:
    from forge.workspace.text.page import number_lines

    return "\n".join(number_lines(page.first, page.lines))


def _footer(page: Page) -> str:
    """Describes the shown part and how to continue; empty if everything was shown."""
    if not page.lines:
        return "[empty file]"
    if page.ended and page.first == 1:
        return ""
    shown = f"lines {page.first}-{page.last} of {'' if page.exact else 'at least '}{page.total}"
    return f"[{shown}]" if page.ended else f"[{shown}; continue with offset={page.last + 1}]"


def combined_failure(parts: list[FilePart]) -> ToolError:
    """Returns the error if nothing could be read."""
    failures = [(part.path, part.failure) for part in parts if part.failure]
    if len(failures) == 1:
        return failures[0][1]
    kinds = {failure.kind for _, failure in failures}
    told = [f"{brief(path)}: {failure.message}" for path, failure in failures[:10]]
    hints = dict.fromkeys(failure.suggestion for _, failure in failures[:10] if failure.suggestion)
    more = [f"and {len(failures) - 10} more"] if len(failures) > 10 else []
    kind = kinds.pop() if len(kinds) == 1 else ErrorKind.USER
    return ToolError("; ".join([*told, *more]), kind, " ".join(hints))


def build_result(parts: list[FilePart]) -> ToolResult:
    single = len(parts) == 1
    text = (
        parts[0].text if single else "\n\n".join(f"=== {printable(part.path)} ===\n{part_body(part)}" for part in parts)
    )
    read = [part for part in parts if not part.failure]
    title = (
        f"Read {printable(parts[0].path)} ({parts[0].what})" if single else f"Read {len(read)} of {len(parts)} files"
    )
    facts: dict[str, Any] = {
        "path": parts[0].path if single else [part.path for part in parts],
        "content": text,
        "files_read": len(read),
        "lines": sum(part.lines for part in read),
        "total_lines": sum(part.total for part in read),
        "bytes": sum(part.size for part in read),
        "tokens": -(-len(text.encode("utf-8", "replace")) // 4),
        "truncated": any(part.next_offset or part.clipped for part in read),
    }
    if single:
        facts["next_offset"] = parts[0].next_offset or None
        if parts[0].entries is not None:
            facts |= {"entries": parts[0].entries, "total_entries": parts[0].total_entries}
    else:
        facts["files"] = [_part_data(part) for part in parts]
    return ToolResult(
        for_llm=text,
        title=title,
        data=facts,
        attachments=tuple(image for part in parts for image in part.attachments),
    )


def _part_data(part: FilePart) -> dict[str, Any]:
    if part.failure is not None:
        return {"path": part.path, "error": part.failure.message, "error_type": str(part.failure.kind)}
    return {
        "path": part.path,
        "lines": part.lines,
        "total_lines": part.total,
        "bytes": part.size,
        "next_offset": part.next_offset or None,
    }


def part_body(part: FilePart) -> str:
    if part.failure is None:
        return part.text
    return f"[{'. '.join(filter(None, (part.failure.message, part.failure.suggestion)))}]"


def _lines(number: int) -> str:
    return f"{number} line" if number == 1 else f"{number} lines"
