"""The bounds of one request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds in seconds and bytes, for the whole chain of redirects or for each answer in it."""

    connect: float = 10.0  # until a connection stands, name and handshake included
    read: float = 30.0  # between two pieces of an answer
    total: float = 30.0  # everything, redirects included
    size: int = 1024 * 1024  # of a body, unpacked
    headers: int = 200  # lines
    header_size: int = 64 * 1024  # all of them
    redirects: int = 10
