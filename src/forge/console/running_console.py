"""Where a running console is found again: its address and key, in a file that only its owner can read.

It lies with the user's own data and not in the workspace, because an agent's tools can read that: whoever has the key
can say yes to what the agent asks.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from forge.console.entrance import Entrance, new_key
from forge.project.layers import data_file
from forge.workspace.state.replace_file import replace_file

FOLDER = "console"
LARGEST = 20_000  # bytes
MOST = 20  # consoles of one workspace
SHORTEST_KEY = 64  # characters
_KEPT = ("born", "workspace", "port", "pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A console that runs."""

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


def register_console(workspace: Path, port: int) -> Running:
    """Write down that a console of this workspace runs here. The key stays, so that open pages go on."""
    path = _file(workspace)
    key, others = _read(path)
    running = Running(
        key=key or new_key(), born=secrets.token_hex(8), workspace=str(workspace), port=port, pid=os.getpid()
    )
    _write(path, running.key, [*others, running])
    return running


def find_console(workspace: Path) -> Running | None:
    """The console of this workspace that was begun last, of those that run."""
    _, running = _read(_file(workspace))
    return running[-1] if running else None


def unregister_console(running: Running) -> None:
    """Its address goes; the key stays, and so do other consoles of the same workspace."""
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


def _read(path: Path | None) -> tuple[str, list[Running]]:
    """The key, and the consoles that are alive; "" and none where there is no file that can be believed."""
    try:
        if path is None:
            return "", []
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if status.st_mode & 0o077 or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
                return "", []  # somebody else may know the key
            told = json.loads(stream.read(LARGEST))
        key = str(told["key"])
        running = [Running(key=key, **one) for one in told["running"]]
    except (OSError, ValueError, TypeError, KeyError):
        return "", []
    return (key, [one for one in running if _is_alive(one.pid)]) if len(key) >= SHORTEST_KEY else ("", [])


def _write(path: Path | None, key: str, running: list[Running]) -> None:
    if path is None:
        return
    told = {"key": key, "running": [{name: getattr(one, name) for name in _KEPT} for one in running[-MOST:]]}
    with contextlib.suppress(OSError):  # then only --url does not work, and open pages do not outlive this console
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, json.dumps(told))


def _is_alive(pid: int) -> bool:
    """Of our own: whom we may not signal is somebody else's by now."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError, TypeError):
        return False
    return pid > 0
