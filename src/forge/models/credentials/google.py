"""Finds Google Cloud's application default credentials: a file, gcloud's login, or the metadata server."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.core.yaml.bounded_yaml import Unreadable, bounded_text
from forge.models.credentials.google_federation import SCOPE, federated_token
from forge.models.credentials.rsa import read_private_key, sign_jwt
from forge.models.credentials.tokens import CachedToken, Token, read_token
from forge.models.http.fetch import fetch_json

FILE = "GOOGLE_APPLICATION_CREDENTIALS"
ADVICE = f"Run `gcloud auth application-default login`, or set {FILE} to a service account's file."

_ACTION = "getting a Google Cloud token"
_TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_METADATA = "/computeMetadata/v1/instance/service-accounts/default/token"
_FORM = {"content-type": "application/x-www-form-urlencoded"}


def google_token(environment: Mapping[str, str] = os.environ) -> CachedToken:
    """Authorises requests to Google Cloud. Raises `ProviderError` for a file that cannot be used."""
    if given := environment.get("CLOUDSDK_AUTH_ACCESS_TOKEN", "").strip():
        return CachedToken(lambda: _return(Token(given, time.time() + 3_600)))
    path = find_file(environment)
    if path is None:
        host = environment.get("GCE_METADATA_HOST", "").strip() or "metadata.google.internal"
        return CachedToken(lambda: _ask_metadata(host))
    document = read_file(path)
    kind = document.get("type")
    if kind == "service_account":
        return CachedToken(lambda: _ask_as_service_account(document, path))
    if kind == "external_account":
        return CachedToken(lambda: federated_token(document, environment))
    if kind == "authorized_user":
        return CachedToken(lambda: _ask_with_refresh_token(document))
    raise _file_error(path, f"its type {str(kind)[:40]!r} is not supported")


def find_project(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the project of the environment or of the file; empty if neither names one."""
    for name in ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID"):
        if found := environment.get(name, "").strip():
            return found
    path = find_file(environment)
    document = read_file(path) if path is not None else {}
    return str(document.get("project_id") or document.get("quota_project_id") or "")


def find_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the file that the environment names, or that gcloud wrote; None if there is none."""
    if named := environment.get(FILE, "").strip():
        return Path(named)
    home = environment.get("CLOUDSDK_CONFIG", "").strip()
    folder = Path(home) if home else Path(environment.get("HOME") or os.path.expanduser("~"), ".config", "gcloud")
    path = folder / "application_default_credentials.json"
    return path if path.is_file() else None


def read_file(path: Path) -> Mapping[str, Any]:
    """Returns the content of a file with credentials. Raises `ProviderError`; its text holds nothing of the file."""
    try:
        document = json.loads(bounded_text(path))
    except Unreadable as error:
        raise _file_error(path, error.problem) from None
    except (ValueError, RecursionError):
        raise _file_error(path, "it is not JSON") from None
    if not isinstance(document, dict):
        raise _file_error(path, "it is not a JSON object")
    return document


async def _return(token: Token) -> Token:
    return token


async def _ask_as_service_account(document: Mapping[str, Any], path: Path) -> Token:
    url, now = str(document.get("token_uri") or _TOKEN_URL), int(time.time())
    claims = {"iss": document.get("client_email"), "scope": SCOPE, "aud": url, "iat": now, "exp": now + 3_600}
    try:
        key = read_private_key(str(document.get("private_key")))
    except ValueError as error:
        raise _file_error(path, f"its private_key cannot be used: {error}") from None
    signed = await asyncio.to_thread(sign_jwt, claims, key, str(document.get("private_key_id") or ""))
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": signed}
    return await _post(url, form, f"Check that the service account of {path} exists and its key is valid.")


async def _ask_with_refresh_token(document: Mapping[str, Any]) -> Token:
    form = {name: str(document.get(name) or "") for name in ("client_id", "client_secret", "refresh_token")}
    url = str(document.get("token_uri") or _TOKEN_URL)
    return await _post(url, {"grant_type": "refresh_token", **form}, ADVICE)


async def _post(url: str, form: Mapping[str, str], advice: str) -> Token:
    content = urlencode(form).encode()
    found = await fetch_json(url, action=_ACTION, method="POST", headers=_FORM, content=content)
    return read_token(found, _ACTION, advice)


async def _ask_metadata(host: str) -> Token:
    """Asks the server that every machine of Google Cloud has; elsewhere it does not answer."""
    headers = {"metadata-flavor": "Google"}
    try:
        found = await fetch_json(f"http://{host}{_METADATA}", action=_ACTION, headers=headers, seconds=3.0)
    except ProviderError:
        words = f"{_ACTION}: there are no credentials, and this machine has no metadata server"
        raise ProviderError(words, ErrorKind.CONFIG, ADVICE) from None
    return read_token(found, _ACTION, "Give the machine a service account with access to Vertex AI.")


def _file_error(path: Path, problem: str) -> ProviderError:
    return ProviderError(f"reading Google Cloud's credentials in {path}: {problem}", ErrorKind.CONFIG, ADVICE)
