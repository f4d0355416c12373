"""Reads a document from a file or a server."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.network.egress import Egress
from forge.sources.openapi.document import Document
from forge.sources.openapi.parsing import LARGEST, parse, unreadable

SECONDS = 60.0


def is_url(spec: str) -> bool:
    return spec[:8].lower().startswith(("http://", "https://"))


async def open_document(spec: str | Path | Mapping[str, Any], egress: Egress) -> Document:
    """Opens a document. It is parsed in a thread, since a large one takes a while."""
    if isinstance(spec, Mapping):
        name = "given as data"
        return Document(await in_thread(lambda: _copy_data(spec, name)), name)
    if isinstance(spec, str) and is_url(spec):
        raw, url = await download(spec, egress)
        return await parse_document(raw, url, url)
    path = Path(spec)
    return await parse_document(await in_thread(lambda: _read_content(path)), path.name)


async def parse_document(raw: bytes, name: str, url: str = "") -> Document:
    return Document(await in_thread(lambda: parse(raw, name)), name, url)


async def download(url: str, egress: Egress) -> tuple[bytes, str]:
    """Returns the bytes and the final URL, which is on the same server."""
    from forge.network.client import fetch
    from forge.network.headers import Limits

    limits = Limits(read=SECONDS, total=SECONDS, size=LARGEST)
    answer = await fetch("GET", url, egress=egress, limits=limits, follow="same-host")
    if answer.location:
        raise ToolError(
            f"the OpenAPI document at {url[:200]} has moved to {answer.location[:200]}",
            ErrorKind.CONFIG,
            "Use the new URL, if you trust it.",
        )
    if answer.status != 200:
        raise unreadable(url[:200], f"the server answered {answer.status}", "Check the URL.")
    if answer.truncated:
        raise unreadable(url[:200], f"it has more than {LARGEST // 1024 // 1024} MiB", "Make it smaller.")
    return answer.body, answer.url


def _read_content(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not hang
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise unreadable(path.name, "it is not a regular file", "Name a file.")
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise unreadable(str(path), str(error.strerror), "Name an existing file.") from None
    except ValueError:  # a NUL byte in the name
        raise unreadable(repr(str(path)), "no such file", "Name an existing file.") from None
    if len(content) > LARGEST:
        raise unreadable(path.name, f"it has more than {LARGEST // 1024 // 1024} MiB", "Make it smaller.")
    return content


def _copy_data(root: Mapping[str, Any], name: str) -> Any:
    """Copies data as JSON: a program's data may hold anything, and contain itself."""
    from pydantic_core import from_json, to_json  # heavy: needed only for a document

    try:
        return from_json(to_json(root, inf_nan_mode="null"))
    except (ValueError, RecursionError) as error:  # pydantic's errors are ValueErrors
        raise unreadable(name, f"it is not JSON: {str(error)[:200]}") from None
