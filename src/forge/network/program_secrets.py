"""Secrets that a program uses and never holds: it gets a placeholder, and its proxy puts the value into requests."""

from __future__ import annotations

import base64
import secrets as random_bytes
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

_LETTERS = string.ascii_letters + string.digits
_LEAST_CODED = 8  # bytes in base64 below which ordinary text would be changed


def _make_placeholder() -> str:
    return "forge-" + "".join(random_bytes.choice(_LETTERS) for _ in range(34))


@dataclass(frozen=True, slots=True)
class ProgramSecret:
    """A value that goes into the requests of programs to some hosts.

    Args:
        read: returns the value, each time a request needs it.
        hosts: the hosts that get it, `*.host` for subdomains.
        header: the header and its text around the value.
        name: the variable in which the program finds the placeholder; "" for none.

    Example:
        >>> secret = ProgramSecret(lambda: "a-token-of-ours", ("api.example.com",), name="API_TOKEN")
        >>> secret.is_for("api.example.com"), secret.is_for("example.com")
        (True, False)
    """

    read: Callable[[], str] = field(repr=False)
    hosts: tuple[str, ...]
    header: str = "Authorization: Bearer {}"
    name: str = ""
    placeholder: str = field(default_factory=_make_placeholder, compare=False)

    def is_for(self, host: str) -> bool:
        return any(covers_host(one, host) for one in self.hosts)

    @property
    def header_name(self) -> bytes:
        return self.header.partition(":")[0].strip().lower().encode()

    def write_header(self, value: str) -> bytes:
        return self.header.partition(":")[2].strip().replace("{}", value).encode()

    def spellings(self, value: str) -> list[tuple[bytes, bytes]]:
        """Returns the value as answers may spell it, each with a part of the placeholder of the same length, so that
        the lengths that answers name stay true.
        """
        found = [value.encode(), quote(value, safe="").encode(), value.replace("/", "\\/").encode()]
        for offset in range(3):  # base64 spells a text in three ways, by its place
            coded = base64.b64encode(b"\0" * offset + value.encode())
            found.append(coded[4 if offset else 0 : len(coded) // 4 * 4 - 4])
        long_enough = {one for one in found if len(one) >= min(_LEAST_CODED, len(value))}
        return [(one, self._placeholder_of(len(one))) for one in sorted(long_enough, key=len, reverse=True)]

    def cover(self, written: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
        """Returns what headers hold, such as the base64 of a user and a password, with the same kind of cover."""
        found = [text.rpartition(b" ")[2] for text in written]
        return [(one, self._placeholder_of(len(one))) for one in found if len(one) >= _LEAST_CODED]

    def _placeholder_of(self, length: int) -> bytes:
        return (self.placeholder * (length // len(self.placeholder) + 1))[:length].encode()


def covers_host(pattern: str, host: str) -> bool:
    """Returns whether `host`, or `*.host` for its subdomains, covers a host."""
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern
