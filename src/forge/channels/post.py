"""Sends a channel's requests to its configured service only, retries rate limits, and never shows the URL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.network.body import Response
from forge.network.client import fetch
from forge.network.egress import Egress
from forge.network.headers import Limits

TRIES = 3
LONGEST_WAIT = 60.0  # seconds that a service may ask for
_LIMITS = Limits(total=30.0, size=256 * 1024)

Sleep = Callable[[float], Awaitable[None]]


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    wait_of: Callable[[Response], float],
    sleep: Sleep = asyncio.sleep,
) -> Response:
    """Returns the answer. Retries 429 and 503 after `wait_of` seconds, at most a minute; follows no redirect."""
    tries = 0
    while True:
        tries += 1
        answer = await fetch(
            "POST", url, headers=headers, body=body, egress=Egress.only(url), limits=_LIMITS, follow="none"
        )
        wait = wait_of(answer)
        if answer.status not in (429, 503) or tries == TRIES or wait > LONGEST_WAIT:
            return answer
        await sleep(max(wait, 0.1))


def read_object(answer: Response) -> dict[str, Any]:
    """Returns the JSON object of an answer, or an empty one if the answer is not an object."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def parse_retry_after(text: str) -> float:
    """Returns `Retry-After` in seconds, or one second if the text is not a number."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1.0


def delivery_error(service: str, status: int, said: str, advice: str) -> ToolError:
    kind = (
        ErrorKind.RATE_LIMITED
        if status == 429
        else ErrorKind.CONFIG
        if status in (400, 401, 403, 404, 410)
        else ErrorKind.SYSTEM
    )
    words = " ".join(said.split())[:200]
    return ToolError(f"{service} did not accept the message: {status} {words}".rstrip(), kind, advice)
