"""Asks a server of OpenAI's two APIs: its key, the features that it refuses, and its errors."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict
from urllib.parse import urlsplit, urlunsplit

from forge.core.check_definition import check_settings
from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.core.provider import ModelRequest, ProviderError
from forge.models.http.fetch import suggest_model
from forge.models.http.model import Exchange, HttpModel
from forge.models.http.outgoing import Sign, add_key_advice
from forge.models.http.post import SILENCE
from forge.models.known_models import add_model_advice

BASE_URL = "https://api.openai.com/v1"
OUTPUT_NAME = "final_answer"  # of the schema of a structured answer
SCHEMA_REFUSED = r"response_format|json_schema|text\.format|structured outputs?"

# servers that hold an answer to a schema, also beside tools; and those that do so only without tools
_SCHEMA_WITH_TOOLS = ("azure", "azure-responses", "xai")
_SCHEMA_ALONE = ("mistral", "fireworks", "together", "cerebras", "ollama", "lmstudio", "llamacpp", "local", "vllm")
_WITHOUT_SCHEMA = re.compile(
    r"gpt-(?:3|4(?![o.\d])|4o-2024-05-13|.*audio)|o1-(?:mini|preview)|chatgpt-4o|.*deep-research|computer-use"
)


class ServerSettings(TypedDict, total=False):
    """The parameters that `OpenAI` and `OpenAIResponses` share; both describe them."""

    base_url: str | None
    api_key: str | None
    headers: Mapping[str, str] | None
    strict: bool
    label: str
    key_variable: str
    sign: Sign | None


class OpenAIServer(HttpModel):
    """A model of a server. Optional features that it refuses are left out from then on."""

    _path: str  # of the API, after the base URL
    _settings: type[ServerSettings] = ServerSettings

    def __init__(self, model: str, label: str, settings: ServerSettings) -> None:
        check_settings(type(self).__name__, settings, self._settings)
        base_url, api_key = settings.get("base_url"), settings.get("api_key")
        headers, sign = settings.get("headers"), settings.get("sign")
        label = settings.get("label", label)
        given = bool(api_key or headers or sign)
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL", "").strip() or BASE_URL
            api_key = api_key or os.environ.get("OPENAI_API_KEY")
        key = (api_key or "").strip()
        # a key given by hand needs no variable in advice
        self._key_variable = settings.get("key_variable") or ("" if given else "OPENAI_API_KEY")
        self._has_key, self._sign = bool(key), sign
        self.model, self.label = model, label
        self._url = endpoint_url(base_url, self._path)
        self._headers = {**({"authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        self._host = urlsplit(self._url).hostname or ""
        self._is_local = self._host in ("localhost", "::1") or self._host.startswith("127.")
        self._spelling: Any = None  # the features of the server, as the API's own requests need them
        if self._host == "api.openai.com" and not self._headers:
            raise ProviderError(
                f"asking {label}:{model}: there is no API key",
                ErrorKind.CONFIG,
                "Set OPENAI_API_KEY, or choose another model with --model.",
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}:{self.model}>"

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Returns whether the server is known to hold an answer to a schema."""
        if "response_format" in self._spelling.without:
            return False
        if self._host == "api.openai.com":
            return _WITHOUT_SCHEMA.match(self.model) is None
        return self.label in _SCHEMA_WITH_TOOLS or (not with_tools and self.label in _SCHEMA_ALONE)

    @abstractmethod
    def _write(self, request: ModelRequest, spelling: Any) -> Exchange:
        """Writes a request for a server with these features."""

    @abstractmethod
    def _find_refused(self, error: ProviderError, body: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
        """Returns the optional feature of the request that the server refuses, if its error names one."""

    def _begin(self, request: ModelRequest) -> Exchange:
        return self._write(request, self._spelling)

    async def _recover(self, error: ProviderError, exchange: Exchange, request: ModelRequest) -> Exchange:
        refused, spelling = self._find_refused(error, exchange.body, request.options), exchange.state
        if exchange.answer.begun or refused is None or refused in spelling.without:
            raise await self._explain(error) from error.__cause__
        return self._write(request, replace(spelling, without=spelling.without | {refused}))

    def _continue(self, message: Message, exchange: Exchange, request: ModelRequest) -> None:
        self._spelling = exchange.state  # what worked is asked for from now on

    async def _explain(self, error: ProviderError) -> ProviderError:
        if error.status == 404:
            await suggest_model(error, self._url, self._headers, self.model, self._path)
        advised = add_key_advice(error, self._key_variable, sent=self._has_key)
        return add_model_advice(advised, self.label, self.model)

    def _silence(self, timeout: float, options: Mapping[str, Any]) -> float:
        return timeout if self._is_local else SILENCE  # a local model reads a long prompt before it says anything


def find_named(error: ProviderError, sent: set[str], features: Mapping[str, str]) -> str | None:
    """Returns the first feature that was sent and that the text of an error names."""
    names = (name for name, says in features.items() if name in sent and re.search(says, error.message, re.I))
    return next(names, None)


def is_output(schema: Any) -> bool:
    """Returns whether a request's schema is that of `Agent(output=…)`: a server without schemas is told it in words."""
    return isinstance(schema, Mapping) and schema.get("name") == OUTPUT_NAME


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
