"""Makes folders for one run of a program: files that a sandbox needs, and an empty home directory."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import shutil
import tempfile
import threading

_NAME = re.compile(r"forge-run-(\d+)-(\d+)-[0-9a-f]{16}")
_lock = threading.Lock()
_made: set[str] = set()
_tidied: set[str] = set()  # directories in which folders of dead processes were removed


def make_private_folder() -> str:
    """Makes an empty folder that only this user can use. `remove_folder` or the end of this process removes it."""
    directory = tempfile.gettempdir()
    with _lock:
        if directory not in _tidied:
            _tidied.add(directory)
            _tidy(directory)
        folder = os.path.join(directory, f"forge-run-{os.geteuid()}-{os.getpid()}-{secrets.token_hex(8)}")
        os.mkdir(folder, 0o700)
        _made.add(folder)
    return folder


def remove_folder(folder: str) -> None:
    with _lock:
        _made.discard(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _tidy(directory: str) -> None:
    """Removes folders that killed processes of this user left behind."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            found = _NAME.fullmatch(name)
            if found and int(found[1]) == os.geteuid() and not _runs(int(found[2])):
                shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove_all() -> None:
    for folder in tuple(_made):
        remove_folder(folder)


def _reset_after_fork() -> None:
    """Forgets the folders, which belong to the parent process."""
    global _lock
    _lock = threading.Lock()
    _made.clear()


atexit.register(_remove_all)
os.register_at_fork(after_in_child=_reset_after_fork)
