"""Provides models of Azure OpenAI: a deployment at its resource, with a key or with an Entra ID."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from forge.core.errors import ErrorKind
from forge.core.provider import NotSetUp, Provider, ProviderError
from forge.models.credentials.tokens import Door, check_package, given_token, refused_error
from forge.models.http.fetch import FETCH_SECONDS, FetchedResponse, read_document
from forge.models.http.outgoing import Mask, Sign, clean_message

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.core.rest import HttpRequest


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
        raise NotSetUp(message, ErrorKind.CONFIG, f"Set {ENDPOINT}, such as https://NAME.openai.azure.com.")
    version = next(filter(None, map(read, _VERSIONS)), "")
    settings: dict[str, Any] = {"strict": False, "label": label, "key_variable": KEY}
    if not key:
        settings |= {"sign": azure_token(environment), "key_variable": ""}
    if responses:
        from forge.models.openai_responses import OpenAIResponses

        return OpenAIResponses(deployment, base_url=_v1(endpoint), api_key=key, **settings)
    from forge.models.openai_chat import OpenAI

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


# Entra ID tokens: from a client's secret or certificate, a workload's token, or a managed identity.


CERTIFICATE = "AZURE_CLIENT_CERTIFICATE_PATH"
SCOPE = "https://cognitiveservices.azure.com/.default"
ADVICE = (
    "Set AZURE_OPENAI_API_KEY; or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET or"
    f" {CERTIFICATE}; or AZURE_OPENAI_AD_TOKEN, from"
    " `az account get-access-token --resource https://cognitiveservices.azure.com`."
)

_ACTION = "getting an Entra ID token"
_CHECK = "Check AZURE_TENANT_ID, AZURE_CLIENT_ID and the client's secret, certificate or token."
_MACHINES = "http://169.254."  # servers that every machine of Azure has; elsewhere they do not answer


def azure_token(environment: Mapping[str, str] = os.environ) -> Sign:
    """Authorises requests to Azure, with the first kind of credentials that the environment has.

    Raises `ProviderError` if azure-identity is needed and not installed.
    """
    if given := environment.get("AZURE_OPENAI_AD_TOKEN", "").strip():
        return given_token(given)
    check_package("azure", _ACTION)
    return EntraToken(environment)


class EntraToken:
    """Authorises requests with azure-identity, which keeps a token and renews it some minutes before its end."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._credential: AsyncTokenCredential | None = None
        self._is_client = all(self._read(f"AZURE_{name}") for name in ("TENANT_ID", "CLIENT_ID")) and any(
            self._read(name) for name in ("AZURE_CLIENT_SECRET", CERTIFICATE, "AZURE_FEDERATED_TOKEN_FILE")
        )

    async def __call__(self, url: str = "", content: bytes = b"") -> Mapping[str, str]:
        """Returns the header for a request. Raises `ProviderError`."""
        credential: AsyncTokenCredential = self._credential or await Door(_ACTION).run(self._make_credential)
        self._credential = credential
        from azure.core.exceptions import AzureError, HttpResponseError

        try:
            token = await credential.get_token(SCOPE)
        except ProviderError:
            raise
        except AzureError as error:
            answer = error.response if isinstance(error, HttpResponseError) else None
            raise self._explain(error, answer if isinstance(answer, _Answer) else None) from None
        except (LookupError, OSError, TypeError, ValueError) as error:  # such as a file that is not there
            raise ProviderError(f"{_ACTION}: {clean_message(str(error), str)}", ErrorKind.CONFIG, _CHECK) from None
        return {"authorization": f"Bearer {token.token}"}

    def _read(self, name: str) -> str:
        return self._environment.get(name, "").strip()

    def _make_credential(self) -> AsyncTokenCredential:
        from azure.identity import aio  # heavy

        tenant, client = self._read("AZURE_TENANT_ID"), self._read("AZURE_CLIENT_ID")
        settings: dict[str, Any] = {"transport": _Transport(), "retry_total": 2}
        if not self._is_client:
            return aio.ManagedIdentityCredential(client_id=client or None, **settings)
        if host := self._read("AZURE_AUTHORITY_HOST"):
            settings["authority"] = host
        file = self._read(CERTIFICATE)
        try:
            if secret := self._read("AZURE_CLIENT_SECRET"):
                return aio.ClientSecretCredential(tenant, client, secret, **settings)
            if file:
                return aio.CertificateCredential(tenant, client, file, **settings)
            token_file = self._read("AZURE_FEDERATED_TOKEN_FILE")
            return aio.WorkloadIdentityCredential(
                tenant_id=tenant, client_id=client, token_file_path=token_file, **settings
            )
        except (OSError, TypeError, ValueError) as error:
            problem, hint = clean_message(str(error), str), _CHECK
            if file and "authority" not in problem and "tenant" not in problem:
                problem = f"{file[:200]}, of {CERTIFICATE}: {problem}"
                hint = (
                    "Convert it: openssl pkcs12 -in FILE -nodes -out FILE.pem. Keys with a password are not supported."
                )
            raise ProviderError(f"{_ACTION}: {problem}", ErrorKind.CONFIG, hint) from None

    def _explain(self, error: Exception, answer: _Answer | None) -> ProviderError:
        if answer is not None and answer.status_code >= 400:
            advice = _CHECK if self._is_client else "Give the machine an identity that may use the resource."
            return refused_error(read_document(answer.response), _ACTION, advice, answer.mask)
        if not self._is_client:
            message = f"{_ACTION}: there are no credentials, and this machine has no managed identity"
            return ProviderError(message, ErrorKind.CONFIG, ADVICE)
        return ProviderError(f"{_ACTION}: {clean_message(str(error), str)}", ErrorKind.CONFIG, _CHECK)


class _Transport:
    """Sends the requests of azure-identity through our client: its interface `AsyncHttpTransport`."""

    async def send(self, request: HttpRequest, **_: Any) -> _Answer:
        content = request.content
        content = urlencode(content) if isinstance(content, Mapping) else content
        door, seconds = Door(_ACTION), 3.0 if request.url.startswith(_MACHINES) else FETCH_SECONDS
        return _Answer(
            request, await door.fetch(request.method, request.url, request.headers, content, seconds), door.mask
        )

    async def __aenter__(self) -> _Transport:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class _Answer:
    """A response as azure-identity reads it: a part of the interface `AsyncHttpResponse`."""

    reason = ""

    def __init__(self, request: HttpRequest, response: FetchedResponse, mask: Mask) -> None:
        self.request, self.response, self.mask = request, response, mask
        self.status_code, self.headers, self.content = response.status, response.headers, response.content
        self.content_type = response.headers.get("content-type", "")

    def text(self, encoding: str | None = None) -> str:
        return self.content.decode(encoding or "utf-8", errors="replace")

    def body(self) -> bytes:
        return self.content
