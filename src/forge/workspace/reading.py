"""Reads the part of a file that a model may see: a page of text, or an image; refuses other kinds."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import FileKind, kind_of
from forge.core.result import Attachment, recognise_file
from forge.workspace.history.tracking import note_read
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.open import explain_errors, open_file, read_file
from forge.workspace.text import HEAD, is_binary
from forge.workspace.text.page import EXACT, Page, PageBounds, read_page


@dataclass(frozen=True, slots=True)
class FileContent:
    """The result of reading: a page, or the whole of an image."""

    size: int  # bytes of the file
    page: Page | None = None
    kind: FileKind | None = None
    image: bytes = b""


def read_for_model(
    location: Location, first: int, bounds: PageBounds, max_image: int, stopped: Callable[[], bool] = lambda: False
) -> FileContent:
    """Reads a page or an image and records the read. Raises `ToolError` for other kinds of files."""
    with open(open_file(location), "rb") as file, explain_errors(location.shown):
        status = os.fstat(file.fileno())  # before reading: a change meanwhile makes the record stale
        head = file.read(HEAD)
        kind = None if _is_text(head) else kind_of(head)
        if kind is not None and kind.is_image:
            return _read_image(location, file, status, kind, max_image)
        if kind is not None or is_binary(head):
            raise _binary_error(location, kind, status.st_size)
        content = _read_whole(file, head, status.st_size)
        if content is None:
            file.seek(0)
            page = read_page(file, first, bounds, stopped=stopped)
            note_read(location, status)
            return FileContent(status.st_size, page)
    page = read_page(io.BytesIO(content), first, bounds, stopped=stopped)
    note_read(location, status, content)
    return FileContent(len(content), page)


def _read_whole(file: BinaryIO, head: bytes, size: int) -> bytes | None:
    """Reads a file of which the head is read; None if it has more than `EXACT` bytes."""
    if size > EXACT:
        return None
    content = head
    if len(head) == HEAD:
        content += file.read(max(0, size - HEAD) + 1)
        if len(content) > size:  # it grew, or does not tell its size
            content += file.read(EXACT + 1 - len(content))
    return content if len(content) <= EXACT else None


def _is_text(head: bytes) -> bool:
    if is_binary(head):
        return False
    try:
        head[:-3].decode()  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def _read_image(location: Location, file: BinaryIO, status: os.stat_result, kind: FileKind, most: int) -> FileContent:
    file.seek(0)
    content = file.read(most + 1)
    if len(content) > most:
        raise ToolError(
            f"{quote_path(location.shown)} is too large ({kind.name}, {max(status.st_size, len(content)):,} bytes): "
            f"the limit for images is {most:,} bytes",
            ErrorKind.USER,
            "Make a smaller copy and read that.",
        )
    note_read(location, status, content)
    return FileContent(len(content), kind=kind, image=content)


def _binary_error(location: Location, kind: FileKind | None, size: int) -> ToolError:
    return ToolError(
        f"{quote_path(location.shown)} is a binary file ({kind.name if kind else 'of unknown type'}, {size:,} bytes)",
        ErrorKind.USER,
        "Only text and images can be read; use a program that knows its format.",
    )


# Reads the files of a prompt: `agent.run(["What is this?", Image("photo.png")])`.


LARGEST_FILES = 20 * 1024 * 1024  # bytes of all files of a prompt; providers take about as much in a request


def read_attachments(scope: Scope, attachments: Iterable[Attachment]) -> tuple[Attachment, ...]:
    """Returns the attachments with the content of those that only name a file of the workspace. Raises `ToolError`."""
    found, left = [], LARGEST_FILES
    for one in attachments:
        if one.is_unread:
            one = recognise_file(one.media_type, read_file(scope, one.path, LARGEST_FILES), one.name or one.path)
        left -= len(one.data)
        if left < 0:
            message = f"attaching {quote_path(one.name or one.media_type)}: the files of a prompt have together more"
            message = f"{message} than {LARGEST_FILES:,} bytes"
            raise ToolError(message, ErrorKind.VALIDATION, "Attach fewer or smaller files.")
        found.append(one)
    return tuple(found)
