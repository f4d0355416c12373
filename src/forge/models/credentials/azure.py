"""Gets Entra ID tokens for Azure: a client's secret or certificate, a workload's token, or a managed identity."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode
from uuid import uuid4

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.core.yaml import Unreadable, bounded_text
from forge.models.credentials.tokens import (
    CachedToken,
    Token,
    read_certificate,
    read_private_key,
    read_token,
    sign_jwt_with_certificate,
)
from forge.models.http.fetch import fetch_json

CERTIFICATE = "AZURE_CLIENT_CERTIFICATE_PATH"
RESOURCE = "https://cognitiveservices.azure.com"
ADVICE = (
    "Set AZURE_OPENAI_API_KEY; or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET or"
    f" {CERTIFICATE}; or AZURE_OPENAI_AD_TOKEN, from"
    " `az account get-access-token --resource https://cognitiveservices.azure.com`."
)

_ACTION = "getting an Entra ID token"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_IDENTITY = "http://169.254.169.254/metadata/identity/oauth2/token"


def azure_token(environment: Mapping[str, str] = os.environ) -> CachedToken:
    """Authorises requests to Azure, with the first kind of credentials that the environment has."""

    def read(name: str) -> str:
        return environment.get(name, "").strip()

    if given := read("AZURE_OPENAI_AD_TOKEN"):
        return CachedToken(lambda: _return(Token(given, time.time() + 3_600)))
    tenant, client = read("AZURE_TENANT_ID"), read("AZURE_CLIENT_ID")
    server = read("AZURE_AUTHORITY_HOST").rstrip("/") or "https://login.microsoftonline.com"
    url = f"{server}/{quote(tenant)}/oauth2/v2.0/token"
    if tenant and client and (secret := read("AZURE_CLIENT_SECRET")):
        return CachedToken(lambda: _ask(url, {"client_id": client, "client_secret": secret}))
    if tenant and client and (file := read(CERTIFICATE)):
        return CachedToken(lambda: _ask_with_certificate(url, client, file))
    if tenant and client and (file := read("AZURE_FEDERATED_TOKEN_FILE")):
        return CachedToken(lambda: _ask_with_file(url, client, file))
    return CachedToken(lambda: _ask_identity(environment))


async def _return(token: Token) -> Token:
    return token


async def _ask(url: str, form: Mapping[str, str]) -> Token:
    content = urlencode({"grant_type": "client_credentials", "scope": f"{RESOURCE}/.default", **form}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    found = await fetch_json(url, action=_ACTION, method="POST", headers=headers, content=content)
    return read_token(
        found, _ACTION, "Check AZURE_TENANT_ID, AZURE_CLIENT_ID and the client's secret, certificate or token."
    )


async def _ask_with_file(url: str, client: str, file: str) -> Token:
    """Uses the token of a workload, such as a Kubernetes pod; it is replaced in its file, so it is read each time."""
    return await _ask_with_assertion(url, client, _read(file).strip())


async def _ask_with_certificate(url: str, client: str, file: str) -> Token:
    """Signs for the token with the key of a PEM file that holds the key and its certificate."""
    try:
        pem = _read(file)
        key, thumbprint = read_private_key(pem), read_certificate(pem)
    except ValueError as error:
        hint = "Convert it: openssl pkcs12 -in FILE -nodes -out FILE.pem. Keys with a password are not supported."
        raise ProviderError(f"{_ACTION}: {file[:200]}, of {CERTIFICATE}: {error}", ErrorKind.CONFIG, hint) from None
    now = int(time.time())
    claims = {"aud": url, "iss": client, "sub": client, "jti": str(uuid4()), "iat": now, "nbf": now, "exp": now + 600}
    assertion = await asyncio.to_thread(sign_jwt_with_certificate, claims, key, thumbprint)
    return await _ask_with_assertion(url, client, assertion)


async def _ask_with_assertion(url: str, client: str, assertion: str) -> Token:
    form = {"client_id": client, "client_assertion_type": _ASSERTION, "client_assertion": assertion}
    return await _ask(url, form)


def _read(file: str) -> str:
    try:
        return bounded_text(Path(file))
    except Unreadable as error:
        raise ProviderError(f"{_ACTION}: {error.place}: {error.problem}", ErrorKind.CONFIG, error.advice) from None


async def _ask_identity(environment: Mapping[str, str]) -> Token:
    """Asks the server that machines and apps of Azure have; elsewhere it does not answer."""
    address, secret = environment.get("IDENTITY_ENDPOINT", "").strip(), environment.get("IDENTITY_HEADER", "").strip()
    is_app = bool(address and secret)
    query = {"resource": RESOURCE, "api-version": "2019-08-01" if is_app else "2018-02-01"}
    if client := environment.get("AZURE_CLIENT_ID", "").strip():
        query["client_id"] = client
    headers = {"x-identity-header": secret} if is_app else {"metadata": "true"}
    url = f"{address if is_app else _IDENTITY}?{urlencode(query)}"
    try:
        found = await fetch_json(url, action=_ACTION, headers=headers, seconds=10.0 if is_app else 3.0)
    except ProviderError:
        message = f"{_ACTION}: there are no credentials, and this machine has no managed identity"
        raise ProviderError(message, ErrorKind.CONFIG, ADVICE) from None
    return read_token(found, _ACTION, "Give the machine an identity that may use the resource.")
