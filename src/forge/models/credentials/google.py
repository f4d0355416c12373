"""Google Cloud's default credentials: a file, gcloud's login, a federated identity, or the metadata server."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import time
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from forge.core.errors import ErrorKind, ToolError
from forge.core.provider import ProviderError
from forge.core.yaml import Unreadable, bounded_text
from forge.models.credentials.tokens import CachedToken, Token, read_private_key, read_token, refused_error, sign_jwt
from forge.models.http.fetch import Fetched, fetch_json

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
        message = f"{_ACTION}: there are no credentials, and this machine has no metadata server"
        raise ProviderError(message, ErrorKind.CONFIG, ADVICE) from None
    return read_token(found, _ACTION, "Give the machine a service account with access to Vertex AI.")


def _file_error(path: Path, problem: str) -> ProviderError:
    return ProviderError(f"reading Google Cloud's credentials in {path}: {problem}", ErrorKind.CONFIG, ADVICE)


# --- Gets Google Cloud tokens for a workload that has its identity elsewhere: the type `external_account`.
#
# The workload's token comes from a file, a URL or a program. Google exchanges it for a token of its own, which may in
# turn get one of a service account.


ALLOW_PROGRAMS = "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"

_FEDERATION = "getting a Google Cloud token for an external account"
_ADVICE = "Check the workload identity pool, its provider, and the service account that it may use."
_TYPES = "urn:ietf:params:oauth:token-type:"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


async def federated_token(document: Mapping[str, Any], environment: Mapping[str, str]) -> Token:
    """Returns a token for the external account of a credentials file. Raises `ProviderError` without any token."""
    subject = await _subject_token(document, environment)
    try:
        token = await _exchange(document, subject)
        return await _impersonate(document, token) if document.get("service_account_impersonation_url") else token
    except ProviderError as error:
        error.message = error.message.replace(subject, "[token]")  # a server may repeat it
        error.args = (error.message, *error.args[1:])
        raise


async def _exchange(document: Mapping[str, Any], subject: str) -> Token:
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "audience": _text(document, "audience"),
        "scope": SCOPE,
        "requested_token_type": f"{_TYPES}access_token",
        "subject_token": subject,
        "subject_token_type": _text(document, "subject_token_type"),
    }
    headers = {"content-type": "application/x-www-form-urlencoded"}
    client, secret = str(document.get("client_id") or ""), str(document.get("client_secret") or "")
    if client:
        headers["authorization"] = f"Basic {b64encode(f'{client}:{secret}'.encode()).decode()}"
    elif project := document.get("workforce_pool_user_project"):
        form["options"] = quote(json.dumps({"userProject": str(project)}))
    url, content = _url(document, "token_url"), urlencode(form).encode()
    found = await fetch_json(url, action=_FEDERATION, method="POST", headers=headers, content=content)
    return read_token(found, _FEDERATION, _ADVICE)


async def _impersonate(document: Mapping[str, Any], token: Token) -> Token:
    given = document.get("service_account_impersonation")
    lifetime = given.get("token_lifetime_seconds") if isinstance(given, Mapping) else None
    seconds = lifetime if isinstance(lifetime, int) and not isinstance(lifetime, bool) else 3_600
    headers = {"content-type": "application/json", "authorization": f"Bearer {token.text}"}
    content = json.dumps({"scope": [SCOPE], "lifetime": f"{seconds}s"}).encode()
    url = _url(document, "service_account_impersonation_url")
    found = await fetch_json(url, action=_FEDERATION, method="POST", headers=headers, content=content)
    text, until = found.get("accessToken"), found.get("expireTime")
    try:
        expires = datetime.fromisoformat(until).timestamp()
    except ValueError:
        expires = 0.0
    if found.status != 200 or not text or not expires:
        raise refused_error(found, _FEDERATION, _ADVICE)
    return Token(text, expires)


async def _subject_token(document: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Returns the workload's own token, from the place that the file names; it changes, so it is read each time."""
    source = document.get("credential_source")
    source = source if isinstance(source, Mapping) else {}
    if isinstance(path := source.get("file"), str):
        try:
            return _read_format(bounded_text(Path(path)), source, path)
        except Unreadable as error:
            raise _error(f"{error.place}: {error.problem}", error.advice) from None
    if isinstance(source.get("url"), str):
        given = source.get("headers")
        headers = {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}
        found = await fetch_json(_url(source, "url", local=True), action=_FEDERATION, headers=headers)
        if found.status != 200:
            raise refused_error(
                Fetched(found.status, {}), _FEDERATION, "Check `credential_source.url` and its headers."
            )
        text = found.document if isinstance(found.document, str) else json.dumps(found.document)
        return _read_format(text, source, "the response")
    if isinstance(program := source.get("executable"), Mapping):
        return await _run_program(program, document, environment)
    raise _error("its credential_source has no file, url or executable", "Use one of these; others are not supported.")


def _read_format(text: str, source: Mapping[str, Any], place: str) -> str:
    form = source.get("format")
    form = form if isinstance(form, Mapping) else {}
    found: Any = text.strip()
    if form.get("type") == "json":
        try:
            found = json.loads(text).get(str(form.get("subject_token_field_name")))
        except (ValueError, AttributeError, RecursionError):
            found = None
    if not isinstance(found, str) or not found:
        raise _error(f"{place[:200]} holds no token", "Check `credential_source.format`.")
    return found


async def _run_program(source: Mapping[str, Any], document: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Runs the program that writes the token. Only the person who sets the variable allows it."""
    if environment.get(ALLOW_PROGRAMS, "").strip() != "1":
        raise _error("its token comes from a program, which is not allowed", f"To run it, set {ALLOW_PROGRAMS}=1.")
    from forge.process.running.run import run  # only for this source

    command, timeout = shlex.split(_text(source, "command")), source.get("timeout_millis")
    seconds = timeout / 1_000 if isinstance(timeout, int) and 0 < timeout <= 120_000 else 30.0
    more = {
        "GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE": _text(document, "audience"),
        "GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE": _text(document, "subject_token_type"),
        "GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE": "0",
    }
    try:
        ended = await run(command, cwd=Path.cwd(), env={**environment, **more}, timeout=seconds)
        said = json.loads(ended.output) if ended.exit_code == 0 else None
    except (ToolError, ValueError, IndexError, RecursionError):  # never its output: it may hold a token
        said = None
    if isinstance(said, Mapping) and said.get("success") is True:
        token = said.get("saml_response" if said.get("token_type") == f"{_TYPES}saml2" else "id_token")
        if isinstance(token, str) and token:
            return token
    message = "the program of `credential_source.executable` returned no token"
    raise _error(message, "Run the program in a terminal, and read what it says.")


def _text(document: Mapping[str, Any], name: str) -> str:
    found = document.get(name)
    if not isinstance(found, str) or not found.strip():
        raise _error(f"its `{name}` is missing", "Create the file again: gcloud iam workload-identity-pools.")
    return found


def _url(document: Mapping[str, Any], name: str, *, local: bool = False) -> str:
    """Returns an address that a token may be sent to. `local`: a server of the machine itself needs no TLS."""
    url = _text(document, name)
    parts = urlsplit(url)
    is_open = parts.scheme == "http" and (local or parts.hostname in _LOOPBACK)
    if not parts.hostname or (parts.scheme != "https" and not is_open):
        raise _error(f"its `{name}` is not an https address", "Correct the address in the file.")
    return url


def _error(problem: str, advice: str) -> ProviderError:
    return ProviderError(f"{_FEDERATION}: {problem}", ErrorKind.CONFIG, advice)
