"""Combines what file_read shows of each path into one result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.result import Attachment, ToolResult
from forge.tools.file_parts.listing import printable

if TYPE_CHECKING:  # they load what only a call needs
    from forge.workspace.paths import Location
    from forge.workspace.reading import FileContent
    from forge.workspace.text.page import Page


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
        words = f"{reading.kind.name}, {reading.size:,} bytes"
        image = Attachment(reading.kind.media_type, reading.image, printable(location.name))
        return FilePart(location.shown, f"[{words}, attached]", size=reading.size, what=words, attachments=(image,))
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
