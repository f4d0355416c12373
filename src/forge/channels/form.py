"""Encodes fields and files as one `multipart/form-data` body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex

from forge.core.result import Attachment


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
