"""Converts a server's answer to a result: text for the model, attachments, structured content for programs."""

from __future__ import annotations

import binascii
import json
import mimetypes
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import plain, sendable
from forge.core.result import Attachment, ToolResult
from forge.sources.untrusted import clean, one_line

MOST_PARTS = 1_000  # content parts of one result
LONGEST_ERROR = 4_000  # characters of a server's error message
LONGEST_URI = 500
_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9][\w!#$&^.+-]{0,60}/[a-zA-Z0-9][\w!#$&^.+-]{0,60}")
_UNKNOWN = "application/octet-stream"


def result_of(answer: Mapping[str, Any], during: str) -> ToolResult:
    """Returns the result of a call. `during` describes the call in an error."""
    content = answer.get("content")
    parts = _ResultParts()
    for part in (content if isinstance(content, list) else [])[:MOST_PARTS]:
        parts.add_part(part if isinstance(part, Mapping) else {})
    if isinstance(content, list) and len(content) > MOST_PARTS:
        parts.add_line(f"[{len(content) - MOST_PARTS:,} more parts of the content were left out]")
    data: dict[str, Any] = {}
    structured = answer.get("structuredContent")
    if structured is not None:
        data["structured"] = plain(structured)
        if not parts.has_text:
            parts.add_line(json.dumps(data["structured"], ensure_ascii=False))
    text = sendable("\n".join(parts.lines))
    attachments = tuple(parts.attachments)
    if answer.get("isError") is True:
        return _make_failure(text, during, data, attachments)
    return ToolResult(for_llm=text or "Done, without a result.", data=data, attachments=attachments)


def _make_failure(text: str, during: str, data: Mapping[str, Any], attachments: tuple[Attachment, ...]) -> ToolResult:
    words = clean(text, LONGEST_ERROR) or "the server reported a failure without a message"
    failed = ToolResult.failed(ToolError(words, ErrorKind.USER), during=during)
    return ToolResult(for_llm=failed.for_llm, failure=failed.failure, data=data, attachments=attachments)


class _ResultParts:
    """Collects the parts of a result in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.attachments: list[Attachment] = []
        self.has_text = False

    def add_line(self, line: str) -> None:
        self.lines.append(line)

    def add_part(self, part: Mapping[str, Any]) -> None:
        kind = part.get("type")
        if kind == "text":
            self._add_text(part.get("text"))
        elif kind in ("image", "audio"):
            self._attach(part.get("data"), part.get("mimeType"), "", str(kind))
        elif kind == "resource_link":
            self.add_line(_format_link(part))
        elif kind == "resource" and isinstance(resource := part.get("resource"), Mapping):
            self._add_resource(resource)
        else:
            self.add_line(f"[content of the unknown type {one_line(kind, 40) or 'none'} was left out]")

    def _add_text(self, text: Any) -> None:
        if isinstance(text, str):
            self.has_text = True
            self.add_line(text)

    def _add_resource(self, resource: Mapping[str, Any]) -> None:
        uri = one_line(resource.get("uri"), LONGEST_URI)
        if isinstance(resource.get("text"), str):
            self.add_line(f"[resource {uri}]")
            self._add_text(resource["text"])
            return
        self._attach(resource.get("blob"), resource.get("mimeType"), uri, "resource")

    def _attach(self, encoded: Any, media_type: Any, uri: str, kind: str) -> None:
        known = isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type)
        shown = str(media_type) if known else _UNKNOWN
        try:
            data = b64decode(encoded, validate=True) if isinstance(encoded, str) else None
        except (binascii.Error, ValueError):
            data = None
        if data is None:
            self.add_line(f"[{shown} with unreadable data]")
            return
        name = _file_name(uri) or f"{kind}-{len(self.attachments) + 1}{mimetypes.guess_extension(shown) or ''}"
        self.attachments.append(Attachment(shown, data, name))
        source = f" from {uri}" if uri else ""
        self.add_line(f"[{shown}, {len(data):,} bytes{source}, attached as {name}]")


def _format_link(part: Mapping[str, Any]) -> str:
    """Formats a link; it is not fetched."""
    said = [one_line(part.get(key), 200) for key in ("name", "title", "mimeType", "description")]
    about = ", ".join(dict.fromkeys(filter(None, said)))
    return f"[link to {one_line(part.get('uri'), LONGEST_URI) or 'nowhere'}{f': {about}' if about else ''}]"


def _file_name(uri: str) -> str:
    last = re.split(r"[?#]", uri, maxsplit=1)[0].rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.+ -]", "_", last).strip(". ")[:100]
