"""Sends a channel's requests, forms included, to its configured service only, and never shows the URL.

A request that a rate limit refuses is sent again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from secrets import token_hex
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Attachment
from forge.core.untrusted import one_line
from forge.network.body import Response
from forge.network.client import fetch
from forge.network.egress import Egress
from forge.network.headers import RequestLimits

TRIES = 3
LONGEST_WAIT = 60.0  # seconds that a service may ask for
FIRST_PAUSE = 1.0  # seconds before a broken connection is tried again
MOST_FILES = 10  # files of one incoming message
LIMITS = RequestLimits(total=30.0, size=256 * 1024)

Sleep = Callable[[float], Awaitable[None]]


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    wait_of: Callable[[Response], float],
    sleep: Sleep = asyncio.sleep,
    limits: RequestLimits = LIMITS,
) -> Response:
    """Returns the answer. Retries 429 and 503 after `wait_of` seconds, at most a minute; follows no redirect."""
    tries = 0
    while True:
        tries += 1
        answer = await fetch(
            "POST", url, headers=headers, body=body, egress=Egress.only(url), limits=limits, follow="none"
        )
        wait = wait_of(answer)
        if answer.status not in (429, 503) or tries == TRIES or wait > LONGEST_WAIT:
            return answer
        await sleep(max(wait, 0.1))


async def download(url: str, headers: Mapping[str, str], most: int, name: str) -> bytes:
    """Returns a file of the service, of at most so many bytes. Follows no redirect. Raises `ToolError`."""
    limits = RequestLimits(total=60.0, size=most)
    answer = await fetch("GET", url, headers=headers, egress=Egress.only(url), limits=limits, follow="none")
    if answer.status != 200 or answer.truncated:
        problem = f"it has more than {most:,} bytes" if answer.truncated else f"the service said {answer.status}"
        hint = "Send a smaller file." if answer.truncated else "Send the file again."
        raise ToolError(f"fetching the file {one_line(name, 80)!r}: {problem}", ErrorKind.USER, hint)
    return answer.body


def read_object(answer: Response | bytes) -> dict[str, Any]:
    """Returns the JSON object of an answer or a body, or an empty one if it is not an object."""
    try:
        found = json.loads(answer if isinstance(answer, bytes) else answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text_of(entry: object, *names: str) -> str:
    """Returns the text at a path of names in what a service sent; "" if there is none. Numbers count as texts."""
    for name in names:
        entry = entry.get(name) if isinstance(entry, dict) else None
    if isinstance(entry, int) and not isinstance(entry, bool):
        return str(entry)
    return entry if isinstance(entry, str) else ""


def number_of(entry: object, *names: str) -> int:
    """Returns the number at a path of names, such as a size; 0 if there is none. Texts of digits count as numbers."""
    text = text_of(entry, *names)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def objects_of(entry: object, name: str) -> list[dict[str, Any]]:
    """Returns the objects of a list in what a service sent."""
    found = entry.get(name) if isinstance(entry, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


class Pauses:
    """The pauses between tries to connect: each twice as long as the one before, at most a minute."""

    def __init__(self, sleep: Sleep) -> None:
        self._sleep, self._next = sleep, FIRST_PAUSE

    def end_row(self) -> None:
        """Begins with a short pause again: the last try worked for a while."""
        self._next = FIRST_PAUSE

    async def wait(self) -> None:
        pause, self._next = self._next, min(self._next * 2, LONGEST_WAIT)
        await self._sleep(pause)


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


# Encodes fields and files as one `multipart/form-data` body.


def encode_form(fields: Mapping[str, str], files: Mapping[str, Attachment]) -> tuple[bytes, str]:
    """Returns the body and its content type. Cleans names: a quote or line break would end the header."""
    boundary = f"forge-{token_hex(16)}"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    for key, file in files.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"; filename="{file_name(file)}"\r\n'
        parts += [head.encode(), f"Content-Type: {media_type_of(file)}\r\n\r\n".encode(), file.data, b"\r\n"]
    return b"".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"


def file_name(file: Attachment) -> str:
    return "".join(char if char.isprintable() and char not in '"\\/' else "-" for char in file.name or "file")


def media_type_of(file: Attachment) -> str:
    kind = file.media_type
    return kind if kind.isascii() and kind.isprintable() and kind else "application/octet-stream"


def list_file_names(files: Sequence[Attachment], why: str) -> str:
    """Returns one line for each file that is not attached."""
    return "\n".join(f"[{one.name or 'file'}: {len(one.data):,} bytes, {why}]" for one in files)
