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

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from forge.core.errors import DefinitionError
from forge.core.events import TextDelta
from forge.core.messages import Finish, Message, ToolCall
from forge.core.provider import ModelRequest, Provider, ProviderError, StreamPart, name_model
from forge.core.spec import ToolSpec
from forge.models.text_calls.call import ReadCall, read_call, read_written, refuse_call, refuse_foreign
from forge.models.text_calls.dialects import CUT, DIALECTS, dialect_of, may_be_whole, read_whole
from forge.models.text_calls.parser import LARGEST, Body, CallScanner, Foreign, Item, ThoughtEnded
from forge.models.text_calls.prompt import describe_protocol, explain_format, render_history

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
        return ModelRequest(messages=render_history(request.messages, self._instructions(request)), options=options)

    def _instructions(self, request: ModelRequest) -> str:
        """Writes the instructions again only if the tools or their options have changed."""
        if not request.tools or request.options.get("tool_choice") == "none":
            return ""
        key = (*request.tools, *(str(request.options.get(option)) for option in _NATIVE))
        if self._told[0] != key:
            self._told = (key, describe_protocol(request.tools, request.options))
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
        return self._release() if self._size > LARGEST else ""

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
            elif isinstance(item, Body):
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
