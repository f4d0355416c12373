"""Secrets that a program uses and never holds: it gets a placeholder, and its proxy puts the value into requests."""

from __future__ import annotations

import base64
import html
import json
import re
import secrets as random_bytes
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

_LETTERS = string.ascii_letters + string.digits
_CODE, _SIGN, _ANY = re.compile(rb"%[0-9A-F]{2}"), re.compile(rb"[^A-Za-z0-9]"), re.compile(rb"(?s).")
_LEAST_CODED = 8  # bytes in base64 below which ordinary text would be changed


def _quote_sign(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % found[0][0]


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
        plain = value.encode()
        quoted = [quote(value, safe="").encode(), quote_plus(value).encode(), _SIGN.sub(_quote_sign, plain)]
        quoted.append(_ANY.sub(_quote_sign, plain))
        found = [plain, *quoted, *(_CODE.sub(lambda code: code[0].lower(), one) for one in quoted)]
        found.append(value.replace("/", "\\/").encode())
        found += [json.dumps(value)[1:-1].encode(), html.escape(value).encode()]
        found += [plain.hex().encode(), plain.hex().upper().encode()]
        for offset in range(3):  # base64 spells a text in three ways, by its place
            for coded in (base64.b64encode(b"\0" * offset + plain), base64.urlsafe_b64encode(b"\0" * offset + plain)):
                found.append(coded[4 if offset else 0 : len(coded) // 4 * 4 - 4])
        long_enough = {one for one in found if one and len(one) >= min(_LEAST_CODED, len(value))}
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
