"""Provides Anthropic's Messages API and servers compatible with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models.anthropic.output_schema import fits_output
from forge.models.anthropic.request import Thinking, asks_to_think, request_body
from forge.models.anthropic.stream import AnswerReader
from forge.models.http.errors import add_key_advice
from forge.models.http.model import Exchange, HttpModel
from forge.models.known_models import add_model_advice

DEFAULT_URL = "https://api.anthropic.com"
# not Claude 3, and not the first ones of Claude 4
_WITH_SCHEMA = re.compile(r"claude-(?!\d)(?!(?:sonnet|opus)-4(?:-0|-2025|$))")
MOST_PAUSES = 10  # times the server may pause and continue in another request


class Anthropic(HttpModel):
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
        self._url = f"{self.base_url}/v1/messages"
        self._key_variable = "" if api_key else _key_variable(os.environ if not base_url else {})
        self._headers = {"anthropic-version": "2023-06-01", **_credentials(api_key, os.environ if not base_url else {})}
        self._headers |= {name.lower(): value for name, value in (headers or {}).items()}

    def __repr__(self) -> str:
        return f"Anthropic({self.model!r})"

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Says whether the model holds an answer to a schema."""
        return self.label == "anthropic" and _WITH_SCHEMA.match(self.model) is not None and fits_output(schema)

    def _begin(self, request: ModelRequest) -> Exchange:
        self._check_key()
        answer = AnswerReader(self.base_url, set(), self._error, f"asking {self.label}:{self.model}")
        return self._ask(request, answer, pauses=0)

    def _ask(self, request: ModelRequest, answer: AnswerReader, pauses: int) -> Exchange:
        body = request_body(
            request,
            model=self.model,
            max_tokens=self.max_tokens,
            thinking=self.thinking,
            origin=self.base_url,
            paused=pauses > 0,
        )
        answer.thinks = asks_to_think(body)
        return Exchange(body, answer, pauses)

    def _continue(self, message: Message, exchange: Exchange, request: ModelRequest) -> Exchange | None:
        if not exchange.answer.is_paused or exchange.state == MOST_PAUSES:
            return None
        exchange.answer.continue_response()
        rest = replace(request, messages=[*request.messages, message])
        return self._ask(rest, exchange.answer, exchange.state + 1)

    async def _explain(self, error: ProviderError) -> ProviderError:
        sent = not {"x-api-key", "authorization"}.isdisjoint(self._headers)
        advised = add_key_advice(error, self._key_variable, sent=sent)
        return add_model_advice(advised, self.label, self.model)

    def _check_key(self) -> None:
        if self.base_url == DEFAULT_URL and not {"x-api-key", "authorization"} & self._headers.keys():
            raise ProviderError(
                f"asking {self.label}:{self.model}: there is no API key",
                ErrorKind.CONFIG,
                "Set ANTHROPIC_API_KEY, or choose another model with --model.",
            )


def _key_variable(environment: Mapping[str, str]) -> str:
    """Returns the variable that holds the key, or the one to set if there is none."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    return next((name for name in names if environment.get(name, "").strip()), names[0])


def _credentials(api_key: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    if key := (api_key or environment.get("ANTHROPIC_API_KEY", "")).strip():
        return {"x-api-key": key}
    token = environment.get("ANTHROPIC_AUTH_TOKEN", "").strip()
    return {"authorization": f"Bearer {token}"} if token else {}
