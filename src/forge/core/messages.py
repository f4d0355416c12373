"""The messages of a conversation, independent of any provider, and their JSON."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from os import urandom
from typing import Any, Literal, NamedTuple, get_args

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief, clip_bytes, plain, visible
from forge.core.result import Attachment

Role = Literal["system", "user", "assistant", "tool"]

SENT = "sent"  # in `Message.extra`: a person sent it while the run was in progress
BACKGROUND = "background"  # in `Message.extra`: the id of the call whose background work the message reports
SUMMARY_HEADING = "[Summary of the conversation so far, in place of its older messages]"
SERVER_CALLS = "server_calls"  # in `Message.extra` of an answer: the calls that the provider made itself
CONTEXT_EDITS = "context_edits"  # in `Message.extra` of an answer: what the provider left out of its prompt
FOUND = "found_tools"  # in `Message.extra` of a search's result: the hidden tools that it found


def _new_id() -> str:
    return f"call_{urandom(10).hex()}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool.

    Args:
        name: the tool's name.
        arguments: an object, or JSON text that is still to be parsed and checked.
        id: the id of the call; by default a new one.
        server: the server whose tool it is; "local" for the agent's own.

    Example:
        >>> ToolCall("add", {"a": 1, "b": 2}).arguments["b"]
        2
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = field(default_factory=_new_id)
    server: str = "local"


@dataclass(frozen=True, slots=True)
class InnerCall(ToolCall):
    """A call that a tool makes while it runs, such as a line of a script in `run_code`.

    Args:
        parent: the id of the call that makes it.

    Example:
        >>> InnerCall("add", {"a": 1, "b": 2}, id="call_1.1", parent="call_1").parent
        'call_1'
    """

    parent: str = ""


class Usage(NamedTuple):
    """Tokens that were paid for.

    Args:
        input: tokens of the prompts, those from and for the cache included.
        output: tokens of the answers, reasoning included.
        cached: input tokens that were read from the provider's cache.
        cache_writes: input tokens that were written to the provider's cache.
        reasoning: output tokens of reasoning, where the provider counts them.

    Example:
        >>> Usage(input=100, output=20).plus(Usage(input=10)).total
        130
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_writes: int = 0
    reasoning: int = 0

    def plus(self, other: Usage) -> Usage:
        if other is NO_USAGE:
            return self
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_writes + other.cache_writes,
            self.reasoning + other.reasoning,
        )

    def minus(self, other: Usage) -> Usage:
        """Returns the tokens without those of an earlier count."""
        if other == NO_USAGE:
            return self
        return Usage(*(now - before for now, before in zip(self, other, strict=True)))

    @property
    def total(self) -> int:
        return self.input + self.output


NO_USAGE = Usage()

Finish = Literal["", "stop", "calls", "length", "refused"]


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the history.

    Args:
        role: "system", "user", "assistant" or "tool".
        text: the text.
        tool_calls: the calls of an assistant's message.
        call_id: of a tool's message: the call that it answers.
        attachments: images and files.
        finish: why the model stopped; "length": it was cut, and its last call may be incomplete.
        usage: the tokens of an assistant's message.
        extra: data that the provider wants to see again, such as reasoning items, signatures and encrypted content;
            one key for each API. It is stored with the session and sent back to the model that wrote it.
        is_error: of a tool's message: the call failed.

    Example:
        >>> Message("user", "Hello").text
        'Hello'
    """

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    finish: Finish = ""
    usage: Usage = NO_USAGE
    extra: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Lets pydantic read and write messages as `messages_to_json` does: `TypeAdapter(list[Message])`."""
        from pydantic_core import core_schema  # pydantic, which asks, has loaded it

        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else import_message(value),
            serialization=core_schema.plain_serializer_function_ser_schema(export_message),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _: Any, handler: Any) -> dict[str, Any]:
        return _SCHEMA


