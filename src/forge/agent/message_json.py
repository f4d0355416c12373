"""Converts a message to JSON and back, for the rows of the session store and for exports."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, get_args

from forge.core.messages import Finish, Message, Role, ToolCall, Usage
from forge.core.plain_values import brief, plain
from forge.core.result import Attachment

DEEP = 100  # brackets: with fewer, data is not nested too deeply to be read back

_ROLES, _FINISHES = frozenset(get_args(Role)), frozenset(get_args(Finish))


def pack_message(message: Message, store: Callable[[Attachment], dict[str, str]]) -> str:
    """Returns the text of a row, from which an equal message is read. `store` says where an attachment's bytes are."""
    wire = _to_wire(message, store, _to_json_value)
    text = json.dumps(wire, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates are kept as escapes
        return json.dumps(wire, separators=(",", ":"))
    return text


def unpack_message(text: str, bytes_of: Callable[[Mapping[str, Any]], bytes]) -> Message:
    return _from_wire(json.loads(text), bytes_of)


def export_message(message: Message) -> dict[str, Any]:
    """Returns the message in a form that any JSON reader takes; attachments are base64."""
    wire: dict[str, Any] = plain(
        _to_wire(message, lambda one: {"data": b64encode(one.data).decode()}, lambda value: value)
    )
    return wire


def import_message(wire: Mapping[str, Any]) -> Message:
    """Reads the message that `export_message` wrote. Raises ValueError in words."""
    return _from_wire(wire, lambda one: b64decode(text_in(one, "data"), validate=True))


def _to_wire(
    message: Message,
    store: Callable[[Attachment], dict[str, str]],
    encode: Callable[[Mapping[str, Any]], Any],
) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.tool_calls:
        wire["tool_calls"] = [
            {
                "id": call.id,
                "name": call.name,
                "arguments": call.arguments if isinstance(call.arguments, str) else encode(call.arguments),
                **({} if call.server == "local" else {"server": call.server}),
            }
            for call in message.tool_calls
        ]
    if message.call_id:
        wire["call_id"] = message.call_id
    if message.attachments:
        wire["attachments"] = [
            {"media_type": one.media_type, "name": one.name, **store(one)} for one in message.attachments
        ]
    if message.finish:
        wire["finish"] = message.finish
    if any(message.usage):
        wire["usage"] = message.usage._asdict()
    if message.extra:
        wire["extra"] = encode(message.extra)
    if message.is_error:
        wire["is_error"] = True
    return wire


def _from_wire(wire: Any, bytes_of: Callable[[Mapping[str, Any]], bytes]) -> Message:
    role, finish, extra = text_in(wire, "role"), text_in(wire, "finish", ""), wire.get("extra", {})
    if role not in _ROLES:
        raise ValueError(f"role: expected one of {', '.join(sorted(_ROLES))}, got {brief(role)}")
    if not isinstance(extra, Mapping):
        raise ValueError(f"extra: expected an object, got {brief(extra)}")
    return Message(
        role,  # type: ignore[arg-type]
        text_in(wire, "text", ""),
        tuple(_read_call(one) for one in list_in(wire, "tool_calls")),
        text_in(wire, "call_id", ""),
        tuple(
            Attachment(text_in(one, "media_type"), bytes_of(one), text_in(one, "name", ""))
            for one in list_in(wire, "attachments")
        ),
        finish if finish in _FINISHES else "",  # type: ignore[arg-type]
        _read_usage(wire.get("usage", {})),
        extra,
        wire.get("is_error") is True,
    )


def _read_call(wire: Any) -> ToolCall:
    name, identifier = text_in(wire, "name"), text_in(wire, "id")
    arguments = wire.get("arguments", {})
    if not isinstance(arguments, str | Mapping):
        raise ValueError(f"arguments: expected an object or its JSON text, got {brief(arguments)}")
    return ToolCall(name, arguments, identifier, text_in(wire, "server", "local"))


def _read_usage(wire: Any) -> Usage:
    if not isinstance(wire, Mapping) or not all(isinstance(wire.get(name, 0), int) for name in Usage._fields):
        raise ValueError(f"usage: expected an object of numbers, got {brief(wire)}")
    return Usage(**{name: wire.get(name, 0) for name in Usage._fields})


def text_in(wire: Any, name: str, default: str | None = None) -> str:
    """Returns the text of that name. Raises ValueError in words, here and below."""
    if not isinstance(wire, Mapping):
        raise ValueError(f"expected an object, got {brief(wire)}")
    value = wire.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected a text, got {brief(value)}" if name in wire else f"{name} is missing")
    return value


def list_in(wire: Mapping[str, Any], name: str) -> list[Any]:
    """Returns the list of that name; empty if there is none."""
    value = wire.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name}: expected a list, got {brief(value)}")
    return value


def _to_json_value(value: Mapping[str, Any]) -> Any:
    """Returns the value as it is where JSON can restore it, else a description."""
    value = dict(value)
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return plain(value)
    return value if text.count("{") + text.count("[") < DEEP else plain(value)
