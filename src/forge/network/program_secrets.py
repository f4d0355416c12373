"""Secrets that a program uses and never holds: it gets a placeholder, and its proxy puts the value into requests."""

from __future__ import annotations

import base64
import re
import secrets as random_bytes
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from forge.core.errors import ToolError
from forge.network.address import read_host

_LETTERS = string.ascii_letters + string.digits
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[^\r\n\0]*\{\}[^\r\n\0]*")
_NOT_FOR_SECRETS = frozenset(  # the proxy or the connection needs them
    "host connection content-length transfer-encoding expect upgrade te trailer accept-encoding range".split()
)
_BASIC = re.compile(rb"(?i)basic\s+(\S*:.*)")


def _make_placeholder() -> str:
    return "forge-" + "".join(random_bytes.choice(_LETTERS) for _ in range(34))


@dataclass(frozen=True, slots=True)
class ProgramSecret:
    """A value that goes into the requests of programs to some hosts.

    Raises `ValueError` for a host or a header that cannot be used.

    Args:
        read: returns the value, each time a request needs it; called in a thread.
        hosts: the hosts that get it, `*.host` for subdomains, on every port.
        header: the header and its text around the value. A user and a password after `Basic` are written in base64.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", read_hosts(self.hosts))
        named = _HEADER.fullmatch(self.header)
        if named is None:
            raise ValueError(
                f"{self.header!r} is not a header with {{}} for the value, such as Authorization: Bearer {{}}"
            )
        if named[1].lower() in _NOT_FOR_SECRETS:
            raise ValueError(f"the header {named[1]} cannot hold a secret; use one such as Authorization: Bearer {{}}")

    def is_for(self, host: str) -> bool:
        return any(covers_host(one, host) for one in self.hosts)

    @property
    def header_name(self) -> bytes:
        return self.header.partition(":")[0].strip().lower().encode()

    def write_header(self, value: str) -> bytes:
        return encode_basic(self.header.partition(":")[2].strip().replace("{}", value).encode())


def put_placeholders(text: str, placeholders: Mapping[str, str]) -> str:
    """Returns a text with placeholders in the place of values."""
    for value in sorted(placeholders, key=len, reverse=True):  # one may begin another
        text = text.replace(value, placeholders[value])
    return text


def encode_basic(text: bytes) -> bytes:
    """Returns the text of a header, with a user and a password after `Basic` as servers read them."""
    found = _BASIC.fullmatch(text)
    return text if found is None else b"Basic " + base64.b64encode(found[1])


def read_hosts(entries: Iterable[str]) -> tuple[str, ...]:
    """Returns hosts, `*.host` for subdomains, as they are compared. Raises `ValueError`."""
    if isinstance(entries, str):
        raise ValueError(f"write a list: [{entries}]")
    found = []
    for entry in entries:
        subdomains, rest = ("*.", entry[2:]) if entry.startswith("*.") else ("", entry)
        try:
            found.append(subdomains + read_host(rest)[0])
        except ToolError:
            message = (
                f"{entry!r} is not a host: write it like api.example.com or *.example.com, without scheme and port"
            )
            raise ValueError(message) from None
    return tuple(found)


def covers_host(pattern: str, host: str) -> bool:
    """Returns whether `host`, or `*.host` for its subdomains, covers a host."""
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern
