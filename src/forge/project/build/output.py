"""Where a build ends up: written beside its place, and put there in one step, so that there is always a whole one."""

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

from forge.project.build.checked import files_below, read_manifest
from forge.project.build.record import MANIFEST, File
from forge.core.errors import ErrorKind, ToolError

_PREFIX = ".forge-tmp-build-"
_STRAY = 3_600.0  # seconds after which what a killed build left is taken away
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE


@contextmanager
def staging(output: Path) -> Iterator[Path]:
    """A directory beside the output, gone afterwards whatever happens. Raises `ToolError` where none can be made."""
    try:
        for above in reversed(output.parents):
            above.mkdir(mode=0o755, exist_ok=True)
        _sweep(output.parent)
        made = Path(mkdtemp(prefix=_PREFIX, dir=output.parent))
    except OSError as error:
        raise unusable(output, error.strerror or str(error)) from None
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def write_files(directory: Path, files: Mapping[str, File]) -> None:
    """Readable for everyone, since the user of an image is another; writable for the owner, whatever the umask says."""
    for path, file in files.items():
        place = directory / path
        for above in reversed(place.relative_to(directory).parents[:-1]):
            if not (directory / above).is_dir():
                (directory / above).mkdir()
                (directory / above).chmod(0o755)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
            os.fchmod(descriptor, 0o755 if file.executable else 0o644)


def check_output(output: Path) -> None:
    """Raises `ToolError` unless nothing is there, an empty directory, or what a build wrote and nobody added to."""
    try:
        kind = output.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(output, error.strerror or str(error)) from None
    if not stat.S_ISDIR(kind):
        raise unusable(output, "it is a link" if stat.S_ISLNK(kind) else "it is no directory")
    known = _listed(output)
    ours = {MANIFEST, *known} if known is not None else set()
    try:  # the first is enough: it may be a whole home
        other = next((one for one in files_below(output) if one not in ours), None)
    except OSError as error:
        raise unusable(output, error.strerror or str(error)) from None
    if other is not None and known is None:
        raise unusable(output, f"it is not empty, and no build wrote it: there is {other}")
    if other is not None:
        raise unusable(output, f"{other} is in it, which no build wrote")


def put_in_place(made: Path, output: Path) -> None:
    """The old one is there until the new one is; it goes with the staging directory."""
    try:
        if not output.exists():
            made.rename(output)
        elif not _exchanged(made, output):
            aside = made.with_name(f"{made.name}-old")
            output.rename(aside)
            try:
                made.rename(output)
            except BaseException:
                aside.rename(output)
                raise
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise unusable(output, error.strerror or str(error)) from None


def unusable(output: Path, problem: str) -> ToolError:
    return ToolError(
        f"{output} cannot be the output: {problem}",
        ErrorKind.CONFIG,
        "Name another directory with --output, or move away what is there.",
    )


def _listed(output: Path) -> set[str] | None:
    """What the manifest there lists; None where there is none that a build wrote."""
    try:
        return set(read_manifest(output)[1].files)
    except ToolError:
        return None


def _exchanged(made: Path, output: Path) -> bool:
    """Both at once, where the system can: no moment without an output."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    return bool(libc.renameat2(_HERE, os.fsencode(made), _HERE, os.fsencode(output), _EXCHANGE) == 0)


def _sweep(parent: Path) -> None:
    for stray in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - stray.lstat().st_mtime > _STRAY:
                shutil.rmtree(stray, ignore_errors=True)
