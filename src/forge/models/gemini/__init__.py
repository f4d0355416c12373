"""Provides Google's Gemini models through generateContent, at Google AI or on Vertex."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from forge.core.errors import ErrorKind
from forge.core.provider import ModelRequest, ProviderError
from forge.models.gemini.request import GeminiModel, Thinking, request_body
from forge.models.gemini.stream import AnswerReader
from forge.models.http.errors import KEY_ADVICE, add_key_advice
from forge.models.http.fetch import suggest_model
from forge.models.http.model import Exchange, HttpModel, call_ids
from forge.models.http.outgoing import Sign

BASE_URL = "https://generativelanguage.googleapis.com/v1"
KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")


class Gemini(HttpModel):
    """A model behind `{base_url}/models/MODEL:streamGenerateContent`.

    Without a base URL, `GEMINI_BASE_URL`, `GEMINI_API_KEY` and `GOOGLE_API_KEY` of the environment count; with one,
    only `api_key` is sent, so that a key never goes to a server it was not meant for.

    Args:
        model: the model's name.
        base_url: the address of the server, up to the API's version.
        api_key: the key.
        headers: further headers.
        thinking: a budget in tokens, a level (minimal, low, medium, high), "none", or the API's own object.
        sign: returns the headers that authorise a request, for servers that take tokens instead of a key.
        label: the name of the provider in messages.

    Example:
        >>> agent = Agent(Gemini("gemini-3-pro", api_key="a key", thinking="low"))
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        thinking: Thinking | None = None,
        sign: Sign | None = None,
        label: str = "gemini",
    ) -> None:
        environment: Mapping[str, str] = os.environ if base_url is None else {}
        variable = next((name for name in KEYS if environment.get(name, "").strip()), KEYS[0])
        key = (api_key or environment.get(variable, "")).strip()
        self.model, self.thinking, self.label = model, thinking, label
        self.base_url = (base_url or environment.get("GEMINI_BASE_URL", "").strip() or BASE_URL).rstrip("/")
        self._key_variable = "" if api_key or sign else variable
        self._headers = {**({"x-goog-api-key": key} if key else {}), **(headers or {})}
        self._sign = sign
        if self.base_url == BASE_URL and not self._headers and sign is None:
            words = f"asking {label}:{model}: there is no API key"
            raise ProviderError(words, ErrorKind.CONFIG, f"Set {KEYS[0]}, or choose another model with --model.")
        path = model if "/" in model else f"models/{model}"
        self._url = f"{self.base_url}/{quote(path, safe='/')}:streamGenerateContent?alt=sse"
        self._abilities = GeminiModel(model)
        self._origin = f"{label}/{model}"

    def __repr__(self) -> str:
        return f"<Gemini {self.label}:{self.model}>"

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Says whether the model holds an answer to a schema; older ones do so only without tools."""
        return self._abilities.has_levels if with_tools else self._abilities.thinks

    def _begin(self, request: ModelRequest) -> Exchange:
        body = request_body(request, model=self._abilities, thinking=self.thinking, origin=self._origin)
        action = f"asking {self.label}:{self.model}"
        return Exchange(body, AnswerReader(self._origin, call_ids(request), self._error, action))

    async def _explain(self, error: ProviderError) -> ProviderError:
        """Adds what a person can do: Google answers a wrong key with a status for wrong requests."""
        if error.status == 400 and "api key" in error.message.lower():
            error.kind, error.suggestion = ErrorKind.CONFIG, KEY_ADVICE
        if error.status == 404 and self._sign is None:
            await suggest_model(error, f"{self.base_url}/models?pageSize=1000", self._headers, self.model)
        return add_key_advice(error, self._key_variable, sent="x-goog-api-key" in self._headers)
