"""Converts a server's answer to a result: the model sees what the document describes, programs see everything."""

from __future__ import annotations

import json
from typing import Any

from forge.core.execution.threads import in_thread
from forge.core.plain_values import sendable
from forge.core.result import Attachment, ToolResult
from forge.core.secrets import Secrets
from forge.network.body import Response
from forge.sources.openapi.document import Document
from forge.sources.openapi.operations import Operation
from forge.sources.openapi.trimming import Trimmer, schema_for
from forge.sources.untrusted import one_line

LARGEST = 8 * 1024 * 1024  # bytes of an answer
LARGE = 64 * 1024  # bytes: a larger answer is read in a thread
WIDTH = 160  # characters: a shorter part of JSON stays on one line

_dump = json.JSONEncoder(ensure_ascii=False).encode
_SHOWN = ("retry-after", "location", "link")  # headers that tell the model what to do next
_REPORTED = frozenset({*_SHOWN, "content-type", "etag", "last-modified", "www-authenticate"})
_LIMITS = ("x-ratelimit", "ratelimit")
_FORBIDDEN = "the server rejected the credentials, or none are configured; a person must check the configuration"


class AnswerReader:
    """Reads the answers for one mounted document. `secrets` are masked in case a server echoes them."""

    def __init__(self, document: Document, secrets: Secrets) -> None:
        self._document = document
        self._trimmer = Trimmer(document)
        self._secrets = secrets

    async def result(self, operation: Operation, answer: Response) -> ToolResult:
        if len(answer.body) <= LARGE:
            return self._result(operation, answer)
        return await in_thread(lambda: self._result(operation, answer))  # type: ignore[no-any-return]

    def _result(self, operation: Operation, answer: Response) -> ToolResult:
        headers = self._headers(answer)
        said = f"HTTP {answer.status} {one_line(self._secrets.mask(answer.reason), 80)}".rstrip()
        data: dict[str, Any] = {"status": answer.status, "headers": headers, "truncated": answer.truncated}
        lines = [said, *(f"{name}: {headers[name]}" for name in _SHOWN if name in headers)]
        notes = [_FORBIDDEN] if answer.status in (401, 403) else []
        if answer.truncated:
            notes.append(f"only the first {len(answer.body):,} bytes of the response; request less")
        text, data["body"], left_out, attachments = self._body(operation, answer)
        if left_out:
            data["left_out"] = left_out
            count = f"{left_out:,} {'value' if left_out == 1 else 'values'}"
            notes.append(f"{count} left out: not described in the API document")
        lines += ["", text] if text else []
        lines += [f"[{note}]" for note in notes]
        return ToolResult(
            for_llm="\n".join(lines),
            title=f"{one_line(operation.title, 100)}: {said}",
            data=data,
            attachments=attachments,
        )

    def _body(self, operation: Operation, answer: Response) -> tuple[str, Any, int, tuple[Attachment, ...]]:
        """Returns the text for the model, the data for programs, the number of values left out, and attachments."""
        if not answer.body:
            return "", "", 0, ()
        found = answer.text()
        if found.binary or answer.content_type.startswith(("image/", "audio/", "video/")):
            attachment = _attachment(operation, answer)
            shown = f"[{attachment.media_type}, {len(attachment.data):,} bytes, attached as {attachment.name}]"
            return shown, "", 0, (attachment,)
        text = sendable(self._secrets.mask(found.text))
        if answer.truncated or "json" not in answer.content_type:
            return text, text, 0, ()
        try:
            value = _read_json(text)
        except (ValueError, RecursionError):
            return text, text, 0, ()
        shown_value, left_out = value, 0
        if 200 <= answer.status < 300:  # an error is shown completely: documents do not describe all errors
            schema = schema_for(self._document, operation.raw.get("responses"), answer.status)
            shown_value, left_out = self._trimmer.trim(value, schema)
        return _format_json(shown_value, ""), value, left_out, ()

    def _headers(self, answer: Response) -> dict[str, str]:
        reported: dict[str, str] = {}
        for name, value in answer.headers:
            if name in _REPORTED or name.startswith(_LIMITS):
                value = one_line(self._secrets.mask(value), 1_000)
                reported[name] = f"{reported[name]}, {value}" if name in reported else value
        return reported


def _read_json(text: str) -> Any:
    from pydantic_core import from_json  # heavy: needed only for an answer

    return from_json(text)


def _format_json(value: Any, indent: str) -> str:
    """Formats JSON; short parts stay on one line."""
    compact = _dump(value)
    if len(compact) <= WIDTH or not isinstance(value, dict | list) or len(indent) > 40:
        return compact
    deeper = f"{indent}  "
    if isinstance(value, list):
        parts = [_format_json(item, deeper) for item in value]
    else:
        parts = [f"{_dump(key)}: {_format_json(item, deeper)}" for key, item in value.items()]
    inside = ",\n".join(f"{deeper}{part}" for part in parts)
    opened, closed = "[]" if isinstance(value, list) else "{}"
    return f"{opened}\n{inside}\n{indent}{closed}"


def _attachment(operation: Operation, answer: Response) -> Attachment:
    from mimetypes import guess_extension  # reads the system's table

    declared = answer.content_type
    kind = declared if declared.isascii() and declared.count("/") == 1 else "application/octet-stream"
    return Attachment(kind, answer.body, f"{operation.name}{guess_extension(kind) or '.bin'}")
