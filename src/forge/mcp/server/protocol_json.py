"""Converts tools and results to the protocol's format; structured content fits the tool's output schema."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import jsonschema_rs

from forge.core.plain_values import plain, sendable, text_of
from forge.core.result import DONE, RESULT, Attachment, ToolResult
from forge.core.spec import Permission, ToolSpec, once_for_each_spec

MAX_STRUCTURED = 1024 * 1024  # bytes of `data` as JSON; a larger one is left out
MAX_ATTACHED = 32 * 1024 * 1024  # bytes of all attachments of a result

_CHANGES = {Permission.WRITE, Permission.EXECUTE}


def definition(spec: ToolSpec) -> dict[str, Any]:
    """Returns a tool's entry for `tools/list`. Raises the errors of building its schema."""
    permissions = sorted(str(one) for one in spec.permissions | spec.optional_permissions)
    shape = shape_of(spec)
    return {
        "name": spec.name,
        "title": spec.name.replace("__", ": ").replace("_", " ").capitalize(),
        "description": sendable(spec.description),
        "inputSchema": {"type": "object", "properties": {}, **plain(spec.parameters)},
        **({"outputSchema": shape.schema} if shape is not None else {}),
        "annotations": hints(spec),
        "_meta": {"forge/permissions": permissions, "forge/category": str(spec.category), "forge/origin": spec.origin},
    }


def hints(spec: ToolSpec) -> dict[str, bool]:
    """Returns hints that are derived from the permissions and never more lenient."""
    permissions = spec.permissions | spec.optional_permissions
    reads = permissions <= {Permission.READ} and not (spec.confirm or spec.irreversible)
    changes = (
        spec.irreversible
        or bool(permissions & _CHANGES)
        or spec.confirm
        or (Permission.NETWORK in permissions and not spec.idempotent)
    )
    return {
        "readOnlyHint": reads,
        "destructiveHint": changes,
        "idempotentHint": spec.idempotent,
        "openWorldHint": Permission.NETWORK in permissions,
    }


def result(outcome: ToolResult, call_id: str, spec: ToolSpec | None = None) -> dict[str, Any]:
    """Returns the answer of `tools/call`: the model's text, the attachments, and the data as structured content.

    The data of a tool with a declared return type fits the `outputSchema` of its definition.
    """
    content: list[dict[str, Any]] = []
    if outcome.for_llm:
        content.append({"type": "text", "text": sendable(outcome.for_llm)})
    content += _attachment_blocks(outcome.attachments, call_id)
    wire: dict[str, Any] = {"content": content, "isError": outcome.is_error, "resultType": "complete"}
    if outcome.failure is not None:
        wire["_meta"] = {"forge/error_type": str(outcome.failure.kind)}
    shape = shape_of(spec) if spec is not None and not outcome.is_error else None
    if shape is not None:
        _add_structured(wire, shape.fit(outcome))
        wire.setdefault("structuredContent", {NOTE: "The data is too large to send."})
    elif outcome.data:
        _add_structured(wire, outcome.data)
    return wire


def _add_structured(wire: dict[str, Any], data: Mapping[str, Any]) -> None:
    structured = plain(data)
    size = len(json.dumps(structured, ensure_ascii=False)) if _may_be_large(data) else 0
    if size > MAX_STRUCTURED:
        wire.setdefault("_meta", {})["forge/structured_left_out"] = size
    elif isinstance(structured, dict):
        wire["structuredContent"] = structured


def _may_be_large(data: Mapping[str, Any]) -> bool:
    """Returns whether the size must be measured; a few short values need not be."""
    return len(data) > 20 or not all(
        value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < 10_000)
        for value in data.values()
    )


def _attachment_blocks(attachments: tuple[Attachment, ...], call_id: str) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    left = MAX_ATTACHED
    for number, one in enumerate(attachments, 1):
        left -= len(one.data)
        if left < 0:
            note = f"[attachment {number}, {one.name} {one.media_type}: {len(one.data)} bytes are too large to send]"
            blocks.append({"type": "text", "text": sendable(note)})
        else:
            blocks.append(block(one, attachment_uri(one, call_id, number)))
    return blocks


def attachment_uri(one: Attachment, call_id: str, number: int) -> str:
    """Returns a URI for an attachment, which is part of a result and cannot be read again."""
    return f"forge://results/{quote(call_id)}/{number}/{quote(sendable(one.name), safe='')}"


