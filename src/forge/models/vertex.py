"""Provides models on Google Cloud's Vertex AI: Gemini, Claude, and others behind Chat Completions."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from forge.core.errors import ErrorKind
from forge.core.events import Retrying
from forge.core.provider import NotSetUp, Provider, ProviderError
from forge.core.yaml import Unreadable, bounded_text
from forge.models.anthropic import Anthropic
from forge.models.credentials.tokens import CachedToken, Door, Token, check_package, given_token
from forge.models.gemini import Gemini
from forge.models.http.events import SentEvent
from forge.models.http.fetch import FETCH_SECONDS
from forge.models.http.outgoing import Sign, clean_message
from forge.models.openai_chat import OpenAI

if TYPE_CHECKING:
    from google.auth.credentials import Credentials


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
        raise NotSetUp(message, ErrorKind.CONFIG, f"Set {PROJECT} to the project's id.")
    location = next((found for name in _LOCATIONS if (found := environment.get(name, "").strip())), "global")
    server = environment.get("VERTEX_BASE_URL", "").strip().rstrip("/") or _server(location)
    return f"{server}/v1/projects/{quote(project)}/locations/{quote(location)}"


def _server(location: str) -> str:
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{quote(location)}-aiplatform.googleapis.com"


# Google Cloud's application default credentials: a file, gcloud's login, or the metadata server.


FILE = "GOOGLE_APPLICATION_CREDENTIALS"
ALLOW_PROGRAMS = "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ADVICE = f"Run `gcloud auth application-default login`, or set {FILE} to a service account's file."

_ACTION = "getting a Google Cloud token"
_FEDERATION = "getting a Google Cloud token for an external account"
_TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def google_token(environment: Mapping[str, str] = os.environ) -> CachedToken:
    """Authorises requests to Google Cloud. Raises `ProviderError` for a file that cannot be used."""
    if given := environment.get("CLOUDSDK_AUTH_ACCESS_TOKEN", "").strip():
        return given_token(given)
    path = find_file(environment)
    if path is None:
        check_package("vertex", _ACTION)
        return CachedToken(_ask_machine)
    document = read_file(path)
    kind = document.get("type")
    if kind not in ("authorized_user", "external_account", "service_account"):
        raise _file_error(path, f"its type {str(kind)[:40]!r} is not supported")
    check_package("vertex", _ACTION)
    if kind == "external_account":
        return CachedToken(lambda: _ask_as_external_account(document, environment))
    return CachedToken(lambda: _ask_with_file(document, path))


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


class _Answer(NamedTuple):
    """A response as google-auth reads it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


async def _refresh(door: Door, credentials: Credentials) -> Token:
    def request(
        url: str, method: str = "GET", body: Any = None, headers: Any = None, timeout: Any = None, **_: Any
    ) -> _Answer:
        seconds = timeout if isinstance(timeout, int | float) else FETCH_SECONDS
        return _Answer(*door.send(method, url, headers or {}, body, seconds))

    await door.run(lambda: credentials.refresh(request))
    return Token(str(credentials.token), credentials.expiry.replace(tzinfo=UTC).timestamp())


async def _ask_with_file(document: Mapping[str, Any], path: Path) -> Token:
    """Uses a service account's key, or the login of gcloud."""
    door, url = Door(_ACTION), str(document.get("token_uri") or _TOKEN_URL)
    await door.load("google.oauth2.credentials", "google.oauth2.service_account")
    from google.oauth2 import credentials, service_account

    if document["type"] == "service_account":
        advice = f"Check that the service account of {path} exists and its key is valid."
        info, make = {**document, "token_uri": url}, service_account.Credentials.from_service_account_info
        try:
            found = await door.run(lambda: make(info, scopes=[SCOPE]))  # it takes a while to check the key
        except Exception as error:
            problem = clean_message(str(error.args[0]) if error.args else type(error).__name__, str)
            raise _file_error(path, f"its private_key cannot be used: {problem}") from None
    else:
        advice, names = ADVICE, ("refresh_token", "client_id", "client_secret")
        found = credentials.Credentials(None, token_uri=url, **{name: document.get(name) for name in names})
    try:
        return await _refresh(door, found)
    except Exception as error:
        raise door.error(error, advice) from None


async def _ask_machine() -> Token:
    """Asks the server that every machine of Google Cloud has; elsewhere it does not answer."""
    door = Door(_ACTION)
    await door.load("google.auth.compute_engine")
    from google.auth.compute_engine import Credentials

    try:
        return await _refresh(door, Credentials(scopes=[SCOPE]))
    except ProviderError:
        message = f"{_ACTION}: there are no credentials, and this machine has no metadata server"
        raise ProviderError(message, ErrorKind.CONFIG, ADVICE) from None
    except Exception as error:
        raise door.error(error, "Give the machine a service account with access to Vertex AI.") from None


async def _ask_as_external_account(document: Mapping[str, Any], environment: Mapping[str, str]) -> Token:
    """Exchanges the token of a workload that has its identity elsewhere; it comes from a file, a URL or a program."""
    source = _check_external_account(document)
    is_program = "executable" in source
    if is_program and environment.get(ALLOW_PROGRAMS, "").strip() != "1":
        message = "its token comes from a program, which is not allowed"
        raise _external_error(message, f"To run it, set {ALLOW_PROGRAMS}=1.")
    door = Door(_FEDERATION)
    await door.load("google.auth.identity_pool", "google.auth.pluggable")
    from google.auth import identity_pool, pluggable

    kind = pluggable.Credentials if is_program else identity_pool.Credentials
    try:
        return await _refresh(door, kind.from_info(document, scopes=[SCOPE]))
    except ProviderError:
        raise
    except Exception as error:  # never what the source wrote: it may hold a token
        if is_program and door.last is None:
            message = "the program of `credential_source.executable` returned no token"
            raise _external_error(message, "Run the program in a terminal, and read what it says.") from None
        if door.last is not None and door.address == source.get("url"):
            message = f"HTTP {door.last.status}: there is no token in the response"
            raise _external_error(message, "Check `credential_source`: its url, its headers and its format.") from None
        hint = "Check the workload identity pool, its provider, and the service account that it may use."
        raise door.error(error, hint) from None


def _check_external_account(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the source of the workload's token. Raises `ProviderError` for an address that may not get a token."""
    for name in ("audience", "subject_token_type", "token_url"):
        if not str(document.get(name) or "").strip():
            hint = "Create the file again: gcloud iam workload-identity-pools."
            raise _external_error(f"its `{name}` is missing", hint)
    for name in ("token_url", "service_account_impersonation_url"):
        parts = urlsplit(str(document.get(name) or _TOKEN_URL))
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not parts.hostname or (parts.scheme != "https" and not is_local):
            raise _external_error(f"its `{name}` is not an https address", "Correct the address in the file.")
    source = document.get("credential_source")
    if not isinstance(source, Mapping) or not {"file", "url", "executable"} & {*source}:
        message = "its credential_source has no file, url or executable"
        raise _external_error(message, "Use one of these; others are not supported.")
    return source


def _file_error(path: Path, problem: str) -> ProviderError:
    return ProviderError(f"reading Google Cloud's credentials in {path}: {problem}", ErrorKind.CONFIG, ADVICE)


def _external_error(problem: str, advice: str) -> ProviderError:
    return ProviderError(f"{_FEDERATION}: {problem}", ErrorKind.CONFIG, advice)
