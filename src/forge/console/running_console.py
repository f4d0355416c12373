"""Registers running consoles: their address and key, in a file that only its owner can read.

The file is in the user's data directory, because an agent's tools can read the workspace: anyone with the key can
approve the agent's requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from forge.console.guard import Entrance, new_key
from forge.workspace.state import data_file, replace_file

FOLDER = "console"
LARGEST_FILE = 20_000  # bytes
MOST_CONSOLES = 20  # consoles of one workspace
SHORTEST_KEY = 64  # characters
_KEPT = ("born", "workspace", "port", "pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningConsole:
    """A running console."""

    key: str
    born: str
    workspace: str
    port: int
    pid: int

    @property
    def entrance(self) -> Entrance:
        return Entrance(self.key, self.born)

    @property
    def url(self) -> str:
        """A link that works once."""
        return link(self.port, self.entrance)


def link(port: int, entrance: Entrance) -> str:
    return f"http://127.0.0.1:{port}/enter?token={entrance.new_link()}"


def register_console(workspace: Path, port: int) -> RunningConsole:
    """Registers a console of this workspace. The key stays, so that open pages continue to work."""
    path = _file(workspace)
    key, others = _read(path)
    running = RunningConsole(
        key=key or new_key(), born=secrets.token_hex(8), workspace=str(workspace), port=port, pid=os.getpid()
    )
    _write(path, running.key, [*others, running])
    return running


def find_console(workspace: Path) -> RunningConsole | None:
    """Returns the running console of this workspace that was started last."""
    _, running = _read(_file(workspace))
    return running[-1] if running else None


def unregister_console(running: RunningConsole) -> None:
    """Removes the address; the key and other consoles of the workspace stay."""
    path = _file(Path(running.workspace))
    key, others = _read(path)
    if any(one.born == running.born for one in others):
        _write(path, key, [one for one in others if one.born != running.born])


def _file(workspace: Path) -> Path | None:
    name = sha256(os.fsencode(workspace.resolve())).hexdigest()[:16]
    path = data_file(f"{FOLDER}/{name}.json")
    if path is None or path.resolve().is_relative_to(workspace.resolve()):
        return None  # tools could read it
    return path


def _read(path: Path | None) -> tuple[str, list[RunningConsole]]:
    """Returns the key and the running consoles; empty if there is no trustworthy file."""
    try:
        if path is None:
            return "", []
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if status.st_mode & 0o077 or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
                return "", []  # somebody else may know the key
            told = json.loads(stream.read(LARGEST_FILE))
        key = str(told["key"])
        running = [RunningConsole(key=key, **one) for one in told["running"]]
    except (OSError, ValueError, TypeError, KeyError):
        return "", []
    return (key, [one for one in running if _is_alive(one.pid)]) if len(key) >= SHORTEST_KEY else ("", [])


def _write(path: Path | None, key: str, running: list[RunningConsole]) -> None:
    if path is None:
        return
    told = {"key": key, "running": [{name: getattr(one, name) for name in _KEPT} for one in running[-MOST_CONSOLES:]]}
    with contextlib.suppress(OSError):  # then only --url does not work, and open pages do not outlive this console
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, json.dumps(told))


def _is_alive(pid: int) -> bool:
    """Returns whether a process of this user runs; one that may not be signalled belongs to another user."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError, TypeError):
        return False
    return pid > 0
