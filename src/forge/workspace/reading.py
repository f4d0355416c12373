"""Reads the part of a file that a model may see: a page of text, or an image; refuses other kinds."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.history.tracking import note_read
from forge.workspace.paths import Location, quote_path
from forge.workspace.paths.open import explain_errors, open_file
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


# Recognises images and common binary files by their first bytes.


KIND_HEAD = 512  # bytes that are enough to tell


class FileKind(NamedTuple):
    name: str  # "PNG image"
    media_type: str

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")


_STARTS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG image", "image/png"),
    (b"\xff\xd8\xff", "JPEG image", "image/jpeg"),
    (b"GIF87a", "GIF image", "image/gif"),
    (b"GIF89a", "GIF image", "image/gif"),
    (b"II*\0", "TIFF image", "image/tiff"),
    (b"MM\0*", "TIFF image", "image/tiff"),
    (b"\0\0\1\0", "icon", "image/x-icon"),
    (b"\xff\x0a", "JPEG XL image", "image/jxl"),
    (b"\0\0\0\x0cJXL ", "JPEG XL image", "image/jxl"),
    (b"%PDF-", "PDF document", "application/pdf"),
    (b"PK\3\4", "ZIP archive", "application/zip"),
    (b"PK\5\6", "ZIP archive", "application/zip"),
    (b"\x1f\x8b", "gzip archive", "application/gzip"),
    (b"BZh", "bzip2 archive", "application/x-bzip2"),
    (b"\xfd7zXZ\0", "xz archive", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "Zstandard archive", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive", "application/x-7z-compressed"),
    (b"Rar!\x1a\7", "RAR archive", "application/vnd.rar"),
    (b"!<arch>\n", "static library or Debian package", "application/x-archive"),
    (b"\x7fELF", "ELF program or library", "application/x-elf"),
    (b"MZ", "Windows program or library", "application/vnd.microsoft.portable-executable"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program or library", "application/x-mach-binary"),
    (b"\xce\xfa\xed\xfe", "Mach-O program or library", "application/x-mach-binary"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program", "application/java-vm"),
    (b"\0asm", "WebAssembly module", "application/wasm"),
    (b"SQLite format 3\0", "SQLite database", "application/vnd.sqlite3"),
    (b"PAR1", "Parquet table", "application/vnd.apache.parquet"),
    (b"\x89HDF\r\n\x1a\n", "HDF5 data", "application/x-hdf5"),
    (b"\x93NUMPY", "NumPy array", "application/octet-stream"),
    (b"OggS", "Ogg audio or video", "application/ogg"),
    (b"fLaC", "FLAC audio", "audio/flac"),
    (b"ID3", "MP3 audio", "audio/mpeg"),
    (b"\xff\xfb", "MP3 audio", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "Matroska or WebM video", "video/x-matroska"),
    (b"wOFF", "WOFF font", "font/woff"),
    (b"wOF2", "WOFF2 font", "font/woff2"),
    (b"\0\1\0\0\0", "TrueType font", "font/ttf"),
    (b"OTTO", "OpenType font", "font/otf"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Office document", "application/x-ole-storage"),
    (b"DIRC", "Git index", "application/octet-stream"),
    (b"PACK", "Git pack", "application/octet-stream"),
)
_RIFF = {
    b"WEBP": FileKind("WebP image", "image/webp"),
    b"WAVE": FileKind("WAV audio", "audio/wav"),
    b"AVI ": FileKind("AVI video", "video/x-msvideo"),
}
_BRANDS = {  # of the ISO container
    b"avif": FileKind("AVIF image", "image/avif"),
    b"avis": FileKind("AVIF image", "image/avif"),
    b"heic": FileKind("HEIC image", "image/heic"),
    b"heix": FileKind("HEIC image", "image/heic"),
    b"mif1": FileKind("HEIF image", "image/heif"),
    b"qt  ": FileKind("QuickTime video", "video/quicktime"),
    b"M4A ": FileKind("MPEG-4 audio", "audio/mp4"),
}


def kind_of(head: bytes) -> FileKind | None:
    """Returns the kind of a file that begins like this; None if it is unknown.

    Some signatures are plain letters: use it only for files that are not text.
    """
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], FileKind("MPEG-4 video", "video/mp4"))
    if head.startswith(b"RIFF") and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        return FileKind("BMP image", "image/bmp")
    if head[257:262] == b"ustar":
        return FileKind("tar archive", "application/x-tar")
    return next((FileKind(name, media) for start, name, media in _STARTS if head.startswith(start)), None)
