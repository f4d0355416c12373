"""Gives tools to models without native tools: calls are written as `<tool>…</tool>` in the text.

The system prompt states the rules and the tools, and the model answers

    <tool>
    {"server_name": "local", "tool_name": "file_read", "arguments": {"path": "a.txt"}}
    </tool>

or the same in XML: `<tool><tool_name>file_read</tool_name><arguments><path>a.txt</path></arguments></tool>`, where
CDATA is taken as it is, entities are decoded once, repeated elements are lists, and values are typed by the tool's
schema. Calls never appear in the text that is shown. `parser` defines what counts as a call.

Calls that must not run are still calls, so that the model gets an answer to them. `Message.extra` gives the reason:
- `refused`: the problem of each call, by the call's id. Either the call cannot be read; then its `arguments` are its
  text, from `<tool>` on, which is no JSON, so that no tool takes it. Or its server is not mounted; then it has that
  `server`.
- `unterminated`: the text of a call that was cut. It is the last call, and the message's `finish` is "length".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from forge.core.events import TextDelta
from forge.core.messages import Finish, Message, ToolCall
from forge.core.provider import ModelRequest, Provider, ProviderError, StreamPart
from forge.core.spec import ToolSpec
from forge.models.text_calls.call import ReadCall, read_call, refuse_call
from forge.models.text_calls.parser import Body, CallScanner
from forge.models.text_calls.prompt import describe_protocol, render_history

MOST_CALLS = 100  # in one message
_NATIVE = ("tool_choice", "parallel_tool_calls")  # options that do not apply to a model without tools


def text_calls(provider: Provider, *, server_names: Sequence[str] = ("local",)) -> TextCalls:
    """Gives a model tools through its text, for models that cannot call tools themselves.

    Args:
        provider: the model.
        server_names: servers whose calls are accepted; calls of others that are not mounted are refused.

    Example:
        >>> agent = Agent(text_calls(Scripted("Hello!")))
    """
    return TextCalls(provider, server_names)


class TextCalls:
    """A provider that wraps a provider."""

    expects_calls = True  # the prompt demands a tool call in every reply

    def __init__(self, provider: Provider, server_names: Sequence[str] = ("local",)) -> None:
        self.provider = provider
        self.server_names = tuple(server_names)
        self._told: tuple[tuple[Any, ...], str] = ((), "")

    def __repr__(self) -> str:
        return f"text_calls({self.provider!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams the text around the calls, then the whole message with its calls. Raises `ProviderError`."""
        reply = _ReplyReader(request.tools, self.server_names)
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
        if text := reply.finish(message.text[length:]):
            yield TextDelta(text)
        yield reply.message(message)

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

    def __init__(self, tools: Sequence[ToolSpec], servers: Sequence[str]) -> None:
        self._scanner = CallScanner()
        self._tools: Mapping[str, ToolSpec] = {name: spec for spec in tools for name in (*spec.aliases, spec.name)}
        self._servers = servers
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._refused: dict[str, str] = {}

    def feed(self, piece: str) -> str:
        return self._take_items(self._scanner.feed(piece))

    def finish(self, piece: str) -> str:
        """Returns the rest of the text. A call that was cut becomes the last one, so that it gets an answer."""
        text = self._take_items([*self._scanner.feed(piece), *self._scanner.finish()])
        if cut := self._scanner.unterminated:
            problem = (
                "the call was cut before its </tool>, and was not run. Send it again, in smaller parts if it is long."
            )
            self._add(refuse_call(cut.removeprefix("<tool>"), problem, end=""))
        return text

    def message(self, original: Message) -> Message:
        cut = self._scanner.unterminated
        extra: dict[str, Any] = dict(original.extra)
        extra |= {"refused": self._refused} if self._refused else {}
        extra |= {"unterminated": cut} if cut else {}
        calls = (*original.tool_calls, *self._calls)
        finish: Finish = "length" if cut else "calls" if self._calls else original.finish
        return replace(original, text="".join(self._texts), tool_calls=calls, finish=finish, extra=extra)

    def _take_items(self, items: list[str | Body]) -> str:
        texts = [item for item in items if isinstance(item, str)]
        self._texts += texts
        for item in items:
            if isinstance(item, Body) and len(self._calls) < MOST_CALLS:
                self._add(read_call(item, self._tools, self._servers))
            elif isinstance(item, Body) and len(self._calls) == MOST_CALLS:
                problem = (
                    f"a reply may contain at most {MOST_CALLS} calls; this one and the following ones were not run."
                    " Send them again."
                )
                self._add(refuse_call(item.text, problem))
        return "".join(texts)

    def _add(self, read: ReadCall) -> None:
        self._calls.append(read.call)
        if read.problem:
            self._refused[read.call.id] = read.problem
