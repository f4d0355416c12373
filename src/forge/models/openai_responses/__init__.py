"""Provides the Responses API of OpenAI and compatible servers."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.models.http.errors import PromptTooLong, add_key_advice
from forge.models.http.fetch import suggest_model
from forge.models.http.outgoing import Sign
from forge.models.http.post import SILENCE, Event, drain, post_stream, stream_error
from forge.models.known_models import add_model_advice
from forge.models.openai import BASE_URL, endpoint_url
from forge.models.openai.request import time_allowed
from forge.models.openai_responses.request import RequestFormat, asks_for_reasoning, request_body
from forge.models.openai_responses.stream import AnswerReader

THINKING = 300.0  # seconds between two pieces of the answer of a model that reasons

_REFUSED_FEATURES = {  # optional features, and how a server says that it does not know them
    "summary": r"reasoning\.summary|reasoning summar|\bsummary\b",
    "include": r"encrypted|\binclude\b",
    "parallel_tool_calls": r"parallel_tool_calls",
    "prompt_cache_key": r"prompt_cache_key",
    "strict": r"\bstrict\b|invalid schema for (?:function|tool)",
}
_REASONS = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-(?:[5-9]|oss)|codex|computer-use)(?!.*-chat)")


class OpenAIResponses:
    """A model behind `{base_url}/responses`.

    Nothing is stored at the server: the history goes with every request, and reasoning goes back encrypted. Without a
    base URL, `OPENAI_BASE_URL` and `OPENAI_API_KEY` of the environment count; with one, only `api_key` is sent there.
    Optional features that a server refuses (summaries, strict schemas …) are left out from then on. The effort of
    reasoning is never one of them.

    Args:
        model: the model's name.
        base_url: the address of the server.
        api_key: the key.
        headers: further headers.
        strict: ask for strict schemas.
        label: the name of the provider in messages.
        key_variable: the environment variable to name where the key is refused.
        sign: returns the headers that authorise a request, for servers that take tokens instead of a key.

    Example:
        >>> agent = Agent(OpenAIResponses("gpt-5.4", api_key="a key"), options={"reasoning_effort": "low"})
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool = True,
        label: str = "openai-responses",
        key_variable: str = "",
        sign: Sign | None = None,
    ) -> None:
        given = bool(api_key or headers or sign)
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL", "").strip() or BASE_URL
            api_key = api_key or os.environ.get("OPENAI_API_KEY")
        key = (api_key or "").strip()
        self._key_variable = key_variable or ("" if given else "OPENAI_API_KEY")
        self._has_key, self._sign = bool(key), sign
        self.model, self.label = model, label
        self.native_output = strict  # a server with strict schemas holds answers to a schema, too
        self._url = endpoint_url(base_url, "/responses")
        self._headers = {**({"authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        host = urlsplit(self._url).hostname or ""
        if host == "api.openai.com" and not self._headers:
            raise ProviderError(
                f"asking {label}:{model}: there is no API key",
                ErrorKind.CONFIG,
                "Set OPENAI_API_KEY, or choose another model with --model.",
            )
        self._is_local = host in ("localhost", "::1") or host.startswith("127.")
        self._spelling = RequestFormat(
            model,
            origin=f"{host}/{model}",
            strict=strict,
            reasons=_REASONS.match(model) is not None,
            has_cache_key=host == "api.openai.com",
        )

    def __repr__(self) -> str:
        return f"<OpenAIResponses {self.label}:{self.model}>"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams text, reasoning and arguments as they come, then the message. Raises `ProviderError`."""
        spelling = self._spelling
        taken = {call.id for message in request.messages for call in message.tool_calls}
        while True:
            body = request_body(request, spelling)
            answer = AnswerReader(spelling.origin, taken, self._error)
            try:
                async with aclosing(self._events(body, request.options)) as events:
                    async for event in events:
                        if isinstance(event, Retrying):
                            yield event
                            continue
                        for part in answer.take(event):
                            yield part
                        if answer.done:
                            await drain(events)
                            break
                message = answer.message()
                break
            except ProviderError as error:
                refused = _find_refused_feature(error, body, request.options)
                if answer.begun or refused is None or refused in spelling.without:
                    if error.status == 404:
                        await suggest_model(error, self._url, self._headers, self.model, "/responses")
                    advised = add_key_advice(error, self._key_variable, sent=self._has_key)
                    raise add_model_advice(advised, self.label, self.model) from error.__cause__
                spelling = replace(spelling, without=spelling.without | {refused})
        self._spelling = spelling
        yield message

    def _events(self, body: dict[str, Any], options: Mapping[str, Any]) -> AsyncGenerator[Event | Retrying, None]:
        timeout = time_allowed(options)
        return post_stream(
            self._url,
            headers=self._headers,
            body=body,
            label=f"{self.label}:{self.model}",
            timeout=timeout,
            silence=self._silence(timeout, options),
            sign=self._sign,
        )

    def _silence(self, timeout: float, options: Mapping[str, Any]) -> float:
        """Returns the longest silence: a local model reads a long prompt first, a reasoning model thinks."""
        if self._is_local:
            return timeout
        return THINKING if self._spelling.reasons or asks_for_reasoning(options) else SILENCE

    def _error(self, error: Any) -> ProviderError:
        return stream_error(error, url=self._url, headers=self._headers, label=f"{self.label}:{self.model}")


def _find_refused_feature(error: ProviderError, body: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
    """Returns the optional feature of the request that the server refuses, if its error names one.

    A feature that the options ask for is not optional.
    """
    if error.status not in (400, 403, 422) or isinstance(error, PromptTooLong):
        return None
    wanted = options.get("reasoning")
    sent = {name for name in ("include", "parallel_tool_calls", "prompt_cache_key") if name in body} - options.keys()
    sent |= {"parallel_tool_calls"} & body.keys()
    sent |= {"strict"} if "tools" in body else set()
    if "summary" in body.get("reasoning", {}) and not (isinstance(wanted, Mapping) and "summary" in wanted):
        sent.add("summary")
    names = (name for name, says in _REFUSED_FEATURES.items() if name in sent and re.search(says, error.message, re.I))
    return next(names, None)
