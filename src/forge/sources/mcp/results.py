"""What a server answers to a call: text for the model, media beside it, structured content for programs."""

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

MOST_PARTS = 1_000  # pieces of content of one result
LONGEST_ERROR = 4_000  # characters of what a server says of a failure
LONGEST_URI = 500
_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9][\w!#$&^.+-]{0,60}/[a-zA-Z0-9][\w!#$&^.+-]{0,60}")
_UNKNOWN = "application/octet-stream"


def result_of(answer: Mapping[str, Any], during: str) -> ToolResult:
    """The result of a call. `during` says which call it was, where the server says that it failed."""
    content = answer.get("content")
    parts = _Parts()
    for part in (content if isinstance(content, list) else [])[:MOST_PARTS]:
        parts.take(part if isinstance(part, Mapping) else {})
    if isinstance(content, list) and len(content) > MOST_PARTS:
        parts.say(f"[{len(content) - MOST_PARTS:,} more pieces of content were left out]")
    data: dict[str, Any] = {}
    structured = answer.get("structuredContent")
    if structured is not None:
        data["structured"] = plain(structured)
        if not parts.has_text:
            parts.say(json.dumps(data["structured"], ensure_ascii=False))
    text = sendable("\n".join(parts.lines))
    attachments = tuple(parts.attachments)
    if answer.get("isError") is True:
        return _failed(text, during, data, attachments)
    return ToolResult(for_llm=text or "Done, without a result.", data=data, attachments=attachments)


def _failed(text: str, during: str, data: Mapping[str, Any], attachments: tuple[Attachment, ...]) -> ToolResult:
    words = clean(text, LONGEST_ERROR) or "the server says that it failed, and nothing more"
    failed = ToolResult.failed(ToolError(words, ErrorKind.USER), during=during)
    return ToolResult(for_llm=failed.for_llm, failure=failed.failure, data=data, attachments=attachments)


class _Parts:
    """The pieces of a result, in their order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.attachments: list[Attachment] = []
        self.has_text = False

    def say(self, line: str) -> None:
        self.lines.append(line)

    def take(self, part: Mapping[str, Any]) -> None:
        kind = part.get("type")
        if kind == "text":
            self._text(part.get("text"))
        elif kind in ("image", "audio"):
            self._attach(part.get("data"), part.get("mimeType"), "", str(kind))
        elif kind == "resource_link":
            self.say(_link(part))
        elif kind == "resource" and isinstance(resource := part.get("resource"), Mapping):
            self._resource(resource)
        else:
            self.say(f"[content of the unknown kind {one_line(kind, 40) or 'none'} was left out]")

    def _text(self, text: Any) -> None:
        if isinstance(text, str):
            self.has_text = True
            self.say(text)

    def _resource(self, resource: Mapping[str, Any]) -> None:
        uri = one_line(resource.get("uri"), LONGEST_URI)
        if isinstance(resource.get("text"), str):
            self.say(f"[resource {uri}]")
            self._text(resource["text"])
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
            self.say(f"[{shown} whose data cannot be read]")
            return
        name = _file_name(uri) or f"{kind}-{len(self.attachments) + 1}{mimetypes.guess_extension(shown) or ''}"
        self.attachments.append(Attachment(shown, data, name))
        source = f" from {uri}" if uri else ""
        self.say(f"[{shown}, {len(data):,} bytes{source}, attached as {name}]")


def _link(part: Mapping[str, Any]) -> str:
    """A place to look, for whoever wants to: nothing is fetched."""
    said = [one_line(part.get(key), 200) for key in ("name", "title", "mimeType", "description")]
    about = ", ".join(dict.fromkeys(filter(None, said)))
    return f"[link to {one_line(part.get('uri'), LONGEST_URI) or 'nowhere'}{f': {about}' if about else ''}]"


def _file_name(uri: str) -> str:
    last = re.split(r"[?#]", uri, maxsplit=1)[0].rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.+ -]", "_", last).strip(". ")[:100]
