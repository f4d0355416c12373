"""Sends requests for a call: follows a redirect to another server only if the gate allows it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError

if TYPE_CHECKING:  # they load what only a call needs
    from forge.network.headers import Limits as Bounds
    from forge.network.body import Response

_AS_GET = (301, 302, 303)
_REDIRECTED = "after a redirect, "  # the call did not name this server


async def send_request(
    ctx: ToolContext, method: str, url: str, *, headers: Mapping[str, str], body: bytes, limits: Bounds
) -> Response:
    """Returns the answer after all redirects. Another server gets neither the body nor possible secrets."""
    from dataclasses import replace

    from forge.network.client import fetch  # imports asyncio, which listing tools does without
    from forge.network.headers import check_headers, keep_harmless

    sent = check_headers(headers)
    hops: tuple[str, ...] = ()
    end = time.monotonic() + limits.total
    while True:
        excused = ctx.excused
        try:
            answer = await fetch(method, url, headers=sent, body=body, limits=limits, follow="same-host")
        except ToolError as error:
            if hops and not error.message.startswith(_REDIRECTED):
                error.message = f"{_REDIRECTED}{error.message}"
            raise
        hops = (*hops, *answer.hops)
        if not answer.location:
            return replace(answer, hops=hops)
        hops = (*hops, answer.url)
        if len(hops) > limits.redirects:
            raise ToolError(
                f"more than {limits.redirects} redirects", ErrorKind.USER, "Request the final URL directly."
            )
        url = answer.location
        await ctx.require("network", url)
        if answer.status == 303 or (answer.status in _AS_GET and method == "POST"):
            method = "HEAD" if method == "HEAD" else "GET"
        sent, body = keep_harmless(sent), b""
        end += ctx.excused - excused  # waiting for a person is not the server's time
        left = end - time.monotonic()
        if left <= 0:
            raise ToolError(f"no complete response within {limits.total:g} s", ErrorKind.TIMEOUT, "Allow more time.")
        limits = replace(limits, total=left)
