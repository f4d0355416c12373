"""Holds a request that is ready to be sent, and the texts of its errors."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.core.secrets import Secrets
from forge.models.http.errors import Mask, clean_message

Sign = Callable[[str, bytes], Awaitable[Mapping[str, str]]]
"""Returns the headers that authorise one try, from its URL and its body. Raises `ProviderError`."""

_HARMLESS = {"accept", "anthropic-beta", "anthropic-version", "content-type", "http-referer", "user-agent", "x-title"}


@dataclass
class OutgoingRequest:
    """A request that can be sent several times."""

    url: str
    headers: Mapping[str, str]
    content: bytes
    timeout: float
    silence: float
    action: str  # such as "asking openai at api.openai.com", for errors
    sign: Sign | None = None  # a token may expire, and a signature has a time: it is called for each try

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.timeout
        self.mask = mask_for(self.headers)

    @property
    def left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    async def authorise(self) -> Mapping[str, str]:
        """Returns the headers of the next try, and masks their values from then on. Raises `ProviderError`."""
        if self.sign is not None:
            self.headers = {**self.headers, **await self.sign(self.url, self.content)}
            self.mask = mask_for(self.headers)
            self.check()
        return self.headers

    def check(self) -> None:
        """Checks the headers before the HTTP library does, which would quote their values."""
        for name, value in self.headers.items():
            written = name + value
            if not written.isascii() or not written.isprintable() or value != value.strip():
                raise self.error(
                    f"the value of the header {name!a} contains characters that cannot be sent",
                    ErrorKind.CONFIG,
                    "Check the API key for stray spaces, line breaks and quotation marks.",
                )

    def error(self, what: str, kind: ErrorKind, suggestion: str, *, passing: bool = False) -> ProviderError:
        return ProviderError(f"{self.action}: {what}", kind, suggestion, passing=passing)


def encode_body(body: dict[str, Any], label: str) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise ProviderError(
            f"asking {label}: the request cannot be written as JSON: {clean_message(str(error), str)}",
            ErrorKind.VALIDATION,
            "Use only strings, finite numbers, lists and objects in the options.",
        ) from None


def host_of(url: str) -> str:
    """Returns the part of a URL that may be shown: the rest may hold a key."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "an unknown host"
    except ValueError:
        return "an unknown host"


def mask_for(headers: Mapping[str, str]) -> Mask:
    """Returns a function that hides the values of these headers, known harmless ones excepted."""
    secrets = Secrets()
    for name, value in headers.items():
        if name.lower() not in _HARMLESS:
            secrets.learn((value, value.rpartition(" ")[2]))
    return secrets.mask_all
