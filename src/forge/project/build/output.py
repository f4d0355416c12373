"""Writes a build beside its target and moves it there in one step; checks that a directory is what a build wrote."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.project.build.record import FORMAT, MANIFEST, OutputFile, digest

_PREFIX = ".forge-tmp-build-"
_STRAY = 3_600.0  # seconds after which the files of a killed build are removed
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE


@contextmanager
def staging_directory(output: Path) -> Iterator[Path]:
    """Yields a temporary directory beside the output, removed at the end. Raises `ToolError` if it cannot be made."""
    try:
        for above in reversed(output.parents):
            above.mkdir(mode=0o755, exist_ok=True)
        _remove_stray(output.parent)
        directory = Path(mkdtemp(prefix=_PREFIX, dir=output.parent))
    except OSError as error:
        raise unusable_output(output, error.strerror or str(error)) from None
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_files(directory: Path, files: Mapping[str, OutputFile]) -> None:
    """Writes files that everyone can read, since an image has another user, and only the owner can write."""
    for path, file in files.items():
        target = directory / path
        for above in reversed(target.relative_to(directory).parents[:-1]):
            if not (directory / above).is_dir():
                (directory / above).mkdir()
                (directory / above).chmod(0o755)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
            os.fchmod(descriptor, 0o755 if file.executable else 0o644)


def check_output(output: Path) -> None:
    """Raises `ToolError` unless the path is free, an empty directory, or an unmodified build."""
    try:
        kind = output.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable_output(output, error.strerror or str(error)) from None
    if not stat.S_ISDIR(kind):
        raise unusable_output(output, "it is a symbolic link" if stat.S_ISLNK(kind) else "it is not a directory")
    known = _read_listed_files(output)
    ours = {MANIFEST, *known} if known is not None else set()
    try:  # one is enough: it may be a whole home directory
        other = next((one for one in files_below(output) if one not in ours), None)
    except OSError as error:
        raise unusable_output(output, error.strerror or str(error)) from None
    if other is not None and known is None:
        raise unusable_output(output, f"it is not empty and not a build: it contains {other}")
    if other is not None:
        raise unusable_output(output, f"it contains {other}, which is not part of a build")


def replace_output(staged: Path, output: Path) -> None:
    """Moves the new build to its place. The old build stays until then; the staging directory removes it."""
    try:
        if not output.exists():
            staged.rename(output)
        elif not _exchange(staged, output):
            aside = staged.with_name(f"{staged.name}-old")
            output.rename(aside)
            try:
                staged.rename(output)
            except BaseException:
                aside.rename(output)
                raise
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise unusable_output(output, error.strerror or str(error)) from None


def unusable_output(output: Path, problem: str) -> ToolError:
    return ToolError(
        f"{output} cannot be the output: {problem}",
        ErrorKind.CONFIG,
        "Choose another directory with --output, or move the existing one away.",
    )


def _read_listed_files(output: Path) -> set[str] | None:
    """Returns the files that the manifest there lists; None if no build wrote one."""
    try:
        return set(read_manifest(output)[1].files)
    except ToolError:
        return None


def _exchange(staged: Path, output: Path) -> bool:
    """Exchanges both directories at once if the system can, so that an output always exists."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    return bool(libc.renameat2(_HERE, os.fsencode(staged), _HERE, os.fsencode(output), _EXCHANGE) == 0)


def _remove_stray(parent: Path) -> None:
    for stray in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - stray.lstat().st_mtime > _STRAY:
                shutil.rmtree(stray, ignore_errors=True)


# Checks that a directory is exactly what a build wrote. Every file is read once, and its content is used.


LARGEST_MANIFEST = 16 * 1024 * 1024  # bytes of a manifest
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
        content = _read_content(path, LARGEST_MANIFEST)
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
