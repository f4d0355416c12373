"""Names and stores downloads that are not text."""

from __future__ import annotations

import re
from pathlib import Path

from forge.core.context import ToolContext

FOLDER = ".forge/files"

_EXTENSIONS = {
    "application/gzip": ".gz",
    "application/msword": ".doc",
    "application/pdf": ".pdf",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/x-tar": ".tar",
    "application/zip": ".zip",
    "audio/mpeg": ".mp3",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
    "video/mp4": ".mp4",
}
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,100}/[a-z0-9][a-z0-9.+-]{0,100}")
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_DISPOSITION = re.compile(r"""filename\*?\s*=\s*(?:UTF-8'[\w-]*')?"?([^";]{1,200})""", re.IGNORECASE)
_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}\Z")


def detect_media_type(body: bytes, declared: str) -> str:
    """Returns the media type, by the first bytes or else as declared."""
    for magic, kind in _MAGIC:
        if body.startswith(magic) and not (kind == "application/zip" and declared in _EXTENSIONS):
            return kind
    return declared if _TYPE.fullmatch(declared) else "application/octet-stream"


def file_name(url: str, media_type: str, disposition: str = "") -> str:
    """Returns a name that is safe in any folder, from the server's header or the URL."""
    from urllib.parse import unquote, urlsplit

    given = _DISPOSITION.search(disposition)
    name = unquote(given[1] if given else urlsplit(url).path.rpartition("/")[2])
    name = _PLAIN.sub("-", name.replace("\\", "/").rpartition("/")[2]).strip("-.")
    while ".." in name:
        name = name.replace("..", ".")
    stem, extension = (name[: found.start()], found[0]) if (found := _EXTENSION.search(name)) else (name, "")
    return (stem[:60] or "download") + (extension or _EXTENSIONS.get(media_type, ".bin"))


def save(ctx: ToolContext, name: str, content: bytes) -> Path:
    """Stores a download among the person's files. Never overwrites another: its name depends on its content."""
    from hashlib import blake2b

    from forge.workspace.changes.artefacts import write_artefact  # loads what only a change needs
    from forge.workspace.paths import PathValidator

    stem, dot, extension = name.rpartition(".")
    unique = f"{stem}-{blake2b(content, digest_size=4).hexdigest()}{dot}{extension}"
    PathValidator.of(ctx.scope).resolve_for_writing(f"{FOLDER}/{unique}", follow=False)  # are writes enabled at all?
    return write_artefact(ctx.scope.workspace, unique, content).path
