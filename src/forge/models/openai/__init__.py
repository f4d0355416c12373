"""Provides Chat Completions of OpenAI and compatible servers."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.models.http.errors import PromptTooLong, add_key_advice
from forge.models.http.fetch import suggest_model
from forge.models.http.outgoing import Sign
from forge.models.http.post import SILENCE, Event, drain, post_stream, stream_error
from forge.models.known_models import add_model_advice
from forge.models.openai.answer import AnswerReader
from forge.models.openai.request import RequestFormat, request_body, time_allowed

BASE_URL = "https://api.openai.com/v1"

_REFUSED_FEATURES = {  # optional features, and how a server says that it does not know them
    "stream_options": r"stream_options|include_usage",
    "parallel_tool_calls": r"parallel_tool_calls",
    "strict": r"\bstrict\b|invalid schema for (?:function|tool)",
    "max_tokens": r"(?s)(?=.*(?:unsupported|unknown|unrecognized|unexpected|extra|not (?:supported|permitted|allowed)))"
    r".*\bmax_(?:completion_)?tokens",
}
_REASONING_REFUSED = re.compile(r"(?is)(?=.*\btools?\b).*reasoning_effort")  # reasoning together with tools


class OpenAI:
    """A model behind `{base_url}/chat/completions`.

    Without a base URL, `OPENAI_BASE_URL` and `OPENAI_API_KEY` of the environment count; with one, only `api_key` is
    sent there. Optional features that a server refuses (usage, strict schemas …) are left out from then on.

    Args:
        model: the model's name.
        base_url: the address of the server.
        api_key: the key.
        headers: further headers.
        strict: ask for strict schemas.
        label: the name of the provider in messages.
        short_ids: give calls short ids, which some servers require.
        key_variable: the environment variable to name where the key is refused.
        sign: returns the headers that authorise a request, for servers that take tokens instead of a key.

    Example:
        >>> agent = Agent(OpenAI("qwen3", base_url="http://127.0.0.1:11434/v1"))
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool = True,
        label: str = "openai",
        short_ids: bool = False,
        key_variable: str = "",
        sign: Sign | None = None,
    ) -> None:
        given = bool(api_key or headers or sign)
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL", "").strip() or BASE_URL
            api_key = api_key or os.environ.get("OPENAI_API_KEY")
        key = (api_key or "").strip()
        # a key given by hand needs no variable in advice
        self._key_variable = key_variable or ("" if given else "OPENAI_API_KEY")
        self._has_key, self._sign = bool(key), sign
        self.model, self.label = model, label
        self._url = endpoint_url(base_url, "/chat/completions")
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
            short_ids=short_ids,
            max_tokens="max_completion_tokens" if host == "api.openai.com" else "max_tokens",
        )

    def __repr__(self) -> str:
        return f"<OpenAI {self.label}:{self.model}>"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams text as it comes, then the message. Raises `ProviderError`."""
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
                refused = _find_refused_feature(error, body)
                if answer.begun or refused is None or refused in spelling.without:
                    if error.status in (400, 422) and _REASONING_REFUSED.search(error.message):
                        error.suggestion = self._reasoning_advice()
                    if error.status == 404:
                        await suggest_model(error, self._url, self._headers, self.model, "/chat/completions")
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
            silence=timeout if self._is_local else SILENCE,  # a local model reads a long prompt before it says anything
            sign=self._sign,
        )

    def _reasoning_advice(self) -> str:
        """Advises a person: reasoning is never switched off silently."""
        return (
            f"Use openai-responses:{self.model}, which reasons with tools, or switch reasoning off with the option"
            " reasoning_effort: none."
        )

    def _error(self, error: Any) -> ProviderError:
        return stream_error(error, url=self._url, headers=self._headers, label=f"{self.label}:{self.model}")


def endpoint_url(base_url: str, path: str) -> str:
    """Returns the address to post to; a query, such as an API version, stays at the end."""
    try:
        scheme, host, base, query, _ = urlsplit(base_url.strip())
    except ValueError:
        raise ProviderError(
            "reading the base URL of a model: it is not a URL",
            ErrorKind.CONFIG,
            "Write it as http://HOST:PORT/v1.",
        ) from None
    base = base.rstrip("/")
    return urlunsplit((scheme, host, base if base.endswith(path) else f"{base}{path}", query, ""))


def _find_refused_feature(error: ProviderError, body: Mapping[str, Any]) -> str | None:
    """Returns the optional feature of the request that the server refuses, if its error names one."""
    if error.status not in (400, 422) or isinstance(error, PromptTooLong):
        return None
    sent = set(body)
    if "tools" in body:
        sent |= {"strict"}
    if "max_completion_tokens" in body:
        sent |= {"max_tokens"}
    names = (name for name, says in _REFUSED_FEATURES.items() if name in sent and re.search(says, error.message, re.I))
    return next(names, None)
