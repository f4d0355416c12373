"""Provides models on Google Cloud's Vertex AI: Gemini, Claude, and others behind Chat Completions."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.provider import Provider, ProviderError
from forge.models.anthropic import Anthropic
from forge.models.credentials.google import find_project, google_token
from forge.models.gemini import Gemini
from forge.models.http.events import SentEvent
from forge.models.http.outgoing import Sign

PROJECT, LOCATION = "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"
_LOCATIONS = (LOCATION, "GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")
_VERSION = "vertex-2023-10-16"


def vertex(model: str, environment: Mapping[str, str] = os.environ) -> Provider:
    """Returns a model of Vertex AI. Raises `ProviderError` if the project or the credentials are missing."""
    publisher, slash, name = model.partition("/")
    if not slash:
        publisher, name = ("anthropic" if model.startswith("claude") else "google"), model
    server, sign = _base_url(model, environment), google_token(environment)
    base = f"{server}/publishers/{quote(publisher)}"
    if publisher not in ("anthropic", "google"):
        from forge.models.openai import OpenAI  # only for models of others

        return OpenAI(model, base_url=f"{server}/endpoints/openapi", strict=False, label="vertex", sign=sign)
    if publisher == "anthropic":
        return VertexAnthropic(name, base_url=base, sign=sign)
    return Gemini(name, base_url=base, sign=sign, label="vertex")


class VertexAnthropic(Anthropic):
    """A model of Anthropic on Vertex: the same protocol, with the model in the address and a token instead of a key."""

    def __init__(self, model: str, *, base_url: str, sign: Sign) -> None:
        super().__init__(model, base_url=base_url)
        self._headers, self._sign, self.label = {}, sign, "vertex"
        self._url = f"{self.base_url}/models/{quote(model, safe='@')}:streamRawPredict"

    def _events(self, body: dict[str, Any], options: Mapping[str, Any]) -> AsyncGenerator[SentEvent | Retrying, None]:
        rest = {name: value for name, value in body.items() if name != "model"}
        return super()._events({"anthropic_version": _VERSION, **rest}, options)


def _base_url(model: str, environment: Mapping[str, str]) -> str:
    project = find_project(environment)
    if not project:
        message = f"choosing the model 'vertex:{model[:100]}': no Google Cloud project is set"
        raise ProviderError(message, ErrorKind.CONFIG, f"Set {PROJECT} to the project's id.")
    location = next((found for name in _LOCATIONS if (found := environment.get(name, "").strip())), "global")
    server = environment.get("VERTEX_BASE_URL", "").strip().rstrip("/") or _server(location)
    return f"{server}/v1/projects/{quote(project)}/locations/{quote(location)}"


def _server(location: str) -> str:
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{quote(location)}-aiplatform.googleapis.com"
