"""Requests that a server shall take once, however often they arrive: each carries its call's key as a header."""

from __future__ import annotations

from collections.abc import Iterable

from forge.core.context import ToolContext

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  # asking twice changes nothing, so they need no key

_LENGTH = 32  # characters: what every server takes, and as many as a UUID has digits


def key_header(name: str, method: str, ctx: ToolContext, given: Iterable[str] = ()) -> dict[str, str]:
    """The header to add to a request; none where it is not wanted, not needed, or among those `given` already.

    Its value is a hash: the key itself names the session, which is nobody else's business.
    """
    if not name or method.upper() in SAFE or any(one.lower() == name.lower() for one in given):
        return {}
    from hashlib import sha256

    return {name: sha256(ctx.key.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]}
