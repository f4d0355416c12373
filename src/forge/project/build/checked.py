"""Is a directory exactly what a build wrote? Every file is read once, and what was read is what is used."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from forge.project.build.record import FORMAT, MANIFEST, File, digest
from forge.core.errors import ErrorKind, ToolError

LARGEST = 16 * 1024 * 1024  # bytes of a manifest
LARGEST_FILE = 256 * 1024 * 1024  # bytes; a build copies none as large as that
MOST_SHOWN = 5  # differences that are told

_AGAIN = "Build it again with forge build, or get the whole of what was built."


class Listed(NamedTuple):
    """A file as the manifest has it."""

    sha256: str
    bytes: int
    executable: bool = False


class Manifest(NamedTuple):
    """What a run needs of it; `said` is the whole."""

    files: Mapping[str, Listed]
    said: Mapping[str, Any]


def read_checked(directory: Path, expect: str | None = None) -> tuple[str, Manifest, dict[str, File]]:
    """The manifest's hash, the manifest, and every file. Raises `ToolError` for whatever differs.

    `expect` is the SHA-256 that the manifest itself must have.
    """
    content, manifest = read_manifest(directory)
    sha256 = digest(content)
    if expect is not None and sha256 != _expected(expect):
        raise _wrong(
            f"{directory / MANIFEST} has the SHA-256 {sha256}, and another is expected",
            "Do not run it, unless you know why it is another: then pass the new one with --expect.",
        )
    try:
        there = sorted(set(files_below(directory)) - {MANIFEST})
    except OSError as error:
        raise _wrong(f"{directory} cannot be read: {error.strerror}", "Make it readable.") from None
    problems = [f"{path} was added" for path in there if path not in manifest.files]
    files = {MANIFEST: File(content)}
    for path, listed in manifest.files.items():
        found = _read(directory / path, listed) if path in there else "is missing"
        if isinstance(found, File):
            files[path] = found
        else:
            problems.append(f"{path} {found}")
    if problems:
        more = f" and {len(problems) - MOST_SHOWN} more" if len(problems) > MOST_SHOWN else ""
        raise _wrong(f"{directory} is not what was built: {', '.join(problems[:MOST_SHOWN])}{more}", _AGAIN)
    return sha256, manifest, files


def read_manifest(directory: Path) -> tuple[bytes, Manifest]:
    """Its bytes, and what it says. Raises `ToolError`."""
    path = directory / MANIFEST
    try:
        content = _content(path, LARGEST)
    except FileNotFoundError:
        raise _wrong(f"{directory} is no build: there is no {MANIFEST}", "Make one with forge build.") from None
    except OSError as error:
        raise _wrong(f"{path} cannot be read: {error.strerror or error}", _AGAIN) from None
    try:
        said = json.loads(content)
        if not isinstance(said, dict) or isinstance(said["manifest_version"], bool):
            raise ValueError("it is no manifest")
        if said["manifest_version"] != FORMAT:
            raise ValueError(f"it is of version {said['manifest_version']!r:.20}, and this Forge reads {FORMAT}")
        return content, Manifest({path: _listed(path, one) for path, one in said["files"].items()}, said)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _wrong(f"{path} is damaged: {str(error)[:200]}", _AGAIN) from None


def files_below(directory: Path) -> Iterator[str]:
    """Everything but directories, by its path below; nothing is followed."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(directory / below) as entries:
            for entry in entries:
                path = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")
                else:
                    yield path


def _listed(path: str, entry: Any) -> Listed:
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or path == MANIFEST:
        raise ValueError(f"{path[:100]!r} cannot be a file of a build")
    sha256, size, executable = entry["sha256"], entry["bytes"], entry.get("executable", False)
    is_hash = isinstance(sha256, str) and len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")
    if (
        not is_hash
        or not isinstance(size, int)
        or isinstance(size, bool)
        or not 0 <= size <= LARGEST_FILE
        or executable not in (True, False)
    ):
        raise ValueError(f"what it says of {path[:100]!r} is not understood")
    return Listed(sha256, size, executable)


def _read(path: Path, listed: Listed) -> File | str:
    """The file, or how it differs."""
    try:
        content = _content(path, listed.bytes)
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return File(content, listed.executable) if digest(content) == listed.sha256 else "was changed"


def _content(path: Path, most: int) -> bytes:
    """One byte more than `most` is enough to know that it is another. No link is followed, no FIFO waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no file")
        return stream.read(most + 1)


def _expected(given: str) -> str:
    """Written with or without `sha256:`."""
    said = given.strip().lower().removeprefix("sha256:")
    if len(said) != 64 or not set(said) <= set("0123456789abcdef"):
        raise _wrong(f"--expect {given[:80]!r} is no SHA-256", "Give the 64 digits that forge build printed.")
    return said


def _wrong(problem: str, advice: str) -> ToolError:
    return ToolError(problem, ErrorKind.CONFIG, advice)
