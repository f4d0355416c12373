"""Lets the vendors' packages reach the network through our client, and keeps a token until it is about to expire."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.extras import check_extra
from forge.core.provider import ProviderError
from forge.models.http.fetch import FETCH_SECONDS, Fetched, FetchedResponse, fetch, read_document
from forge.models.http.outgoing import Mask, clean_message, mask_for, read_error
from forge.network.egress import CredentialEgress
from forge.network.headers import FRAMING

MARGIN = 120.0  # seconds before its end in which a token is no longer used

_LOGGERS = {"azure": ("azure", "msal"), "bedrock": ("botocore",), "vertex": ("google.auth",)}
_SECRET_FIELDS = {  # of the forms that are sent for a token
    *("assertion", "client_assertion", "client_secret", "code", "password", "refresh_token", "subject_token"),
    *("SAMLAssertion", "WebIdentityToken"),
}

Value = TypeVar("Value")


def check_package(extra: str, action: str) -> None:
    """Checks that the vendor's package is there. Raises `ProviderError` that names the extra.

    The package logs only errors, unless a program sets a level for it: what it logs below holds keys and tokens.
    """
    try:
        check_extra(extra, action)
    except ToolError as error:
        raise ProviderError(error.message, error.kind, error.suggestion) from None
    for name in _LOGGERS[extra]:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.ERROR)


class Token(NamedTuple):
    """An access token and the time of its end."""

    text: str
    expires: float  # seconds since 1970


class CachedToken:
    """Authorises requests with a token that `fetch` returns. Fetches another one shortly before its end."""

    def __init__(self, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._fetch = fetch
        self._token = Token("", 0.0)

    async def __call__(self, url: str = "", content: bytes = b"") -> Mapping[str, str]:
        """Returns the header for a request. Raises `ProviderError`."""
        if self._token.expires - MARGIN < time.time():
            self._token = await self._fetch()
        return {"authorization": f"Bearer {self._token.text}"}


def given_token(text: str) -> CachedToken:
    """Authorises requests with a token that a person got elsewhere."""

    async def give() -> Token:
        return Token(text, time.time() + 3_600)

    return CachedToken(give)


class Door:
    """The way of one call of a vendor's package to the network: our client, with its limits.

    A package that blocks runs in a thread, and its requests on the event loop. The door remembers the last response
    and the secrets that were sent, so that an error can quote the server.
    """

    def __init__(self, action: str) -> None:
        self.action = action
        self.last: FetchedResponse | None = None
        self.address = ""  # of the last request
        self._sent: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()

    async def load(self, *modules: str) -> None:
        """Imports modules of the package beside the event loop: they take tenths of a second."""
        await in_thread(lambda: [import_module(name) for name in modules])

    async def run(self, function: Callable[[], Value]) -> Value:
        """Runs a function of the package beside the event loop; raises whatever it raised."""
        value: Value = await in_thread(function)
        return value

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, Any],
        content: bytes | str | None,
        seconds: float = FETCH_SECONDS,
    ) -> FetchedResponse:
        """Sends a request from the package's thread. Raises `ProviderError` if there is no response in time."""
        sending = self.fetch(method, url, headers, content, seconds)
        try:
            return asyncio.run_coroutine_threadsafe(sending, self._loop).result(seconds + FETCH_SECONDS)
        except RuntimeError:  # the loop has ended, and with it the run that needed the token
            sending.close()
            raise

    async def fetch(
        self,
        method: str,
        url: str,
        headers: Mapping[str, Any],
        content: bytes | str | None,
        seconds: float = FETCH_SECONDS,
    ) -> FetchedResponse:
        """Async version of `send`."""
        raw = content.encode() if isinstance(content, str) else content or b""
        written = {
            str(name): value.decode() if isinstance(value, bytes) else str(value) for name, value in headers.items()
        }
        fields = parse_qsl(raw.decode(errors="replace")) if b"=" in raw else []
        self._sent |= written | {name: value for name, value in fields if name in _SECRET_FIELDS}
        self.address = url
        self.last = await fetch(
            url,
            action=self.action,
            method=method,
            headers={name: value for name, value in written.items() if name.lower() not in FRAMING},
            content=raw,
            seconds=min(seconds, FETCH_SECONDS),
            egress=CredentialEgress(),
        )
        return self.last

    @property
    def mask(self) -> Mask:
        """Hides what was sent as a secret."""
        return mask_for(self._sent)

    def error(self, problem: Exception, advice: str) -> ProviderError:
        """Returns the error for a failed call: the server's message if it refused, otherwise those of the package."""
        if isinstance(problem, ProviderError):
            return problem
        if self.last is not None and self.last.status >= 400:
            return refused_error(read_document(self.last), self.action, advice, self.mask)
        said = str(problem.args[0]) if problem.args else ""  # google-auth adds the whole response as the second
        if isinstance(problem, AttributeError | LookupError | TypeError) or not said:
            said = f"the response cannot be read ({type(problem).__name__})"
        return ProviderError(f"{self.action}: {clean_message(said, self.mask)}", ErrorKind.CONFIG, advice)


def refused_error(found: Fetched, action: str, advice: str, mask: Mask = str) -> ProviderError:
    """Returns the error for credentials that a server refuses."""
    said = read_error(found.document, mask).text
    if described := found.get("error_description"):
        said = clean_message(described, mask)
    passing = found.status >= 500 or found.status == 429
    message = f"{action}: HTTP {found.status}: {said}"
    return ProviderError(message, ErrorKind.CONFIG, advice, passing=passing, status=found.status)
