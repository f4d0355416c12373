"""Reads what a model may be shown of a file: a page of its text, or an image; anything else is refused by its kind."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.history.tracking import note_read
from forge.workspace.paths import Place, quoted
from forge.workspace.paths.open import explained, open_file
from forge.workspace.text import HEAD, is_binary
from forge.workspace.text.file_kinds import Kind, kind_of
from forge.workspace.text.page import EXACT, Bounds, Page, read_page


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found: a page, or else the whole of an image."""

    size: int  # bytes of the file
    page: Page | None = None
    kind: Kind | None = None
    image: bytes = b""


def read_place(
    place: Place, first: int, bounds: Bounds, max_image: int, stopped: Callable[[], bool] = lambda: False
) -> Reading:
    """Raises `ToolError` for what is neither text nor an image, and notes that the rest was read."""
    with open(open_file(place), "rb") as file, explained(place.shown):
        status = os.fstat(file.fileno())  # as it was before: a change while it is read makes it stale
        head = file.read(HEAD)
        kind = None if _is_text(head) else kind_of(head)
        if kind is not None and kind.is_image:
            return _image(place, file, status, kind, max_image)
        if kind is not None or is_binary(head):
            raise _binary(place, kind, status.st_size)
        file.seek(0)
        content = file.read(EXACT + 1) if status.st_size <= EXACT else None
        if content is None or len(content) > EXACT:
            file.seek(0)
            page = read_page(file, first, bounds, stopped=stopped)
            note_read(place, status)
            return Reading(status.st_size, page)
    page = read_page(io.BytesIO(content), first, bounds, stopped=stopped)
    note_read(place, status, content)
    return Reading(len(content), page)


def _is_text(head: bytes) -> bool:
    if is_binary(head):
        return False
    try:
        head[:-3].decode()  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def _image(place: Place, file: BinaryIO, status: os.stat_result, kind: Kind, most: int) -> Reading:
    file.seek(0)
    content = file.read(most + 1)
    if len(content) > most:
        raise ToolError(
            f"{quoted(place.shown)} is too large ({kind.name}, {max(status.st_size, len(content)):,} bytes): "
            f"the limit for images is {most:,} bytes",
            ErrorKind.USER,
            "Make a smaller copy and read that.",
        )
    note_read(place, status, content)
    return Reading(len(content), kind=kind, image=content)


def _binary(place: Place, kind: Kind | None, size: int) -> ToolError:
    return ToolError(
        f"{quoted(place.shown)} is a binary file ({kind.name if kind else 'of unknown type'}, {size:,} bytes)",
        ErrorKind.USER,
        "Only text and images can be read; use a program that knows its format.",
    )
