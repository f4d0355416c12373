"""Gives tools to models without native tools: calls are written as `<tool>…</tool>` in the text.

The system prompt states the rules and the tools, and the model answers

    <tool>
    {"server_name": "local", "tool_name": "file_read", "arguments": {"path": "a.txt"}}
    </tool>

or the same in XML: `<tool><tool_name>file_read</tool_name><arguments><path>a.txt</path></arguments></tool>`, where
CDATA is taken as it is, entities are decoded once, repeated elements are lists, and values are typed by the tool's
schema. Calls never appear in the text that is shown. `parser` defines what counts as a call, `dialects` has the forms
that families of models were trained to write. Those of the model's family count, too. An answer that is nothing but
JSON or Python calls of known tools counts for every model.

Calls that must not run are still calls, so that the model gets an answer to them. `Message.extra` gives the reason:
- `refused`: the problem of each call, by the call's id. Either the call cannot be read; then its `arguments` are its
  text, from `<tool>` on, which is no JSON, so that no tool takes it. Or its server is not mounted; then it has that
  `server`.
- `unterminated`: the text of a call that was cut. It is the last call, and the message's `finish` is "length".
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from forge.core.arguments.spellings import load, scan
from forge.core.errors import DefinitionError
from forge.core.events import TextDelta
from forge.core.messages import Finish, Message, ToolCall
from forge.core.provider import ModelRequest, Provider, ProviderError, StreamPart, holds_to_schema, name_model
from forge.core.spec import ToolSpec
from forge.models.openai_base import OUTPUT_NAME
from forge.models.text_calls.dialects import CUT, DIALECTS, Written, dialect_of, may_be_whole, read_whole
from forge.models.text_calls.parser import LARGEST_CALL, CallBody, CallScanner, Foreign, Item, ThoughtEnded
from forge.models.text_calls.prompt import call_schema, describe_protocol, explain_format, render_history
from forge.models.text_calls.xml import Malformed, Schema, read_xml

MOST_CALLS = 100  # in one message
LONGEST_DOUBT = 1_000  # characters at the beginning of an answer that decide whether it may be nothing but calls
_NATIVE = ("tool_choice", "parallel_tool_calls")  # options that do not apply to a model without tools


def text_calls(
    provider: Provider, *, server_names: Sequence[str] = ("local",), dialect: str | None = None
) -> TextCalls:
    """Gives a model tools through its text, for models that cannot call tools themselves.

    Args:
        provider: the model.
        server_names: servers whose calls are accepted; calls of others that are not mounted are refused.
        dialect: a form of calls that the model also writes: "hermes" (or "qwen"), "mistral", "llama", "gemma",
            "deepseek" or "react"; "tool" for none. By default, the name of the model decides.

    Example:
        >>> agent = Agent(text_calls(Scripted("Hello!")))
    """
    return TextCalls(provider, server_names, dialect)


def requires_call(choice: Any) -> bool:
    """Returns whether the option `tool_choice` requires a call: any call, or that of a tool by its name."""
    return isinstance(choice, str) and choice not in ("auto", "none")


class TextCalls:
    """A provider that wraps a provider."""

    expects_calls = True  # the prompt demands a tool call in every reply

    def __init__(
        self, provider: Provider, server_names: Sequence[str] = ("local",), dialect: str | None = None
    ) -> None:
        if dialect is not None and dialect not in DIALECTS:
            known = ", ".join(f'"{name}"' for name in DIALECTS)
            raise DefinitionError(f"text_calls(dialect={dialect!r}): there is no such dialect; known: {known}")
        self.provider = provider
        self.server_names = tuple(server_names)
        self.dialect = dialect_of(name_model(provider)[1]) if dialect is None else DIALECTS[dialect]
        self._told: tuple[tuple[Any, ...], str] = ((), "")

    def __repr__(self) -> str:
        return f"text_calls({self.provider!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams the text around the calls, then the whole message with its calls. Raises `ProviderError`."""
        reply = _ReplyReader(request.tools, self.server_names, self.dialect)
        inner = self.provider.stream(self._request(request))
        message: Message | None = None
        length = 0
        try:
            async for part in inner:
                if isinstance(part, Message):
                    message = part
                    break
                if not isinstance(part, TextDelta):
                    yield part
                    continue
                length += len(part.text)
                if text := reply.feed(part.text):
                    yield TextDelta(text)
        finally:
            if close := getattr(inner, "aclose", None):
                await close()
        if message is None:
            raise ProviderError(
                "asking a model for calls in its text: its stream ended without a message",
                suggestion="The last item of a provider's stream must be a Message.",
            )
        if text := reply.finish(message.text[length:], is_cut=message.finish == "length"):
            yield TextDelta(text)
        yield reply.message(message)

    def explain_calls(self, tools: Sequence[ToolSpec]) -> str:
        """Returns the format of a call with an example, for a model whose answer held none."""
        return explain_format(tools)

    def _request(self, request: ModelRequest) -> ModelRequest:
        options = {key: value for key, value in request.options.items() if key not in _NATIVE}
        schema = self._find_schema(request)
        if schema is not None:
            options["response_format"] = {"type": "json_schema", "json_schema": {"name": OUTPUT_NAME, "schema": schema}}
        messages = render_history(request.messages, self._instructions(request, is_held=schema is not None))
        return ModelRequest(
            messages=messages,
            options=options,
            server_tools=request.server_tools,
            session=request.session,
            watch=request.watch,
        )

    def _find_schema(self, request: ModelRequest) -> dict[str, Any] | None:
        """Returns the schema of a call, if the reply has to be one and the model can be held to it."""
        choice = request.options.get("tool_choice")
        if not requires_call(choice) or request.options.get("response_format"):
            return None
        chosen = [spec for spec in request.tools if choice in ("required", spec.name, *spec.aliases)]
        schema = call_schema(chosen) if chosen else None
        return schema if schema is not None and holds_to_schema(self.provider, schema, with_tools=False) else None

    def _instructions(self, request: ModelRequest, *, is_held: bool) -> str:
        """Writes the instructions again only if the tools or their options have changed."""
        if not request.tools or request.options.get("tool_choice") == "none":
            return ""
        key = (*request.tools, *(str(request.options.get(option)) for option in _NATIVE), is_held)
        if self._told[0] != key:
            self._told = (key, describe_protocol(request.tools, request.options, is_held=is_held))
        return self._told[1]


class _ReplyReader:
    """Collects a model's reply: the text to show, and the calls in it."""

    def __init__(self, tools: Sequence[ToolSpec], servers: Sequence[str], dialect: str) -> None:
        self._tools: Mapping[str, ToolSpec] = {name: spec for spec in tools for name in (*spec.aliases, spec.name)}
        self._scanner = CallScanner(dialect, self._tools)
        self._dialect = dialect
        self._specs = tools
        self._servers = servers
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._refused: dict[str, str] = {}
        self._held: list[str] | None = [] if tools else None  # an answer that may be nothing but calls; None: it is not
        self._size = 0

    def feed(self, piece: str) -> str:
        if self._held is None:
            return self._take_items(self._scanner.feed(piece))
        self._held.append(piece)
        self._size += len(piece)
        if len(self._held) == 1 or self._size - len(piece) < LONGEST_DOUBT:  # later pieces do not change it
            may_be = may_be_whole("".join(self._held)[: 2 * LONGEST_DOUBT], [*self._tools])
            if may_be is False or (may_be is None and self._size > LONGEST_DOUBT):
                return self._release()
        return self._release() if self._size > LARGEST_CALL else ""

    def _release(self) -> str:
        """Reads the held text as any other: it is not an answer of nothing but calls."""
        held, self._held = "".join(self._held or ()), None
        return self._take_items(self._scanner.feed(held))

    def finish(self, piece: str, *, is_cut: bool) -> str:
        """Returns the rest of the text. A call that was cut becomes the last one, so that it gets an answer."""
        text = self.feed(piece)
        if self._held is not None:
            whole = "".join(self._held)
            calls = read_whole(whole, self._tools, self._dialect)
            if calls:
                self._held = []
                for one in calls[:MOST_CALLS]:
                    self._add(read_written(one, whole, self._tools))
                return text
            text += self._release()
        text += self._take_items(self._scanner.finish(is_cut=is_cut))
        if cut := self._scanner.unterminated:
            problem = f"{CUT}. Send it again, in smaller parts if it is long. {self._explain()}"
            if cut.startswith("<tool>"):
                problem = problem.replace("its end", "its </tool>")
            self._add(refuse_foreign(cut, problem))
        return text

    def message(self, original: Message) -> Message:
        cut = self._scanner.unterminated
        extra: dict[str, Any] = dict(original.extra)
        extra |= {"refused": self._refused} if self._refused else {}
        extra |= {"unterminated": cut} if cut else {}
        calls = (*original.tool_calls, *self._calls)
        finish: Finish = "length" if cut else "calls" if self._calls else original.finish
        return replace(original, text="".join(self._texts), tool_calls=calls, finish=finish, extra=extra)

    def _take_items(self, items: Sequence[Item]) -> str:
        texts = [item for item in items if isinstance(item, str)]
        self._texts += texts
        for item in items:
            if isinstance(item, ThoughtEnded):
                self._calls.clear()
                self._refused.clear()
            elif isinstance(item, CallBody):
                self._take_call(item.text, lambda body=item: read_call(body, self._tools, self._servers))  # type: ignore[misc]
            elif isinstance(item, Foreign):
                for one in item.calls:
                    self._take_call(item.text, lambda one=one, item=item: read_written(one, item.text, self._tools))  # type: ignore[misc]
        return "".join(texts)

    def _take_call(self, text: str, read: Callable[[], ReadCall]) -> None:
        if len(self._calls) < MOST_CALLS:
            self._add(read())
        elif len(self._calls) == MOST_CALLS:
            problem = (
                f"a reply may contain at most {MOST_CALLS} calls; this one and the following ones were not run."
                " Send them again."
            )
            self._add(refuse_call(text, problem))

    def _add(self, read: ReadCall) -> None:
        self._calls.append(read.call)
        if read.problem:
            example = self._explain(read.call.name)
            is_explained = example in read.problem or "server_name" in read.problem or "Send them again" in read.problem
            self._refused[read.call.id] = read.problem if is_explained else f"{read.problem} {example}"

    def _explain(self, name: str = "") -> str:
        return explain_format(self._specs, name)


# --- Reads a call from the text between `<tool>` and `</tool>`; an unreadable call is refused with a reason, never run.


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


def read_call(body: CallBody, tools: Mapping[str, ToolSpec], servers: Collection[str]) -> ReadCall:
    """Reads a call. Only tools of `servers`, and those mounted as `server__tool`, may be called."""
    try:
        if body.is_too_large:
            advice = "Send the content in smaller parts."
            raise Malformed(f"it has more than {LARGEST_CALL:,} characters", advice)
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