def block(one: Attachment, uri: str) -> dict[str, Any]:
    """Returns an attachment as an image, a sound or an embedded resource."""
    media = sendable(one.media_type)
    kind = media.partition("/")[0].lower()
    if kind in ("image", "audio"):
        return {"type": kind, "data": b64encode(one.data).decode(), "mimeType": media}
    try:
        payload = {"text": one.data.decode()} if kind == "text" else {"blob": b64encode(one.data).decode()}
    except UnicodeDecodeError:
        payload = {"blob": b64encode(one.data).decode()}
    return {"type": "resource", "resource": {"uri": uri.rstrip("/"), "mimeType": media, **payload}}


# --- Converts the data of a result for MCP: an object that fits the tool's output schema.


log = logging.getLogger(__name__)

NOTE = "forge_note"
_ADDED = ("attempts", "edited_arguments", "repaired", "rounds", "warning")  # by steps, to any data
_NOTE = {"type": "string", "description": "The reason why the data is missing. Read the text instead."}


class OutputShape:
    """The shape of a tool's data: clients see `schema`, and `fit` makes the data of a result fit it.

    A call may succeed without data: it was a repetition, it continues in the background, its result was too long, or
    the data does not fit the schema. Then a note replaces the data, which the schema allows.
    """

    def __init__(self, returns: Mapping[str, Any]) -> None:
        own = _root(returns)
        self.is_wrapped = not (own.get("type") == "object" and not own.keys() & {"anyOf", "oneOf", "allOf", "$ref"})
        if self.is_wrapped:
            shelf = {"$defs": own["$defs"]} if "$defs" in own else {}
            inner = {key: value for key, value in own.items() if key != "$defs"}
            own = {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], **shelf}
        required = own.pop("required", [])
        if own.get("additionalProperties") is False:
            del own["additionalProperties"]  # steps add to the data
        own["properties"] = {**own.get("properties", {}), NOTE: _NOTE}
        if required:
            own["anyOf"] = [{"required": required}, {"required": [NOTE]}]
        self.schema: dict[str, Any] = own
        self._validator = jsonschema_rs.validator_for(own, offline=True)

    @property
    def is_text(self) -> bool:
        """True if a text may be the value: texts are content, not data."""
        return self.is_wrapped and self._fits({RESULT: "a text of any kind"})

    def fit(self, outcome: ToolResult) -> dict[str, Any]:
        """Returns the data of a call that succeeded, or a note."""
        for found in _wrapped_values(outcome) if self.is_wrapped else _objects(outcome):
            if self._fits(found):
                return found
        return {NOTE: _explain(outcome)}

    def _fits(self, found: Any) -> bool:
        return bool(self._validator.is_valid(found))


@once_for_each_spec
def shape_of(spec: ToolSpec) -> OutputShape | None:
    """Returns the shape of a tool's data; None if the tool does not declare it, or returns text."""
    returns = spec.returns
    if returns is None:
        return None
    try:
        shape = OutputShape(plain(returns))
    except (ValueError, jsonschema_rs.ReferencingError) as error:  # a class may write its schema itself
        log.warning(
            "%s is offered without an output schema, because its schema is invalid: %s", spec.name, text_of(error)[:300]
        )
        return None
    return None if shape.is_text else shape


def _root(returns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema, with its root resolved if it only refers to a definition, as for a recursive class."""
    own = dict(returns)
    name = str(own.get("$ref", "")).removeprefix("#/$defs/")
    if own.keys() == {"$ref", "$defs"} and name in own["$defs"]:
        return {**own["$defs"][name], "$defs": own["$defs"]}
    return own


def _objects(outcome: ToolResult) -> list[dict[str, Any]]:
    data = plain(outcome.data)
    if not isinstance(data, dict):
        return []
    return [data, {key: value for key, value in data.items() if key not in _ADDED}]


def _wrapped_values(outcome: ToolResult) -> list[dict[str, Any]]:
    """Reads a value that is not an object from the text, where secrets are already masked; notes may follow it."""
    if outcome.data.get(RESULT) == "":
        return [{RESULT: ""}]
    first = outcome.for_llm.partition("\n")[0]
    found: list[dict[str, Any]] = []
    try:
        found.append({RESULT: json.loads(first)})
    except (ValueError, RecursionError):
        pass
    if first == DONE:
        found.append({RESULT: None})
    return [*found, {RESULT: first}]


def _explain(outcome: ToolResult) -> str:
    if outcome.pending:
        return "The work continues in the background."
    if outcome.data.get("repeated"):
        return "The call repeated an earlier one and was not run again."
    return "The result does not match the tool's schema, or is incomplete."
