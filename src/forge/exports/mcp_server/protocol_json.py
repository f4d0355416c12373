"""Converts tools and results to the protocol's format."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from forge.core.plain_values import plain, sendable
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.exports.mcp_server.structured import NOTE, shape_of

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
    """Tells if the size must be measured; a few short values need not be."""
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
