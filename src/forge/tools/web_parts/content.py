"""Makes a server's answer readable: converts pages, indents JSON, keeps text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge.core.errors import ToolError
from forge.core.result import Attachment
from forge.tools.web_parts.mark_untrusted import clean_text

if TYPE_CHECKING:  # the network is loaded by the first request
    from forge.network.body import Response
    from forge.tools.web_parts.read_page import PageReader

_PAGES = ("text/html", "application/xhtml+xml")
LONGEST_LINE = 1_900  # characters: longer ones would be clipped on their way to the model

_TEXTS = ("xml", "javascript", "ecmascript", "yaml", "toml", "csv", "sql", "x-sh", "graphql", "x-ndjson", "rtf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A page ready to be shown, or the file it was saved as."""

    url: str
    status: int
    kind: str = ""  # such as text/html
    title: str = ""
    text: str = ""
    note: str = ""  # what was guessed, replaced or cut
    file: str = ""
    size: int = 0  # bytes received
    attachment: Attachment | None = None


async def read_content(answer: Response, form: str, reader: PageReader) -> Content | None:
    """Returns the content, or None if it is not text."""
    from forge.core.execution.threads import in_thread

    kind = answer.content_type
    if answer.body.startswith(b"%PDF-") or not _may_be_text(kind):
        return None
    found = await in_thread(answer.text)
    if found.binary and answer.body:
        return None
    title, text = "", found.text
    if kind in _PAGES or (not kind and _looks_like_a_page(text)):
        kind = kind or "text/html"
        title, text = await reader.read(text, answer.url, form)
    elif kind == "application/json" or kind.endswith("+json"):
        text = await in_thread(lambda: indent_json(found.text))
    notes = [found.note] if found.note else []
    if answer.truncated:
        notes.append(f"only the first {len(answer.body):,} bytes were read; there are more")
    return Content(
        url=answer.url,
        status=answer.status,
        kind=kind,
        title=title,
        text=await in_thread(lambda: _clean_lines(text)),
        note="; ".join(notes),
        size=len(answer.body),
    )


def _may_be_text(kind: str) -> bool:
    if not kind or kind.startswith(("text/", "message/")) or kind.endswith(("+json", "+xml", "+yaml")):
        return kind != "image/svg+xml"
    return kind in _PAGES or any(part in kind for part in (*_TEXTS, "json")) or kind == "application/octet-stream"


def _looks_like_a_page(text: str) -> bool:
    head = text[:1_000].lstrip("\ufeff \t\r\n").lower()
    return head.startswith(("<!doctype html", "<html", "<head", "<body"))


def indent_json(text: str) -> str:
    """Indents JSON and keeps its numbers as written; returns other text unchanged."""
    from forge.tools.json_parse import pretty, read_json

    try:
        return pretty(read_json(text)[0])
    except ToolError:
        return text


def _clean_lines(text: str) -> str:
    """Removes invisible characters and breaks lines that are too long to show; table rows stay whole."""
    lines = clean_text(text).split("\n")
    if max(map(len, lines)) <= LONGEST_LINE:
        return "\n".join(lines)
    return "\n".join(line if len(line) <= LONGEST_LINE or line[:1] == "|" else _fold_line(line) for line in lines)


def _fold_line(line: str) -> str:
    """Breaks a line between words, if it has several."""
    parts, start = [], 0
    while len(line) - start > LONGEST_LINE:
        end = line.rfind(" ", start + 1, start + LONGEST_LINE)
        if end < 0:
            end = line.find(" ", start + LONGEST_LINE)
        if end < 0:
            break
        parts.append(line[start:end])
        start = end + 1
    return "\n".join([*parts, line[start:]])
