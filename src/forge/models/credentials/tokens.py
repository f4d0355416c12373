"""Keeps an access token until it is about to expire."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.models.http.errors import clean_message, read_error
from forge.models.http.fetch import Fetched

MARGIN = 120.0  # seconds before its end in which a token is no longer used


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


def read_token(found: Fetched, action: str, advice: str) -> Token:
    """Reads the answer of an OAuth server. Raises `ProviderError` for an error in it."""
    text = found.get("access_token")
    if found.status != 200 or not text:
        raise refused_error(found, action, advice)
    document = found.document
    lasts, until = document.get("expires_in"), document.get("expires_on")  # Azure sends texts, and a date
    seconds = float(lasts) if str(lasts).isdigit() else 300.0
    return Token(text, float(until) if str(until).isdigit() else time.time() + seconds)


def refused_error(found: Fetched, action: str, advice: str) -> ProviderError:
    """Returns the error for credentials that a server refuses."""
    said = read_error(found.document, str).text
    if described := found.get("error_description"):
        said = clean_message(described, str)
    passing = found.status >= 500 or found.status == 429
    words = f"{action}: HTTP {found.status}: {said}"
    return ProviderError(words, ErrorKind.CONFIG, advice, passing=passing, status=found.status)
