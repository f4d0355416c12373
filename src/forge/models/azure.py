"""Provides models of Azure OpenAI: a deployment at its resource, with a key or with an Entra ID."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from forge.core.errors import ErrorKind
from forge.core.provider import Provider, ProviderError
from forge.models.credentials.azure import azure_token

ENDPOINT, KEY = "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY"
_VERSIONS = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")


def azure(deployment: str, *, responses: bool = False, environment: Mapping[str, str] = os.environ) -> Provider:
    """Returns the model of a deployment. Raises `ProviderError` if the address of the resource is missing.

    With an API version in the environment, the request goes to the deployment's own address; without one, to the
    resource's `/openai/v1`.
    """

    def read(name: str) -> str:
        return environment.get(name, "").strip()

    label = "azure-responses" if responses else "azure"
    endpoint, key = read(ENDPOINT).rstrip("/"), read(KEY)
    if urlsplit(endpoint).scheme not in ("http", "https"):
        problem = "is not a URL" if endpoint else "is not set"
        message = f"choosing the model '{label}:{deployment[:100]}': {ENDPOINT} {problem}"
        raise ProviderError(message, ErrorKind.CONFIG, f"Set {ENDPOINT}, such as https://NAME.openai.azure.com.")
    version = next(filter(None, map(read, _VERSIONS)), "")
    settings: dict[str, Any] = {"strict": False, "label": label, "key_variable": KEY}
    if not key:
        settings |= {"sign": azure_token(environment), "key_variable": ""}
    if responses:
        from forge.models.openai_responses import OpenAIResponses

        return OpenAIResponses(deployment, base_url=_v1(endpoint), api_key=key, **settings)
    from forge.models.openai import OpenAI

    if not version:
        return OpenAI(deployment, base_url=_v1(endpoint), api_key=key, **settings)
    own = f"{endpoint.removesuffix('/openai/v1')}/openai/deployments/{quote(deployment, safe='')}"
    settings |= {"key_variable": ""}  # this address takes a key in a header of its own
    return OpenAI(
        deployment,
        base_url=f"{own}?api-version={quote(version)}",
        headers={"api-key": key} if key else {},
        **settings,
    )


def _v1(endpoint: str) -> str:
    return endpoint if endpoint.endswith("/openai/v1") else f"{endpoint}/openai/v1"
