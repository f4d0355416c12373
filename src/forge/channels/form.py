"""`multipart/form-data`: fields and files in one body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex

from forge.core.result import Attachment


def written_form(fields: Mapping[str, str], files: Mapping[str, Attachment]) -> tuple[bytes, str]:
    """The body, and its content type. Names are cleaned: a quote or a line break in one would end its header."""
    boundary = f"forge-{token_hex(16)}"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    for key, file in files.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"; filename="{file_name(file)}"\r\n'
        parts += [head.encode(), f"Content-Type: {media_type(file)}\r\n\r\n".encode(), file.data, b"\r\n"]
    return b"".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"


def file_name(file: Attachment) -> str:
    return "".join(char if char.isprintable() and char not in '"\\/' else "-" for char in file.name or "file")


def media_type(file: Attachment) -> str:
    kind = file.media_type
    return kind if kind.isascii() and kind.isprintable() and kind else "application/octet-stream"


def names_of(files: Sequence[Attachment], why: str) -> str:
    """A line for each file that does not go along."""
    return "\n".join(f"[{one.name or 'file'}: {len(one.data):,} bytes, {why}]" for one in files)
