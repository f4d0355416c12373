"""Reads a call from the text between `<tool>` and `</tool>`; an unreadable call is refused with a reason, never run."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from forge.core.arguments.almost_json import load, scan
from forge.core.messages import ToolCall
from forge.core.spec import ToolSpec
from forge.models.text_calls.dialects import Written
from forge.models.text_calls.parser import LARGEST, Body
from forge.models.text_calls.xml import Malformed, Schema, read_xml

LONGEST_NAME = 200
UNKNOWN = "unknown_tool"  # called by a text that names no tool

_STRICT = json.JSONDecoder()
_LENIENT = json.JSONDecoder(strict=False)  # line breaks inside strings
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r'(?:"(?:tool_)?name"\s{0,100}:\s{0,100}"|<(?:tool_)?name\s{0,100}>\s{0,100})([\w.\-]{1,200})')
# the members before the arguments, in either kind of quotes
_BEFORE = re.compile(r"""\s*(["'])(server_name|tool_name|name)\1\s*:\s*(["'])([^"'\\\n]{1,200})\3\s*,""")
_ARGUMENTS = re.compile(r"""\s*(["'])(?:arguments|parameters)\1\s*:\s*""")
_FORM = 'Write one JSON object between <tool> and </tool>: {"tool_name": "NAME", "arguments": {…}}.'
FOREIGN = ("<", "[TOOL_CALLS]", "Action", "```")  # how the text of a call begins that is not JSON


class ReadCall(NamedTuple):
    """A call, and the reason why it must not run, if any.

    A text that cannot be read has itself, from `<tool>` on, as its arguments: that is no JSON, so no tool takes it.
    """

    call: ToolCall
    problem: str = ""


class _ParsedCall(NamedTuple):
    server: str
    name: str
    arguments: str  # JSON text


def read_call(body: Body, tools: Mapping[str, ToolSpec], servers: Collection[str]) -> ReadCall:
    """Reads a call. Only tools of `servers`, and those mounted as `server__tool`, may be called."""
    try:
        if body.is_too_large:
            advice = "Send the content in smaller parts."
            raise Malformed(f"it has more than {LARGEST:,} characters", advice)
        written = _parse_call(body.text.strip(), tools)
    except Malformed as error:
        return refuse_call(body.text, f"the call could not be read: {error.problem}. {error.advice}")
    prefix = f"{written.server}__"
    mounted = prefix + written.name.removeprefix(prefix)
    if mounted in tools:
        return ReadCall(ToolCall(mounted, written.arguments))
    if written.server in servers:
        return ReadCall(ToolCall(written.name, written.arguments))
    call = ToolCall(written.name, written.arguments, server=written.server)
    known = " or ".join(json.dumps(server) for server in servers)
    problem = f"there is no server {json.dumps(written.server)}. Write {known} as the server_name."
    return ReadCall(call, f"{written.name} was not called: {problem}")


def read_written(written: Written, text: str, tools: Mapping[str, ToolSpec]) -> ReadCall:
    """Reads a call in the form of a dialect, of which `text` is the whole."""
    if written.problem:
        return refuse_foreign(text, f"the call could not be read: {written.problem}.", written.name)
    return ReadCall(ToolCall(written.name[:LONGEST_NAME], written.arguments))


def refuse_foreign(text: str, problem: str, name: str = "") -> ReadCall:
    """Returns a call of a dialect that cannot be run. Its arguments are its text, which is no JSON."""
    found = _NAME.search(text)
    shown = text if text.startswith(FOREIGN) else f"<tool>{text}"
    return ReadCall(ToolCall(name or (found[1] if found else UNKNOWN), shown), problem)


def refuse_call(text: str, problem: str, end: str = "</tool>") -> ReadCall:
    """Returns a call that cannot be run, under its apparent name."""
    found = _NAME.search(text)
    return ReadCall(ToolCall(found[1] if found else UNKNOWN, f"<tool>{text}{end}"), problem)


def _parse_call(text: str, tools: Mapping[str, ToolSpec]) -> _ParsedCall:
    if text.startswith("```"):
        text = text.partition("\n")[2].removesuffix("```").strip()
    if text.startswith("{"):
        return _from_json(text)
    if not text.startswith("<"):
        raise Malformed("it is neither a JSON object nor XML", _FORM)

    def parameters(name: str) -> Schema:
        return tools[name].parameters if name in tools else {}

    call = read_xml(text, parameters)
    if not isinstance(call.arguments, dict):
        advice = "Write one element per parameter inside <arguments>."
        raise Malformed("its arguments are plain text", advice)
    return _ParsedCall(call.server or "local", _name(call.name), json.dumps(call.arguments, ensure_ascii=False))


def _from_json(text: str) -> _ParsedCall:
    try:
        members = _members(text, _STRICT)
    except (ValueError, RecursionError):
        try:
            members = {key: (value, json.dumps(value)) for key, (value, _) in _members(text, _LENIENT).items()}
        except (ValueError, RecursionError) as error:
            if (found := _from_damaged(text)) is not None:
                return found
            raise Malformed(f"it is not valid JSON ({str(error)[:200]})", _FORM) from None
    server = _first(members, "server_name")
    if not isinstance(server, str | None):
        raise Malformed("its server_name is not a string", _FORM)
    arguments, raw = members.get("arguments") or members.get("parameters") or ({}, "{}")
    if others := members.keys() - {"server_name", "tool_name", "name", "arguments", "parameters"}:
        shown = ", ".join(json.dumps(key[:40], ensure_ascii=False) for key in sorted(others)[:5])
        raise Malformed(f"{shown} is outside the arguments", 'Put every parameter into "arguments".')
    if arguments is None:
        raw = "{}"
    name = _name(_first(members, "tool_name", "name"))
    return _ParsedCall(server or "local", name, arguments if isinstance(arguments, str) else raw)


def _from_damaged(text: str) -> _ParsedCall | None:
    """Reads a call whose arguments are almost JSON; None where the call has another form.

    The arguments stay as they were written: the tool repairs them, and says so.
    """
    at, names = 1, dict[str, str]()
    while (member := _BEFORE.match(text, at)) is not None:
        if member[2] in names:
            return None
        names[member[2]] = member[4]
        at = member.end()
    begin = _ARGUMENTS.match(text, at)
    name = names.get("tool_name") or names.get("name")
    if begin is None or not name or not text.startswith("{", begin.end()):
        return None
    found = scan(text, begin.end())
    if found is None or found.missing or load(found.json) is None or text[found.end :].strip() not in ("", "}", ",}"):
        return None
    is_cut = found.end == len(text.rstrip())  # one brace is missing: the tool decides whether to complete it
    return _ParsedCall(names.get("server_name", "local"), _name(name), text[begin.end() : found.end - is_cut])


def _members(text: str, decoder: json.JSONDecoder) -> dict[str, tuple[Any, str]]:
    """Returns the members of an object, each as its value and its original text."""
    members: dict[str, tuple[Any, str]] = {}
    at = _skip_space(text, 1)
    while not text.startswith("}", at):
        if members:
            at = _skip_space(text, _expect_sign(text, at, ","))
        key, at = decoder.raw_decode(text, at)
        if not isinstance(key, str) or key in members:
            raise json.JSONDecodeError("Expecting a new property name", text, at)
        start = _skip_space(text, _expect_sign(text, _skip_space(text, at), ":"))
        value, at = decoder.raw_decode(text, start)
        members[key] = (value, text[start:at])
        at = _skip_space(text, at)
    if _skip_space(text, at + 1) != len(text):
        raise json.JSONDecodeError("Extra data", text, at + 1)
    return members


def _expect_sign(text: str, at: int, sign: str) -> int:
    if not text.startswith(sign, at):
        raise json.JSONDecodeError(f"Expecting '{sign}'", text, at)
    return at + 1


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _first(members: Mapping[str, tuple[Any, str]], *keys: str) -> Any:
    return next((members[key][0] for key in keys if key in members), None)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise Malformed("it does not name a tool", _FORM)
    if len(name) > LONGEST_NAME:
        raise Malformed(f"its tool name has {len(name):,} characters", "Call one of the tools you were given.")
    return name.strip()
