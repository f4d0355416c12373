"""Writes a build beside its target and moves it there in one step, so that the target is always complete."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from forge.core.errors import ErrorKind, ToolError
from forge.project.build.record import MANIFEST, OutputFile
from forge.project.build.verify import files_below, read_manifest

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
