"""Folders for one run of a program alone: what a sandbox needs as files, and a home directory that is empty."""

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
_tidied: set[str] = set()  # places in which those of processes that are gone were removed


def private_folder() -> str:
    """Make one that is empty and only this user's. It goes with `remove_folder`, at the latest with this process."""
    place = tempfile.gettempdir()
    with _lock:
        if place not in _tidied:
            _tidied.add(place)
            _tidy(place)
        folder = os.path.join(place, f"forge-run-{os.geteuid()}-{os.getpid()}-{secrets.token_hex(8)}")
        os.mkdir(folder, 0o700)
        _made.add(folder)
    return folder


def remove_folder(folder: str) -> None:
    with _lock:
        _made.discard(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _tidy(place: str) -> None:
    """Remove what processes of this user left behind that were killed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(place):
            found = _NAME.fullmatch(name)
            if found and int(found[1]) == os.geteuid() and not _runs(int(found[2])):
                shutil.rmtree(os.path.join(place, name), ignore_errors=True)


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


def _forked() -> None:
    """The folders belong to the process this one was forked from."""
    global _lock
    _lock = threading.Lock()
    _made.clear()


atexit.register(_remove_all)
os.register_at_fork(after_in_child=_forked)
