"""A request that is ready to be sent, and the words for what may go wrong with it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.core.secrets import Secrets
from forge.models.http.errors import Mask, shown

_HARMLESS = {"accept", "anthropic-beta", "anthropic-version", "content-type", "http-referer", "user-agent", "x-title"}


@dataclass
class Sending:
    """A request, ready to be sent as often as needed."""

    url: str
    headers: Mapping[str, str]
    content: bytes
    timeout: float
    silence: float
    asked: str  # what was tried, for errors

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.timeout
        self.mask = mask_for(self.headers)

    @property
    def left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Before the HTTP library does, which would quote the value."""
        for name, value in self.headers.items():
            written = name + value
            if not written.isascii() or not written.isprintable() or value != value.strip():
                raise self.error(
                    f"the value of the header {name!a} holds characters that cannot be sent",
                    ErrorKind.CONFIG,
                    "Check the API key for stray spaces, line breaks and quotation marks.",
                )

    def error(self, what: str, kind: ErrorKind, suggestion: str, *, passing: bool = False) -> ProviderError:
        return ProviderError(f"{self.asked}: {what}", kind, suggestion, passing=passing)


def written_body(body: dict[str, Any], label: str) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise ProviderError(
            f"asking {label}: the request cannot be written as JSON: {shown(str(error), str)}",
            ErrorKind.VALIDATION,
            "Use only texts, finite numbers, lists and objects in the options.",
        ) from None


def host_of(url: str) -> str:
    """What of a URL may be shown: the rest may hold a key."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "an unknown host"
    except ValueError:
        return "an unknown host"


def mask_for(headers: Mapping[str, str]) -> Mask:
    """Hides whatever these headers carry, except in those known to be harmless."""
    secrets = Secrets()
    for name, value in headers.items():
        if name.lower() not in _HARMLESS:
            secrets.learn((value, value.rpartition(" ")[2]))
    return secrets.mask_all
