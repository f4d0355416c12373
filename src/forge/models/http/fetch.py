"""Fetches small JSON documents for models: tokens, credentials, lists of models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forge.core.arguments.explain import near
from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.models.http.outgoing import clean_message, host_of, mask_for
from forge.network.connections import model_client

LARGEST = 4 * 1024 * 1024  # bytes of a document
SECONDS = 10.0


class FetchedResponse(NamedTuple):
    """A response as it came; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Fetched(NamedTuple):
    """A response; `document` is its JSON, or its text if it is none."""

    status: int
    document: Any

    def get(self, name: str) -> str:
        """Returns a text of the document; empty if there is none."""
        found = self.document.get(name) if isinstance(self.document, Mapping) else None
        return found if isinstance(found, str) else ""


async def fetch_json(
    url: str,
    *,
    action: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    content: bytes = b"",
    seconds: float = SECONDS,
) -> Fetched:
    """Returns the response, whatever its status. Raises `ProviderError` if there is none in time."""
    found = await fetch(url, action=action, method=method, headers=headers, content=content, seconds=seconds)
    return read_document(found)


def read_document(response: FetchedResponse) -> Fetched:
    """Returns the JSON of a response, or its text if it is none."""
    try:
        return Fetched(response.status, json.loads(response.content))
    except (ValueError, RecursionError):
        return Fetched(response.status, response.content.decode(errors="replace"))


async def fetch(
    url: str,
    *,
    action: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    content: bytes = b"",
    seconds: float = SECONDS,
) -> FetchedResponse:
    """Returns the response, whatever its status. Raises `ProviderError` if there is none in time."""
    import httpx2  # heavy

    mask = mask_for(headers or {})
    try:
        async with asyncio.timeout(seconds):
            client = await model_client(secure=url[:5].lower() == "https")
            request = client.build_request(method, url, headers=headers, content=content or None)
            response = await client.send(request, stream=True)
            try:
                raw = b""
                async for chunk in response.aiter_bytes():
                    raw += chunk
                    if len(raw) > LARGEST:
                        raise _error(action, url, "the response is too long")
            finally:
                await response.aclose()
    except TimeoutError:
        raise _error(action, url, f"no response within {seconds:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
        raise _error(action, url, clean_message(str(problem), mask) or type(problem).__name__) from None
    return FetchedResponse(response.status_code, {name.lower(): value for name, value in response.headers.items()}, raw)


async def suggest_model(
    error: ProviderError, url: str, headers: Mapping[str, str], model: str, endpoint: str = ""
) -> None:
    """Adds the most similar names to the advice of an error, if the server lists its models. Never raises.

    `url` is the address of the list, or that of an endpoint beside the list.
    """
    if endpoint:
        url = url.replace(endpoint, "/models", 1)
    try:
        found = await fetch_json(url, action="listing the models", headers=headers, seconds=3.0)
    except ProviderError:
        return
    names = [name for name in _list_names(found.document) if name != model]
    if hints := near(model, names):
        error.suggestion = f"Did you mean {' or '.join(hints)}?"


def _list_names(document: Any) -> Iterator[str]:
    """Yields the names of models in the lists of OpenAI, Google, Mistral and Bedrock."""
    if isinstance(document, Mapping):
        document = next((document[key] for key in ("data", "models", "modelSummaries") if key in document), ())
    for entry in document if isinstance(document, list) else ():
        name = (
            next((entry[key] for key in ("id", "name", "modelId") if key in entry), "")
            if isinstance(entry, Mapping)
            else ""
        )
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 200:
            yield name.removeprefix("models/")


def _error(action: str, url: str, problem: str) -> ProviderError:
    message = f"{action} at {host_of(url)}: {problem}"
    return ProviderError(message, ErrorKind.SYSTEM, "Check the network, then try again.", passing=True)
