"""Tools for models that have none of their own: calls as `<tool>…</tool>` in the text.

The model is told the rules and the tools in its system prompt, and answers

    <tool>
    {"server_name": "local", "tool_name": "file_read", "arguments": {"path": "a.txt"}}
    </tool>

or the same in XML: `<tool><tool_name>file_read</tool_name><arguments><path>a.txt</path></arguments></tool>`, where
CDATA is taken as it is, entities are decoded once, repeated elements are lists, and values are typed by the tool's
schema. Calls never appear in the text that is shown. `_text_parser` says what counts as a call.

Calls that must not run are calls all the same, so that the model gets an answer to them. `Message.extra` says why:
- `refused`: by the call's id, what is wrong with it. Either it cannot be read; then its `arguments` are its text, from
  `<tool>` on, which is no JSON, so that no tool takes it. Or its server is not mounted; then it has that `server`.
- `unterminated`: the text of a call that was cut. It is the last call, and the message's `finish` is "length".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from forge.core.events import TextDelta
from forge.core.messages import Finish, Message, ToolCall
from forge.core.provider import ModelRequest, Provider, ProviderError
from forge.core.spec import ToolSpec
from forge.models.text_calls.call import Read, read_call, refused
from forge.models.text_calls.parser import Body, CallScanner
from forge.models.text_calls.prompt import in_text, protocol

MOST_CALLS = 100  # in one message
_NATIVE = ("tool_choice", "parallel_tool_calls")  # options of no meaning to a model without tools


def text_calls(provider: Provider, *, server_names: Sequence[str] = ("local",)) -> TextCalls:
    """Give a model tools through its text. Calls of other servers than these, or mounted ones, are refused."""
    return TextCalls(provider, server_names)


class TextCalls:
    """A provider that wraps a provider."""

    expects_calls = True  # the model is told to call a tool in every reply

    def __init__(self, provider: Provider, server_names: Sequence[str] = ("local",)) -> None:
        self.provider = provider
        self.server_names = tuple(server_names)
        self._told: tuple[tuple[Any, ...], str] = ((), "")

    def __repr__(self) -> str:
        return f"text_calls({self.provider!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | Message, None]:
        """Streams the text around the calls, then the whole message with its calls. Raises `ProviderError`."""
        heard = _Heard(request.tools, self.server_names)
        inner = self.provider.stream(self._request(request))
        message: Message | None = None
        length = 0
        try:
            async for part in inner:
                if isinstance(part, Message):
                    message = part
                    break
                length += len(part.text)
                if text := heard.feed(part.text):
                    yield TextDelta(text)
        finally:
            if close := getattr(inner, "aclose", None):
                await close()
        if message is None:
            raise ProviderError(
                "asking a model for calls in its text: its stream ended without a message",
                suggestion="The last item of a provider's stream must be a Message.",
            )
        if text := heard.finish(message.text[length:]):
            yield TextDelta(text)
        yield heard.message(message)

    def _request(self, request: ModelRequest) -> ModelRequest:
        options = {key: value for key, value in request.options.items() if key not in _NATIVE}
        return ModelRequest(messages=in_text(request.messages, self._instructions(request)), options=options)

    def _instructions(self, request: ModelRequest) -> str:
        """Written anew only when the tools or what is asked of them have changed."""
        if not request.tools or request.options.get("tool_choice") == "none":
            return ""
        key = (*request.tools, *(str(request.options.get(option)) for option in _NATIVE))
        if self._told[0] != key:
            self._told = (key, protocol(request.tools, request.options))
        return self._told[1]


class _Heard:
    """What a model has said so far: the text that is shown, and the calls in it."""

    def __init__(self, tools: Sequence[ToolSpec], servers: Sequence[str]) -> None:
        self._scanner = CallScanner()
        self._tools: Mapping[str, ToolSpec] = {name: spec for spec in tools for name in (*spec.aliases, spec.name)}
        self._servers = servers
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._refused: dict[str, str] = {}

    def feed(self, piece: str) -> str:
        return self._sorted(self._scanner.feed(piece))

    def finish(self, piece: str) -> str:
        """The rest of the text. A call that was cut becomes the last one, so that it gets its answer."""
        text = self._sorted([*self._scanner.feed(piece), *self._scanner.finish()])
        if cut := self._scanner.unterminated:
            problem = (
                "the call was cut before its </tool>, and was not run. Send it again, in smaller parts if it is long."
            )
            self._add(refused(cut.removeprefix("<tool>"), problem, end=""))
        return text

    def message(self, original: Message) -> Message:
        cut = self._scanner.unterminated
        extra: dict[str, Any] = dict(original.extra)
        extra |= {"refused": self._refused} if self._refused else {}
        extra |= {"unterminated": cut} if cut else {}
        calls = (*original.tool_calls, *self._calls)
        finish: Finish = "length" if cut else "calls" if self._calls else original.finish
        return replace(original, text="".join(self._texts), tool_calls=calls, finish=finish, extra=extra)

    def _sorted(self, items: list[str | Body]) -> str:
        texts = [item for item in items if isinstance(item, str)]
        self._texts += texts
        for item in items:
            if isinstance(item, Body) and len(self._calls) < MOST_CALLS:
                self._add(read_call(item, self._tools, self._servers))
            elif isinstance(item, Body) and len(self._calls) == MOST_CALLS:
                problem = (
                    f"a reply may hold {MOST_CALLS} calls; this one and those after it were not run. Send them again."
                )
                self._add(refused(item.text, problem))
        return "".join(texts)

    def _add(self, read: Read) -> None:
        self._calls.append(read.call)
        if read.problem:
            self._refused[read.call.id] = read.problem
