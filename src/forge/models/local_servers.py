"""Finds model servers on this machine, and gives their models tools, natively or in the text."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from forge.core.events import Retrying
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.core.spec import ToolSpec
from forge.models.http.fetch import fetch_json
from forge.models.http.outgoing import NoTools
from forge.models.openai import OpenAI
from forge.models.text_calls import TextCalls

NOTE = "the model has no native tool calls; Forge describes the tools in the prompt instead"


class ToolsOrText(OpenAI):
    """A model behind Chat Completions. If its server says that the model has no tools, it writes calls in its text."""

    _text: TextCalls | None = None
    _is_checked = False

    @property
    def expects_calls(self) -> bool:
        """True once the calls are part of the text: the prompt then demands one in every reply."""
        return self._text is not None

    def explain_calls(self, tools: Sequence[ToolSpec]) -> str:
        return self._text.explain_calls(tools) if self._text is not None else ""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams text as it comes, then the message. Raises `ProviderError`."""
        if request.tools and self._text is None and not self._is_checked:
            self._is_checked = True
            if await self._drops_tools():
                self._text = TextCalls(_Plain(self))
                yield Retrying(NOTE, attempt=0)
        if not request.tools or self._text is None:
            try:
                async with aclosing(super().stream(request)) as parts:
                    async for part in parts:
                        yield part
                return
            except NoTools as error:
                if not request.tools:
                    raise
                self._text = TextCalls(_Plain(self))
                yield Retrying(f"{error.message}: {NOTE}", attempt=1, status=error.status)
        async with aclosing(self._text.stream(request)) as parts:
            async for part in parts:
                yield part

    async def _drops_tools(self) -> bool:
        """Asks llama.cpp, which leaves out tools silently if the model's template has no place for them."""
        if self.label not in ("llamacpp", "openai", "openai-chat"):  # any server may speak OpenAI's protocol
            return False
        url = f"{self._url.partition('/v1/')[0]}/props"
        try:
            found = await fetch_json(url, action="reading the model's properties", headers=self._headers, seconds=2.0)
        except ProviderError:
            return False
        abilities = found.document.get("chat_template_caps") if isinstance(found.document, Mapping) else None
        return isinstance(abilities, Mapping) and abilities.get("supports_tools") is False


class _Plain:
    """The model without tools, which the text protocol asks."""

    def __init__(self, model: OpenAI) -> None:
        self._model = model
        self.model = model.model

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        return OpenAI.stream(self._model, request)


# --- Finds model servers on this machine: Ollama, LM Studio, llama.cpp, vLLM. Only loopback addresses are asked.


CONNECT = 0.05  # seconds: a connection within this machine takes less than one
ANSWER = 0.5  # seconds for the list of models
MOST_MODELS = 1_000


class LocalServer(NamedTuple):
    """A server that answers, and its chat models."""

    name: str  # the provider's prefix
    base_url: str
    models: tuple[str, ...]


def find_local_servers(addresses: Mapping[str, str]) -> list[LocalServer]:
    """Returns the servers that answer, of those on this machine. All are asked at the same time. Never raises."""
    near = {name: url for name, url in addresses.items() if is_loopback(url)}
    if not near:
        return []

    with ThreadPoolExecutor(len(near)) as pool:
        found = [*pool.map(list_models, near.values())]
    return [LocalServer(name, url, models) for (name, url), models in zip(near.items(), found, strict=True) if models]


def is_loopback(url: str) -> bool:
    """Returns whether an address is one of this machine, without resolving its name."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def list_models(base_url: str, key: str = "", connect: float = CONNECT) -> tuple[str, ...]:
    """Returns the chat models of a server, or none; waits only briefly to connect. Never raises."""
    from http.client import HTTPConnection, HTTPException

    try:
        parts = urlsplit(base_url)
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=connect)
    except (ValueError, HTTPException):
        return ()
    if parts.scheme != "http":
        return ()
    try:
        connection.connect()
        connection.sock.settimeout(ANSWER)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", f"{parts.path.rstrip('/')}/models", headers=headers)
        response = connection.getresponse()
        found = json.loads(response.read(1 << 20)) if response.status == 200 else {}
        return tuple(_read_chat_models(found))[:MOST_MODELS]
    except (OSError, HTTPException, ValueError, RecursionError):
        return ()
    finally:
        connection.close()


def _read_chat_models(found: object) -> Iterator[str]:
    models = found.get("data") if isinstance(found, dict) else None
    for model in models if isinstance(models, list) else ():
        id = model.get("id") if isinstance(model, dict) else None
        if isinstance(id, str) and id.strip() and id.isprintable() and "embed" not in id.lower():
            yield id
