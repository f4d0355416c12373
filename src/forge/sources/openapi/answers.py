"""Makes a result of what a server answered: for the model as much as the document describes, the rest for programs."""

from __future__ import annotations

import json
from typing import Any

from forge.core.execution.threads import in_thread
from forge.core.plain_values import sendable
from forge.core.result import Attachment, ToolResult
from forge.core.secrets import Secrets
from forge.network.response import Response
from forge.sources.openapi.document import Document
from forge.sources.openapi.operations import Operation
from forge.sources.openapi.trimming import Trimmer, schema_for
from forge.sources.untrusted import one_line

LARGEST = 8 * 1024 * 1024  # bytes of an answer
LARGE = 64 * 1024  # bytes: more is read beside the event loop
WIDTH = 160  # characters: a part of JSON that is shorter stays on one line

_dumped = json.JSONEncoder(ensure_ascii=False).encode
_SHOWN = ("retry-after", "location", "link")  # headers that say what to do next
_KEPT = frozenset({*_SHOWN, "content-type", "etag", "last-modified", "www-authenticate"})
_LIMITS = ("x-ratelimit", "ratelimit")
_FORBIDDEN = "the server did not accept the credentials, or there are none; they are in the configuration"


class Answers:
    """Of one mounted document. `secrets` are masked, should a server send them back."""

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
            notes.append(f"only the first {len(answer.body):,} bytes of the answer; ask for less")
        text, data["body"], left_out, attachments = self._body(operation, answer)
        if left_out:
            data["left_out"] = left_out
            notes.append(
                f"{left_out:,} {'value' if left_out == 1 else 'values'} that the API does not describe left out"
            )
        lines += ["", text] if text else []
        lines += [f"[{note}]" for note in notes]
        return ToolResult(
            for_llm="\n".join(lines),
            title=f"{one_line(operation.title, 100)}: {said}",
            data=data,
            attachments=attachments,
        )

    def _body(self, operation: Operation, answer: Response) -> tuple[str, Any, int, tuple[Attachment, ...]]:
        """For the model, for programs, how much was left out of the former, and what is no text."""
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
        if 200 <= answer.status < 300:  # an error is shown whole: nobody describes all of them
            schema = schema_for(self._document, operation.raw.get("responses"), answer.status)
            shown_value, left_out = self._trimmer.trimmed(value, schema)
        return _on_lines(shown_value, ""), value, left_out, ()

    def _headers(self, answer: Response) -> dict[str, str]:
        kept: dict[str, str] = {}
        for name, value in answer.headers:
            if name in _KEPT or name.startswith(_LIMITS):
                value = one_line(self._secrets.mask(value), 1_000)
                kept[name] = f"{kept[name]}, {value}" if name in kept else value
        return kept


def _read_json(text: str) -> Any:
    from pydantic_core import from_json  # heavy: only where somebody answers

    return from_json(text)


def _on_lines(value: Any, indent: str) -> str:
    """JSON in which short parts stay on their line."""
    compact = _dumped(value)
    if len(compact) <= WIDTH or not isinstance(value, dict | list) or len(indent) > 40:
        return compact
    deeper = f"{indent}  "
    if isinstance(value, list):
        parts = [_on_lines(item, deeper) for item in value]
    else:
        parts = [f"{_dumped(key)}: {_on_lines(item, deeper)}" for key, item in value.items()]
    inside = ",\n".join(f"{deeper}{part}" for part in parts)
    opened, closed = "[]" if isinstance(value, list) else "{}"
    return f"{opened}\n{inside}\n{indent}{closed}"


def _attachment(operation: Operation, answer: Response) -> Attachment:
    from mimetypes import guess_extension  # reads the system's table

    declared = answer.content_type
    kind = declared if declared.isascii() and declared.count("/") == 1 else "application/octet-stream"
    return Attachment(kind, answer.body, f"{operation.name}{guess_extension(kind) or '.bin'}")
