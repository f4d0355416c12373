"""Checks that a directory is exactly what a build wrote. Every file is read once, and its content is used."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.project.build.record import FORMAT, MANIFEST, OutputFile, digest

LARGEST = 16 * 1024 * 1024  # bytes of a manifest
LARGEST_FILE = 256 * 1024 * 1024  # bytes; a build copies only smaller files
MOST_SHOWN = 5  # differences that are listed

_REBUILD = "Build again with forge build, or get a complete copy of the build."


class ManifestFile(NamedTuple):
    """A file in the manifest."""

    sha256: str
    bytes: int
    executable: bool = False


class Manifest(NamedTuple):
    """The files of a manifest; `said` is the whole document."""

    files: Mapping[str, ManifestFile]
    said: Mapping[str, Any]


def read_build(directory: Path, expect: str | None = None) -> tuple[str, Manifest, dict[str, OutputFile]]:
    """Returns the manifest's hash, the manifest, and every file. Raises `ToolError` for any difference.

    `expect` is the SHA-256 that the manifest itself must have.
    """
    content, manifest = read_manifest(directory)
    sha256 = digest(content)
    if expect is not None and sha256 != _parse_hash(expect):
        raise _build_error(
            f"{directory / MANIFEST} has the SHA-256 {sha256}, which is not the expected one",
            "Do not run this build unless you know why its hash differs; in that case pass the new hash with --expect.",
        )
    try:
        there = sorted(set(files_below(directory)) - {MANIFEST})
    except OSError as error:
        raise _build_error(f"{directory} cannot be read: {error.strerror}", "Make it readable.") from None
    problems = [f"{path} was added" for path in there if path not in manifest.files]
    files = {MANIFEST: OutputFile(content)}
    for path, listed in manifest.files.items():
        found = _read_file(directory / path, listed) if path in there else "is missing"
        if isinstance(found, OutputFile):
            files[path] = found
        else:
            problems.append(f"{path} {found}")
    if problems:
        more = f" and {len(problems) - MOST_SHOWN} more" if len(problems) > MOST_SHOWN else ""
        raise _build_error(
            f"{directory} differs from what was built: {', '.join(problems[:MOST_SHOWN])}{more}", _REBUILD
        )
    return sha256, manifest, files


def read_manifest(directory: Path) -> tuple[bytes, Manifest]:
    """Returns the bytes of the manifest and its content. Raises `ToolError`."""
    path = directory / MANIFEST
    try:
        content = _read_content(path, LARGEST)
    except FileNotFoundError:
        raise _build_error(
            f"{directory} is not a build: there is no {MANIFEST}", "Make one with forge build."
        ) from None
    except OSError as error:
        raise _build_error(f"{path} cannot be read: {error.strerror or error}", _REBUILD) from None
    try:
        said = json.loads(content)
        if not isinstance(said, dict) or isinstance(said["manifest_version"], bool):
            raise ValueError("it is not a manifest")
        if said["manifest_version"] != FORMAT:
            raise ValueError(f"it has version {said['manifest_version']!r:.20}, but this Forge reads version {FORMAT}")
        return content, Manifest({path: _parse_file(path, one) for path, one in said["files"].items()}, said)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _build_error(f"{path} is damaged: {str(error)[:200]}", _REBUILD) from None


def files_below(directory: Path) -> Iterator[str]:
    """Yields the paths of all files below a directory; no link is followed."""
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


def _parse_file(path: str, entry: Any) -> ManifestFile:
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
        raise ValueError(f"the entry of {path[:100]!r} is invalid")
    return ManifestFile(sha256, size, executable)


def _read_file(path: Path, listed: ManifestFile) -> OutputFile | str:
    """Returns the file, or how it differs."""
    try:
        content = _read_content(path, listed.bytes)
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return OutputFile(content, listed.executable) if digest(content) == listed.sha256 else "was changed"


def _read_content(path: Path, most: int) -> bytes:
    """Reads one byte more than `most`, to notice a larger file. Follows no link and waits for no FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is not a regular file")
        return stream.read(most + 1)


def _parse_hash(given: str) -> str:
    """Reads a hash, written with or without `sha256:`."""
    said = given.strip().lower().removeprefix("sha256:")
    if len(said) != 64 or not set(said) <= set("0123456789abcdef"):
        raise _build_error(
            f"--expect {given[:80]!r} is not a SHA-256", "Use the 64 hexadecimal digits that forge build printed."
        )
    return said


def _build_error(problem: str, advice: str) -> ToolError:
    return ToolError(problem, ErrorKind.CONFIG, advice)
