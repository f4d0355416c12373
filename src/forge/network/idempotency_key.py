"""Adds a call's key as a header, so that a server handles a repeated request only once."""

from __future__ import annotations

from collections.abc import Iterable

from forge.core.context import ToolContext
from forge.core.reconcile import Reconciled

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


def reconcile_request(name: str, method: str, ctx: ToolContext, given: Iterable[str] = ()) -> Reconciled:
    """Says whether a request of a lost worker may be sent again; the arguments are those of `key_header`."""
    if method.upper() in SAFE:
        return Reconciled.not_done(f"a {method.upper()} request changes nothing", final=True)
    if key_header(name, method, ctx, given):
        return Reconciled.not_done("the server handles a repeated key only once", final=True)
    return Reconciled.unknown("the request may have reached the server")