def unanswered_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Returns the calls without a result, so that a stopped run can simply be run again.

    Args:
        messages: a history.

    Example:
        >>> [call.name for call in unanswered_calls([Message("assistant", tool_calls=(ToolCall("add"),))])]
        ['add']
    """
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.call_id)
        elif message.role == "assistant":
            return tuple(call for call in message.tool_calls if call.id not in answered)
    return ()


def found_tools(message: Message) -> list[str]:
    """Returns the names of the hidden tools that a search found, of the message with its result."""
    names = message.extra.get(FOUND) if message.role == "tool" and not message.is_error else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list | tuple) else []


def server_calls(message: Message) -> list[Mapping[str, Any]]:
    """Returns the calls that the provider made while it answered: `name`, `id`, `input`, and the result as `text`."""
    calls = message.extra.get(SERVER_CALLS) if message.extra and message.role == "assistant" else None
    return [one for one in calls if isinstance(one, Mapping) and isinstance(one.get("name"), str)] if calls else []


def context_edits(message: Message) -> list[Mapping[str, Any]]:
    """Returns what the provider left out before it answered: the `kind` (results, thinking, messages) and `count`."""
    edits = message.extra.get(CONTEXT_EDITS) if message.extra and message.role == "assistant" else None
    return [one for one in edits if isinstance(one, Mapping)] if edits else []


# Converts a message to JSON and back, for the rows of the session store and for exports.


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


VERSION = 1  # of the JSON below; later releases read it, too


def messages_to_json(messages: Sequence[Message]) -> str:
    """Returns a conversation as JSON, to store where you like: attachments and the provider's data included.

    Args:
        messages: such as `RunResult.messages`, or `RunResult.new_messages`.

    Example:
        >>> messages_to_json([Message("user", "Hello")])
        '{"version":1,"messages":[{"role":"user","text":"Hello"}]}'
    """
    wire = {"version": VERSION, "messages": [export_message(message) for message in messages]}
    return json.dumps(wire, ensure_ascii=False, separators=(",", ":"))


def messages_from_json(text: str | bytes) -> list[Message]:
    """Reads what `messages_to_json` wrote, in this release or an earlier one. Raises `ToolError` for anything else.

    Args:
        text: the JSON.

    Example:
        >>> messages_from_json(messages_to_json([Message("user", "Hello")]))[0].text
        'Hello'
    """
    position = 0
    try:
        wire = json.loads(text)
        if not isinstance(wire, Mapping) or "messages" not in wire:
            raise ValueError(f"expected an object with version and messages, got {brief(wire)}")
        if wire.get("version") != VERSION:
            raise ValueError(f"version: expected {VERSION}, got {brief(wire.get('version'))}")
        messages = []
        for position, one in enumerate(list_in(wire, "messages"), 1):  # noqa: B007 - the error names it
            messages.append(import_message(one))
        return messages
    except (ValueError, RecursionError) as error:
        where = f"message {position}: " if position else ""
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else visible(str(error))[:300]
        message = f"reading messages from JSON: {where}{problem}"
        hint = "Give the text that messages_to_json wrote. A version that is not known needs a newer Forge."
        raise ToolError(message, ErrorKind.VALIDATION, hint) from error


_TEXT = {"type": "string"}
_SCHEMA: dict[str, Any] = {  # of one message, for the OpenAPI documents of services
    "title": "Message",
    "type": "object",
    "properties": {
        "role": {"enum": list(get_args(Role))},
        "text": _TEXT,
        "tool_calls": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": _TEXT,
                    "name": _TEXT,
                    "arguments": {"anyOf": [{"type": "object"}, _TEXT]},
                    "server": _TEXT,
                },
                "required": ["id", "name"],
            },
        },
        "call_id": _TEXT,
        "attachments": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "media_type": _TEXT,
                    "name": _TEXT,
                    "data": {"type": "string", "contentEncoding": "base64"},
                    "url": _TEXT,
                },
                "required": ["media_type", "data"],
            },
        },
        "finish": {"enum": list(get_args(Finish))},
        "usage": {"type": "object", "properties": {name: {"type": "integer"} for name in Usage._fields}},
        "extra": {"type": "object"},
        "is_error": {"type": "boolean"},
    },
    "required": ["role"],
}


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
            {
                "media_type": one.media_type,
                "name": one.name,
                **({"url": one.url} if one.url else {}),
                **store(one),
            }
            for one in message.attachments
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
            Attachment(
                text_in(one, "media_type"),
                bytes_of(one),
                text_in(one, "name", ""),
                url=text_in(one, "url", ""),
            )
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


def render_call(call: ToolCall) -> str:
    """Renders a call as the model would write it: `file_read(path="a.txt")`."""
    name, arguments = str(call.name)[:80], call.arguments
    try:
        if isinstance(arguments, str):
            text = arguments[:200].strip()
            return f"{name}({text})" if len(text) <= 80 else f"{name}({text[:80]}…)"
        if not isinstance(arguments, Mapping):
            return f"{name}({brief(arguments)})"
        shown = [f"{str(key)[:40]}={brief(value)}" for key, value in islice(arguments.items(), 8)]
        return f"{name}({clip_bytes(', '.join(shown), 300)})"
    except Exception:  # a custom mapping or key
        return f"{name}(…)"
