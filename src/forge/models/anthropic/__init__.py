"""Provides Anthropic's Messages API and servers compatible with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.models.anthropic.request import Thinking, asks_to_think, request_body
from forge.models.anthropic.stream import AnswerReader
from forge.models.http.errors import add_key_advice
from forge.models.http.post import Event, post_stream, stream_error
from forge.models.known_models import add_model_advice

DEFAULT_URL = "https://api.anthropic.com"
TIMEOUT = 600.0  # seconds for one answer
GRACE = 0.2  # seconds a finished answer has to close
MOST_PAUSES = 10  # times the server may pause and continue in another request


class Anthropic:
    """A model of the Messages API.

    Without a base URL, `ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN` of the environment count;
    with one, only `api_key` is sent, so that a key never goes to a server it was not meant for.

    Args:
        model: the model's name.
        base_url: the address of the server.
        api_key: the key.
        headers: further headers.
        max_tokens: the longest answer.
        thinking: a budget in tokens, a word such as "adaptive", or the API's own object. With a budget as large as
            `max_tokens` or larger, `max_tokens` counts what comes after the thinking.

    Example:
        >>> agent = Agent(Anthropic("claude-sonnet-5", api_key="a key", max_tokens=4_096))
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_tokens: int = 8192,
        thinking: Thinking | None = None,
    ) -> None:
        self.model, self.max_tokens, self.thinking = model, max_tokens, thinking
        self.label = "anthropic"
        chosen = base_url or os.environ.get("ANTHROPIC_BASE_URL", "").strip() or DEFAULT_URL
        self.base_url = chosen.rstrip("/").removesuffix("/v1")
        self._key_variable = "" if api_key else _key_variable(os.environ if not base_url else {})
        self._headers = {"anthropic-version": "2023-06-01", **_credentials(api_key, os.environ if not base_url else {})}
        self._headers |= {name.lower(): value for name, value in (headers or {}).items()}

    def __repr__(self) -> str:
        return f"Anthropic({self.model!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams text as it comes, then the whole message. Raises `ProviderError`."""
        self._check_key()
        answer = AnswerReader(f"asking {self._label}", self._refusal)
        current = request
        for pauses in range(MOST_PAUSES + 1):
            body = request_body(
                current,
                model=self.model,
                max_tokens=self.max_tokens,
                thinking=self.thinking,
                origin=self.base_url,
                paused=pauses > 0,
            )
            try:
                async with aclosing(self._events(body, request)) as events:
                    async for event in events:
                        if isinstance(event, Retrying):
                            yield event
                            continue
                        for part in answer.feed(event):
                            yield part
                        if answer.ended:
                            await _read_end(events)
                            break
            except ProviderError as error:
                sent = not {"x-api-key", "authorization"}.isdisjoint(self._headers)
                advised = add_key_advice(error, self._key_variable, sent=sent)
                raise add_model_advice(advised, self.label, self.model) from error.__cause__
            answer.check_complete()
            message = answer.message(self.base_url, thinks=asks_to_think(body))
            if not answer.is_paused:
                break
            current = replace(request, messages=[*request.messages, message])
            answer.continue_response()
        yield message

    def _events(self, body: dict[str, Any], request: ModelRequest) -> AsyncGenerator[Event | Retrying, None]:
        timeout = float(request.options.get("timeout") or TIMEOUT)
        return post_stream(self._url, headers=self._headers, body=body, label=self._label, timeout=timeout)

    def _refusal(self, error: Any) -> ProviderError:
        return stream_error(error, url=self._url, headers=self._headers, label=self._label)

    @property
    def _url(self) -> str:
        return f"{self.base_url}/v1/messages"

    @property
    def _label(self) -> str:
        return f"anthropic:{self.model}"

    def _check_key(self) -> None:
        if self.base_url == DEFAULT_URL and not {"x-api-key", "authorization"} & self._headers.keys():
            raise ProviderError(
                f"asking {self._label}: there is no API key",
                ErrorKind.CONFIG,
                "Set ANTHROPIC_API_KEY, or choose another model with --model.",
            )


async def _read_end(events: AsyncGenerator[Any, None]) -> None:
    """Reads to the end, so that the connection can be used again. Ignores failures: the answer is complete."""
    try:
        async with asyncio.timeout(GRACE):
            async for _ in events:
                pass
    except (TimeoutError, ProviderError):
        pass


def _key_variable(environment: Mapping[str, str]) -> str:
    """Returns the variable that holds the key, or the one to set if there is none."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    return next((name for name in names if environment.get(name, "").strip()), names[0])


def _credentials(api_key: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    if key := (api_key or environment.get("ANTHROPIC_API_KEY", "")).strip():
        return {"x-api-key": key}
    token = environment.get("ANTHROPIC_AUTH_TOKEN", "").strip()
    return {"authorization": f"Bearer {token}"} if token else {}
