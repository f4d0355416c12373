"""Recognises images and common binary files by their first bytes."""

from __future__ import annotations

from typing import NamedTuple

HEAD = 512  # bytes that are enough to tell


class Kind(NamedTuple):
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
    b"WEBP": Kind("WebP image", "image/webp"),
    b"WAVE": Kind("WAV audio", "audio/wav"),
    b"AVI ": Kind("AVI video", "video/x-msvideo"),
}
_BRANDS = {  # of the ISO container
    b"avif": Kind("AVIF image", "image/avif"),
    b"avis": Kind("AVIF image", "image/avif"),
    b"heic": Kind("HEIC image", "image/heic"),
    b"heix": Kind("HEIC image", "image/heic"),
    b"mif1": Kind("HEIF image", "image/heif"),
    b"qt  ": Kind("QuickTime video", "video/quicktime"),
    b"M4A ": Kind("MPEG-4 audio", "audio/mp4"),
}


def kind_of(head: bytes) -> Kind | None:
    """Returns the kind of a file that begins like this; None if it is unknown.

    Some signatures are plain letters: use it only for files that are not text.
    """
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], Kind("MPEG-4 video", "video/mp4"))
    if head.startswith(b"RIFF") and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        return Kind("BMP image", "image/bmp")
    if head[257:262] == b"ustar":
        return Kind("tar archive", "application/x-tar")
    return next((Kind(name, media) for start, name, media in _STARTS if head.startswith(start)), None)
