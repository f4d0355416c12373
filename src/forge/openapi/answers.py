"""Converts a server's answer to a result: the model sees what the document describes, programs see everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from forge.core.execution.threads import in_thread
from forge.core.plain_values import sendable
from forge.core.result import Attachment, ToolResult
from forge.core.secrets import Secrets
from forge.core.untrusted import one_line
from forge.network.body import Response
from forge.openapi.document import BrokenOperation, Document
from forge.openapi.operations import ApiOperation

LARGEST_ANSWER = 8 * 1024 * 1024  # bytes of an answer
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

    async def result(self, operation: ApiOperation, answer: Response) -> ToolResult:
        if len(answer.body) <= LARGE:
            return self._result(operation, answer)
        return await in_thread(lambda: self._result(operation, answer))

    def _result(self, operation: ApiOperation, answer: Response) -> ToolResult:
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

    def _body(self, operation: ApiOperation, answer: Response) -> tuple[str, Any, int, tuple[Attachment, ...]]:
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


def _attachment(operation: ApiOperation, answer: Response) -> Attachment:
    from mimetypes import guess_extension  # reads the system's table

    declared = answer.content_type
    kind = declared if declared.isascii() and declared.count("/") == 1 else "application/octet-stream"
    return Attachment(kind, answer.body, f"{operation.name}{guess_extension(kind) or '.bin'}")


# --- Removes undescribed values from an answer, to save tokens.


DEEPEST_ANSWER = 60
_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "not", "if")


class _Shape(NamedTuple):
    """The shape of a value: the properties of an object, the schemas of an array's items."""

    properties: Mapping[str, tuple[Any, ...]] | None  # None: any
    items: tuple[Any, ...]


_ANYTHING = _Shape(None, ())


class Trimmer:
    """Trims answers of one document; the shape of each schema is computed once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._shapes: dict[
            tuple[int, ...], tuple[tuple[Any, ...], _Shape]
        ] = {}  # holds the schemas, so that their ids stay unique

    def trim(self, value: Any, schema: Any) -> tuple[Any, int]:
        """Returns the value, and how many properties were left out. Never raises."""
        return self._trim_value(value, (schema,), 0) if isinstance(schema, Mapping) else (value, 0)

    def _trim_value(self, value: Any, schemas: tuple[Any, ...], depth: int) -> tuple[Any, int]:
        if not schemas or depth > DEEPEST_ANSWER or not isinstance(value, dict | list):
            return value, 0
        shape = self._shape(schemas)
        if isinstance(value, list):
            if not shape.items:
                return value, 0
            parts = [self._trim_value(item, shape.items, depth + 1) for item in value]
            return [part for part, _ in parts], sum(left for _, left in parts)
        known = shape.properties
        if known is None or known.keys().isdisjoint(value):  # the value is not what the document describes
            return value, 0
        described, left_out = {}, 0
        for key, item in value.items():
            if key not in known:
                left_out += 1
                continue
            described[key], inside = (
                self._trim_value(item, known[key], depth + 1) if isinstance(item, dict | list) else (item, 0)
            )
            left_out += inside
        return described, left_out

    def _shape(self, schemas: tuple[Any, ...]) -> _Shape:
        key = tuple(map(id, schemas))
        found = self._shapes.get(key)
        if found is None:
            try:
                shape = self._merge_schemas(schemas)
            except BrokenOperation:
                shape = _ANYTHING
            found = self._shapes[key] = (schemas, shape)
        return found[1]

    def _merge_schemas(self, schemas: tuple[Any, ...]) -> _Shape:
        """Merges several schemas of one value, as in `allOf` and `oneOf`: a property of any of them counts."""
        properties: dict[str, tuple[Any, ...]] = {}
        items: list[Any] = []
        is_open = False
        waiting, seen = [*schemas], 0
        while waiting:
            seen += 1
            schema = self._document.resolve(waiting.pop(0))
            if seen > 500:
                return _ANYTHING
            branches = [one for name in ("allOf", "anyOf", "oneOf") for one in _as_list(schema, name)]
            waiting += branches
            is_open |= any(schema.get(name, False) is not False for name in _OPEN)
            own = schema.get("properties")
            if isinstance(own, Mapping):
                for name, one in own.items():
                    properties[name] = (*properties.get(name, ()), one)
            elif not branches and schema.get("type", "object") in ("object", ["object"]):
                is_open = True  # an object without a description
            items += [schema["items"]] if isinstance(schema.get("items"), Mapping) else []
        return _Shape(None if is_open or not properties else properties, tuple(items))


def _as_list(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def schema_for(document: Document, responses: Any, status: int) -> Any:
    """Returns the schema of the JSON for a status, if the document has one."""
    if not isinstance(responses, Mapping):
        return None
    for key in (str(status), f"{status // 100}XX", "default"):
        if key in responses:
            try:
                content = document.resolve(responses[key]).get("content")
            except BrokenOperation:
                return None
            for media, described_content in content.items() if isinstance(content, Mapping) else ():
                if "json" in str(media) and isinstance(described_content, Mapping):
                    return described_content.get("schema")
            return None
    return None
