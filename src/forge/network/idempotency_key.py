"""Adds a call's key as a header, so that a server handles a repeated request only once."""

from __future__ import annotations

from collections.abc import Iterable

from forge.core.context import ToolContext

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  # asking twice changes nothing, so they need no key

_LENGTH = 32  # characters: every server accepts that many, and a UUID has as many digits


def key_header(name: str, method: str, ctx: ToolContext, given: Iterable[str] = ()) -> dict[str, str]:
    """Returns the header to add, or none if it is not configured, not needed, or among the `given` ones.

    Its value is a hash: the key itself names the session, which must stay private.
    """
    if not name or method.upper() in SAFE or any(one.lower() == name.lower() for one in given):
        return {}
    from hashlib import sha256

    return {name: sha256(ctx.key.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]}
