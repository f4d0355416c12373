"""Asks a model over HTTP: the one loop of all vendors, from the request to the message."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.messages import BACKGROUND, Message
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.core.result import Attachment
from forge.models.http.events import SentEvent
from forge.models.http.outgoing import Sign
from forge.models.http.post import SILENCE, drain, post_stream, stream_error

TIMEOUT = 600.0  # seconds for an answer


class Exchange(NamedTuple):
    """One request and the reader of its answer. `state` is the vendor's own."""

    body: dict[str, Any]
    answer: Any  # a `StreamedAnswer`
    state: Any = None


class HttpModel:
    """A model behind HTTP. A vendor writes the request, reads the answer, and explains errors."""

    model: str
    label: str
    _url: str  # to post to
    _headers: Mapping[str, str]
    _sign: Sign | None = None
    _takes = ""  # the files that a prompt may have, in words
    _server_tools: Mapping[str, Sequence[str]] = {}  # what the API runs itself, each kind with its settings

    @abstractmethod
    def _write_file(self, attachment: Attachment) -> Mapping[str, Any] | None:
        """Returns a file in the API's own form; None if it has none."""

    def explain_server_tool(self, tool: Any) -> str:
        """Returns why the API does not run a tool on its servers; "" if it does."""
        from forge.models.server_tools import explain_missing  # few agents use them

        return explain_missing(f"{self.label}:{self.model}", self._server_tools, tool)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams text, reasoning and arguments as they come, then the message. Raises `ProviderError`."""
        check_abilities(self.label, self.model, request)
        check_files(self.label, self.model, request, self._write_file, self._takes)
        following: Exchange | None = self._begin(request)
        while following is not None:
            exchange, answer = following, following.answer
            take = answer.take
            if request.watch is not None:
                request.watch(exchange.body)
            try:
                async with aclosing(self._events(exchange.body, request.options)) as events:
                    async for event in events:
                        if isinstance(event, Retrying):
                            yield event
                            continue
                        for part in take(event):
                            yield part
                        if answer.done:
                            await drain(events)
                            break
                message: Message = answer.message()
            except ProviderError as error:
                following = await self._recover(error, exchange, request)
                continue
            following = self._continue(message, exchange, request)
        yield message

    @abstractmethod
    def _begin(self, request: ModelRequest) -> Exchange:
        """Returns the first request. Raises `ProviderError` for something that the model does not do."""

    async def _recover(self, error: ProviderError, exchange: Exchange, request: ModelRequest) -> Exchange:
        """Returns another request after a failure, or raises the error with advice."""
        raise await self._explain(error) from error.__cause__

    def _continue(self, message: Message, exchange: Exchange, request: ModelRequest) -> Exchange | None:
        """Returns the request that continues an answer; usually none."""
        return None

    async def _explain(self, error: ProviderError) -> ProviderError:
        """Returns the error with advice for a person."""
        return error

    def _silence(self, timeout: float, options: Mapping[str, Any]) -> float:
        """Returns the longest silence between two pieces of an answer, in seconds."""
        return SILENCE

    def _events(self, body: dict[str, Any], options: Mapping[str, Any]) -> AsyncGenerator[SentEvent | Retrying, None]:
        timeout = time_allowed(options)
        return post_stream(
            self._url,
            headers=self._headers_for(body),
            body=body,
            label=f"{self.label}:{self.model}",
            timeout=timeout,
            silence=self._silence(timeout, options),
            sign=self._sign,
        )

    def _headers_for(self, body: Mapping[str, Any]) -> Mapping[str, str]:
        """Returns the headers of a request."""
        return self._headers

    def _error(self, error: Any) -> ProviderError:
        """Returns the error for an error object inside a stream."""
        return stream_error(error, url=self._url, headers=self._headers, label=f"{self.label}:{self.model}")


def call_ids(request: ModelRequest) -> set[str]:
    """Returns the ids of the calls in the history."""
    return {call.id for message in request.messages for call in message.tool_calls}


def time_allowed(options: Mapping[str, Any]) -> float:
    """Returns the option `timeout`, in seconds."""
    value = options.get("timeout")
    if value is None:
        return TIMEOUT
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    raise ProviderError(
        f"reading the options: `timeout` is {str(value)[:40]!r}, not a number of seconds above zero",
        ErrorKind.VALIDATION,
        "Write a number of seconds such as 600, or remove the option.",
    )


# --- Refuses a request for something that a model is known not to do, before the request is sent.


# Families of models by provider, compared with published data in November 2026. Others are tried as they are.
_OPENAI = {
    "images": r"gpt-3\.5|gpt-4(?:-\d{4}|-32k.*)?$|gpt-4-1106-preview|gpt-(?:4o-(?:mini-)?)?audio"
    r"|o1-mini|o1-preview|o3-mini|(?:openai/)?gpt-oss",
    "audio": r"(?!.*audio)",
    "tools": r"gpt-3\.5-turbo-instruct|o1-mini|o1-preview|o\d(?:-mini)?-deep-research",
    "reasoning": r"gpt-3\.5|gpt-4|gpt-audio|chatgpt-4o",
}
_CANNOT: dict[str, dict[str, str]] = {
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": {
        "images": r"claude-(?:2|instant)",
        "tools": r"claude-(?:2|instant)",
        "reasoning": r"claude-(?:2|instant|3-(?:5|haiku|opus|sonnet))",
    },
    "deepseek": {"images": r"deepseek-(?:chat|reasoner)$|deepseek-(?:coder|r1|v3|v4-pro)"},
    "mistral": {"images": r"codestral|voxtral|open-mi[sx]tral|mistral-tiny"},
    "xai": {"images": r"grok-(?:3|beta)", "reasoning": r"grok-(?:2|3(?!-mini)|beta|.*non-reasoning)"},
}
_OFF = (None, False, 0, "none", "off")


def check_abilities(label: str, model: str, request: ModelRequest) -> None:
    """Raises `ProviderError` if the request has images, tools or reasoning that the model is known not to have."""
    cannot = [what for what, family in _CANNOT.get(label, {}).items() if re.match(family, model)]
    if "audio" in cannot and _has_files(request, "audio/"):
        hint = "Choose a model that hears, such as openai-chat:gpt-audio, or give the words as text."
        raise _error(label, model, "it cannot hear audio", hint)
    if "images" in cannot and _has_files(request, "image/"):
        raise _error(label, model, "it cannot see images", "Leave out the image, or choose a model that sees images.")
    if "tools" in cannot and request.tools:
        hint = f"Use text:{label}:{model}, which writes calls in its text, or choose another model."
        raise _error(label, model, "it cannot call tools", hint)
    if "reasoning" in cannot and _asks_for_reasoning(request.options):
        hint = "Leave out `reasoning_effort` and `thinking`, or choose a model that reasons."
        raise _error(label, model, "it does not reason", hint)


def check_files(
    label: str,
    model: str,
    request: ModelRequest,
    write: Callable[[Attachment], Mapping[str, Any] | None],
    takes: str,
) -> None:
    """Raises `ProviderError` if the prompt has a file that the API has no form for.

    A file in an earlier prompt, which another model may have answered, becomes a note; so does one in a result.
    """
    for message in reversed(request.messages):
        if message.role == "assistant":
            return
        if message.role != "user" or BACKGROUND in message.extra:
            continue
        for one in message.attachments:
            if not one.text and write(one) is None:
                what = f"the address {one.url}" if one.url else f"{one.name or 'a file'} ({one.media_type})"
                hint = f"It takes {takes}. Give another form of the file, or choose another model."
                raise _error(label, model, f"it does not take {what[:200]}", hint)


def _has_files(request: ModelRequest, kind: str) -> bool:
    """Returns whether a person's message has such a file. A file in a result becomes a note elsewhere."""
    prompts = (message for message in request.messages if message.role == "user" and message.attachments)
    return any(one.media_type.lower().startswith(kind) for message in prompts for one in message.attachments)


def _asks_for_reasoning(options: Mapping[str, Any]) -> bool:
    wanted = options.get("reasoning")
    effort = wanted.get("effort") if isinstance(wanted, Mapping) else wanted
    thinking = options.get("thinking")
    if isinstance(thinking, Mapping):
        thinking = thinking.get("type") != "disabled"
    return any(value not in _OFF for value in (effort, options.get("reasoning_effort"), thinking))


def _error(label: str, model: str, problem: str, suggestion: str) -> ProviderError:
    return ProviderError(f"asking {label}:{model}: {problem}", ErrorKind.VALIDATION, suggestion)
