"""Fetches small JSON documents for models: tokens, credentials, lists of models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.provider import ProviderError
from forge.models.http.outgoing import clean_message, host_of, mask_for, refuse_in_tests, split_login
from forge.network import client
from forge.network.egress import Egress
from forge.network.headers import RequestLimits

LARGEST_DOCUMENT = 4 * 1024 * 1024  # bytes of a document
FETCH_SECONDS = 10.0


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
    seconds: float = FETCH_SECONDS,
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
    seconds: float = FETCH_SECONDS,
    egress: Egress | None = None,
) -> FetchedResponse:
    """Returns the response, whatever its status. Raises `ProviderError` if there is none in time.

    Without an `egress`, only the server of the URL is reached.
    """
    refuse_in_tests(action)
    url, login = split_login(url)
    headers = {**login, **(headers or {})}
    limits = RequestLimits(connect=seconds, read=seconds, total=seconds, size=LARGEST_DOCUMENT)
    problem: str
    try:
        found = await client.fetch(
            method,
            url,
            headers=headers,
            body=content,
            egress=egress if egress is not None else Egress.only(url),
            limits=limits,
            follow="none",
        )
        if not found.truncated:
            return FetchedResponse(found.status, dict(found.headers), found.body)
        problem = "the response is too long"
    except ToolError as error:
        problem = clean_message(error.message, mask_for(headers))
    raise _error(action, url, problem)


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
