"""Shows a part of a fetched page: never more than reaches the model uncut, so that its marks arrive, too."""

from __future__ import annotations

from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.tools.web_parts.content import Content
from forge.tools.web_parts.mark_untrusted import clean_line, mark_text

MOST_BYTES = 48_000  # a little less than what the pipeline lets through
MOST_LINES = 1_900


def render_part(content: Content, form: str, max_chars: int, offset: int, *, is_cached: bool) -> ToolResult:
    data: dict[str, Any] = {
        "url": content.url,
        "status": content.status,
        "content_type": content.kind,
        "bytes": content.size,
        "cached": is_cached,
        "truncated": False,
    }
    if content.file:
        return _file_result(content, data)
    total = len(content.text)
    if offset and offset >= total:
        raise ToolError(
            f"offset {offset} is past the end: the page has {total:,} characters", ErrorKind.USER, "Begin at 0."
        )
    part = content.text[offset : offset + measure_part(content.text, offset, max_chars)]
    end = offset + len(part)
    data |= {"title": content.title, "format": form, "content": part, "chars": total, "truncated": end < total}
    if content.note:
        data["note"] = content.note
    if end < total:
        data["next_offset"] = end
    title = f"Title: {clean_line(content.title, 200)}\n\n" if content.title and not offset else ""
    status = "" if 200 <= content.status < 300 else f"HTTP {content.status}: "
    return ToolResult(
        for_llm=mark_text(f"{title}{part}".strip() or "(no text)", content.url, _note(content, offset, end)),
        title=status + clean_line(content.title or content.url, 120),
        data=data,
    )


def measure_part(text: str, offset: int, most: int) -> int:
    """Returns the number of characters to show from there: within a result's limits, cut at the end of a line."""
    part = text[offset : offset + min(most, MOST_BYTES)]
    if not part.isascii():
        part = part.encode()[:MOST_BYTES].decode(errors="ignore")
    lines = part.split("\n", MOST_LINES)
    if len(lines) > MOST_LINES:
        part = part[: len(part) - len(lines[-1])]
    is_cut_by_us = len(part) < most and offset + len(part) < len(text)
    last = part.rfind("\n") + 1
    return last if is_cut_by_us and last > len(part) // 2 else len(part)


def _note(content: Content, offset: int, end: int) -> str:
    notes = []
    if not 200 <= content.status < 300:
        notes.append(f"HTTP {content.status}")
    if content.note:
        notes.append(clean_line(content.note))
    total = len(content.text)
    if end < total:
        notes.append(f"characters {offset:,} to {end:,} of {total:,}; continue with offset={end}")
    elif offset:
        notes.append(f"characters {offset:,} to {end:,} of {total:,}, the end")
    return "; ".join(notes)


def _file_result(content: Content, data: dict[str, Any]) -> ToolResult:
    said = f"{content.kind}, {content.size:,} bytes, saved as {content.file}"
    if not 200 <= content.status < 300:
        said = f"HTTP {content.status}: {said}"
    return ToolResult(
        for_llm=f"[{said}: not text, so it is not shown]",
        for_user=f"Saved {content.file}",
        title=f"{content.kind} ({content.size:,} bytes)",
        data=data | {"path": content.file},
        attachments=(content.attachment,) if content.attachment is not None else (),
    )
