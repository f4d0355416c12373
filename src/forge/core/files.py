"""Opens files by name without waiting: a FIFO, a socket or a device in the place of a file is an error.

Everything that is read from a project, from `.forge/` or from the user's settings is opened here or with the same
flags: a FIFO would block the whole process, and opening a device can have an effect.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError

NOT_REGULAR = "it is not a regular file"


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Opens a regular file and returns its descriptor. Raises `OSError`, also if it is no regular file."""
    try:
        kind = os.stat(path, follow_symlinks=not flags & os.O_NOFOLLOW).st_mode
    except FileNotFoundError:
        kind = 0  # `flags` may make it
    if kind and not S_ISREG(kind) and not S_ISLNK(kind):
        raise _not_regular(path, kind)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    kind = os.fstat(descriptor).st_mode  # it may have been replaced since
    if not S_ISREG(kind):
        os.close(descriptor)
        raise _not_regular(path, kind)
    return descriptor


def read_regular(path: str | os.PathLike[str], largest: int, flags: int = os.O_RDONLY) -> bytes:
    """Returns the content of a regular file of at most so many bytes. Raises `OSError`."""
    with os.fdopen(open_regular(path, flags), "rb") as stream:
        content = stream.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"it is larger than {largest:,} bytes", os.fspath(path))
    return content


def find_status(within: int, name: str) -> os.stat_result | None:
    """Returns the status of a file in an open directory: of a link's target, or of a link that has none."""
    for follows in (True, False):
        try:
            return os.stat(name, dir_fd=within, follow_symlinks=follows)
        except OSError:
            continue
    return None


def _not_regular(path: str | os.PathLike[str], kind: int) -> OSError:
    number = errno.EISDIR if S_ISDIR(kind) else errno.EINVAL
    return OSError(number, NOT_REGULAR, os.fspath(path))


# Holds the directories of sessions open, so that nothing can replace them unnoticed.
#
# A held directory stays the one it was when its session began, while a `HeldDirectory` refers to it. Sessions that name
# the same path meanwhile share it: one descriptor for each directory, closed with the last session.


_FLAGS = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class HeldDirectory:
    """One directory: the real path it had, and its descriptor."""

    __slots__ = ("__weakref__", "_identity", "_names", "descriptor", "path")

    def __init__(self, spelled: str) -> None:
        """Raises `OSError`."""
        self.path = Path(os.path.realpath(spelled))
        self._names = tuple(dict.fromkeys((spelled, str(self.path))))
        self.descriptor = os.open(self.path, _FLAGS)
        status = os.fstat(self.descriptor)
        self._identity = (status.st_dev, status.st_ino)
        weakref.finalize(self, os.close, self.descriptor).atexit = False

    def check(self) -> None:
        """Raises `ToolError` where its name, or the real path it had, now leads to another directory."""
        for name in self._names:
            try:
                status = os.stat(name)
            except OSError as error:
                raise _make_error(name, f"cannot be reached any more: {error.strerror}") from None
            if (status.st_dev, status.st_ino) != self._identity:
                raise _make_error(name, "was replaced by another directory since this session began")


_held: weakref.WeakValueDictionary[str, HeldDirectory] = weakref.WeakValueDictionary()  # by spelling, and by real path
_lock = threading.RLock()  # a collection may close a directory in the middle of it


def hold(path: Path | str) -> HeldDirectory | None:
    """Returns the held directory of this name, or holds it as it is now; None where there is none."""
    spelled = _normalise_path(path)
    held = _held.get(spelled)
    if held is not None:
        return held
    with _lock:
        if (held := _held.get(spelled)) is not None:
            return held
        try:
            made = HeldDirectory(spelled)
        except (OSError, ValueError):  # not there, no directory, a NUL byte: its first use fails
            return None
        _held[spelled] = made
        _held.setdefault(str(made.path), made)
        return made


def find_held(path: Path | str) -> HeldDirectory | None:
    """Returns the held directory of this name, if there is one."""
    return _held.get(_normalise_path(path))


def check_held(paths: Iterable[Path | str]) -> None:
    """Raises `ToolError` where one of these paths, or a directory above it, is held and was replaced."""
    for path in paths:
        name = _normalise_path(path)
        while True:
            if (held := _held.get(name)) is not None:
                held.check()
            above = os.path.dirname(name)
            if above == name:
                break
            name = above


def _normalise_path(path: Path | str) -> str:
    """Makes a path absolute, in one spelling. Every call needs this: most paths are normal already."""
    name = str(path)
    plain = isinstance(path, Path) and name.startswith("/") and "/.." not in name and not name.startswith("//")
    return name if plain else os.path.abspath(name)


def _make_error(name: str, words: str) -> ToolError:
    return ToolError(
        f'the directory "{name}" {words}',
        ErrorKind.SECURITY,
        "Nothing is read, written or started there. The person can put it back, or start Forge again.",
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
    (b"\xff\xf3", "MP3 audio", "audio/mpeg"),
    (b"\xff\xf2", "MP3 audio", "audio/mpeg"),
    (b"\xff\xf1", "AAC audio", "audio/aac"),
    (b"\xff\xf9", "AAC audio", "audio/aac"),
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
