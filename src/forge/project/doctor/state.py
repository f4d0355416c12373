"""Examines the state of a workspace: whether it can be written, who can read it, and whether its stores are intact."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from forge.project.config_layers import user_file
from forge.project.doctor.finding import Finding
from forge.workspace.state import NAME, data_file, is_foreign
from forge.workspace.state.store import check_log_files

STORES = ("state.db", "memory.db")
MOST_FILES = 5_000  # files whose modes are checked
LARGEST_LOG = 256 * 1024 * 1024  # bytes; a larger log is reported
LEAST_SPACE = 100 * 1024 * 1024  # bytes
PATIENCE = 2.0  # seconds to check one store
_OPCODES = 100_000  # of SQLite between two checks of the time


def examine_state(root: Path) -> Iterator[Finding]:
    yield from _check_world_writable(root)
    folder = root / NAME
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        yield Finding(
            "state", "broken", f"{folder} is a link, or no directory", f"Remove it: rm {shlex.quote(str(folder))}"
        )
        return
    if is_foreign(folder):
        yield Finding(
            "state",
            "warning",
            f"{folder} was not made by Forge on this machine, and is not used: no session, no schedule, no audit log",
            "Run `forge trust` to review and trust it, or move it away.",
        )
        return
    if not os.access(folder if folder.exists() else root, os.W_OK | os.X_OK):
        yield Finding(
            "state",
            "warning",
            f"{folder} cannot be written: no session, no audit log; long results go to a temporary file",
            f"Make it yours: chown -R $USER {shlex.quote(str(folder if folder.exists() else root))}",
        )
    else:
        yield Finding("state", "ok", f"{folder}{'' if folder.exists() else ', made when it is needed'}")
    yield from _check_space(root)
    if folder.is_dir():
        yield from _check_modes(folder)
        yield from _check_files(folder)
    yield from _check_user_files()


def _check_world_writable(root: Path) -> Iterator[Finding]:
    if _mode(root) & 0o002:
        yield Finding(
            "workspace for others",
            "warning",
            "everybody on this machine may put tools and configuration here",
            f"chmod o-w {shlex.quote(str(root))}",
        )


def _check_space(root: Path) -> Iterator[Finding]:
    try:
        free = shutil.disk_usage(root).free
    except OSError:
        return
    if free < LEAST_SPACE:
        yield Finding("disk", "warning", f"{free // 1024 // 1024} MiB are free", "Free some space: stores need it.")


def _check_modes(folder: Path) -> Iterator[Finding]:
    quoted = shlex.quote(str(folder))
    check = "state for others"
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        yield Finding(check, "warning", f"{folder} belongs to somebody else", f"chown -R $USER {quoted}")
    elif (mode := _mode(folder)) & 0o077:
        how = "change" if mode & 0o022 else "read"
        detail = f"others may {how} {folder} (mode {mode & 0o777:o})"
        yield Finding(check, "warning", detail, f"chmod 700 {quoted}")
    elif writable := [path for path in _files(folder) if _mode(path) & 0o022]:
        some = ", ".join(str(path.relative_to(folder)) for path in writable[:3])
        more = f" and {len(writable) - 3:,} more" if len(writable) > 3 else ""
        yield Finding(check, "warning", f"not only you may write {some}{more}", f"chmod -R go-w {quoted}")
    else:
        yield Finding(check, "ok", "only you can read it")


def _files(folder: Path) -> Iterator[Path]:
    seen = 0
    for directory, _, names in os.walk(folder):
        for name in sorted(names):
            seen += 1
            if seen > MOST_FILES:
                return
            yield Path(directory, name)


def _check_files(folder: Path) -> Iterator[Finding]:
    for name in STORES:
        if (folder / name).is_file():
            yield check_store(folder / name)
    odd = [path.name for path in sorted(folder.iterdir()) if not (path.is_file() or path.is_dir() or path.is_symlink())]
    if odd:
        detail = f"not regular files, so they are not used: {', '.join(odd[:5])}"
        yield Finding("state files", "warning", detail, f"Delete them from {shlex.quote(str(folder))}.")
    aside = sorted(path.name for path in folder.iterdir() if ".corrupt-" in path.name or ".broken-" in path.name)
    if aside:
        yield Finding(
            "set aside",
            "note",
            f"damaged files were set aside: {', '.join(aside[:3])}",
            f"sqlite3 FILE .recover gets back what is readable; then delete them from {shlex.quote(str(folder))}.",
        )
    log = folder / "audit.ndjson"
    if log.is_file() and (size := log.stat().st_size) > LARGEST_LOG:
        fix = f"Move it to audit.ndjson.1: `forge audit` reads that, too; in {shlex.quote(str(folder))}."
        yield Finding("audit log", "note", f"it has {size // 1024 // 1024:,} MiB", fix)


def check_store(path: Path) -> Finding:
    """Checks a store without changing it, within the time that a person waits."""

    until = time.monotonic() + PATIENCE
    size = f"{path.stat().st_size / 1024 / 1024:,.1f} MiB"
    try:
        with closing(sqlite3.connect(read_only(path), uri=True, timeout=1.0)) as connection:
            connection.set_progress_handler(lambda: int(time.monotonic() > until), _OPCODES)
            said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            return Finding(path.name, "ok", f"{size}; looked through in part, {PATIENCE:g} seconds of it")
        if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return Finding(path.name, "warning", f"it cannot be looked at: {error}", "Try again when nothing uses it.")
        said = str(error)
    if said == "ok":
        return Finding(path.name, "ok", f"{size}, whole")
    return Finding(
        path.name,
        "broken",
        f"it is damaged: {' '.join(str(said).split())[:200]}",
        f"Copy it away and get back what is readable: sqlite3 {shlex.quote(str(path))} .recover. The next command that"
        " needs it sets it aside and begins a new one.",
    )


def read_only(path: Path) -> str:
    """Returns the URI with which SQLite opens a file read-only. Raises `sqlite3.Error` if it is no regular file."""

    try:
        check_log_files(path)
    except OSError as error:
        raise sqlite3.OperationalError(error.strerror or str(error)) from None
    return f"file:{quote(str(path))}?mode=ro"


def _check_user_files() -> Iterator[Finding]:
    """Checks the files that decide about every project: no one else may change them."""
    for path in filter(None, (user_file(), data_file("trust.json"))):
        for one in (path, path.parent):
            if _mode(one) & 0o022:
                yield Finding(
                    "user files", "warning", f"others may change {one}", f"chmod go-w {shlex.quote(str(one))}"
                )


def _mode(path: Path) -> int:
    """Returns the mode; 0 for a missing file or a link."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    return 0 if stat.S_ISLNK(status.st_mode) else status.st_mode
