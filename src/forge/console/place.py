"""Where a running console is found again: its address and key, in a file that only its owner can read.

It lies with the user's own data and not in the workspace, because an agent's tools can read that: whoever has the key
can say yes to what the agent asks.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from forge.app.layers import data_file
from forge.console.entrance import Entrance, new_key

FOLDER = "console"
LARGEST = 10_000  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A console that runs, or ran."""

    key: str
    born: str
    workspace: str = ""
    port: int = 0
    pid: int = 0

    @property
    def entrance(self) -> Entrance:
        return Entrance(self.key, self.born)

    @property
    def url(self) -> str:
        """A link that works once."""
        return link(self.port, self.entrance)


def link(port: int, entrance: Entrance) -> str:
    return f"http://127.0.0.1:{port}/enter?token={entrance.new_link()}"


def begun(workspace: Path, port: int) -> Running:
    """Write down that a console of this workspace runs here. The key stays, so that open pages go on."""
    path = _file(workspace)
    before = _read(path) if path is not None else None
    key = before.key if before is not None else new_key()
    running = Running(key=key, born=secrets.token_hex(8), workspace=str(workspace), port=port, pid=os.getpid())
    if path is not None:
        with contextlib.suppress(OSError):  # then only --url does not work
            _write(path, running)
    return running


def found(workspace: Path) -> Running | None:
    """The console of this workspace, if one runs."""
    path = _file(workspace)
    running = _read(path) if path is not None else None
    return running if running is not None and running.port and _is_alive(running.pid) else None


def ended(running: Running) -> None:
    """The key stays, the address goes; unless another console of the same workspace was begun meanwhile."""
    path = _file(Path(running.workspace))
    now = _read(path) if path is not None else None
    if path is not None and now is not None and now.born == running.born:
        with contextlib.suppress(OSError):
            _write(path, Running(key=now.key, born="", workspace=now.workspace))


def _file(workspace: Path) -> Path | None:
    name = sha256(os.fsencode(workspace.resolve())).hexdigest()[:16]
    path = data_file(f"{FOLDER}/{name}.json")
    if path is None or path.resolve().is_relative_to(workspace.resolve()):
        return None  # tools could read it
    return path


def _read(path: Path) -> Running | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if status.st_mode & 0o077 or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
                return None  # somebody else may know the key
            running = Running(**json.loads(stream.read(LARGEST)))
    except (OSError, ValueError, TypeError):
        return None
    return running if isinstance(running.key, str) and len(running.key) >= 64 else None


def _write(path: Path, running: Running) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file, beside = tempfile.mkstemp(prefix=".forge-tmp-", dir=path.parent)  # 0600 whatever the umask
    try:
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            json.dump(asdict(running), stream)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return False
    return pid > 0
