"""Starts Python programs of ours. In `make test` they are forks of a process that has imported Forge already, which is
five times as fast. In `make test-all`, and where that would not be the same, they are started in the usual way."""

from __future__ import annotations

import array
import atexit
import inspect
import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import quick

SERVER = Path(__file__).with_name("warm_server.py")
READ_AT_START = ("LANG", "LC_ALL", "LC_CTYPE", "PYTHON")
"""Beginnings of the names of variables that Python reads when it starts."""


PARAMETERS = [*inspect.signature(subprocess.Popen._execute_child).parameters][2:]  # type: ignore[attr-defined]
UNUSUAL = ("preexec_fn", "pass_fds", "shell", "gid", "gids", "uid", "process_group")


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` for `[sys.executable, …]`."""

    # private, in all versions of Python that Forge runs on: how a process is started and waited for

    _status: socket.socket | None = None
    _heard = b""

    def _execute_child(self, words: Any, *rest: Any) -> None:
        given = dict(zip(PARAMETERS, rest, strict=True))
        if not is_warm() or not _can_be_warm(words, given):
            super()._execute_child(words, *rest)  # type: ignore[misc]
            return
        request = {
            "words": [os.fsdecode(word) for word in words[1:]],
            "directory": os.path.abspath(os.fsdecode(given["cwd"] or ".")),
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "session": given["start_new_session"],
            "umask": _current_umask(),
        }
        streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        self._status, theirs = socket.socketpair()
        with theirs:
            inherited = [one if one >= 0 else number for number, one in enumerate(streams)]
            start_server().start(request, [theirs.fileno(), *inherited])
        self.pid = int(self._line())
        self._child_created = True
        self._close_pipe_fds(*(given[name] for name in PARAMETERS if name.endswith(("read", "write"))))  # type: ignore[attr-defined]

    def _line(self) -> bytes:
        assert self._status is not None
        while b"\n" not in self._heard:
            said = self._status.recv(100)
            if not said:
                raise RuntimeError("the process that starts programs is gone")
            self._heard += said
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _internal_poll(self, *rest: Any, **named: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*rest, **named)  # type: ignore[misc]
        return self.returncode if self._has_ended(0) else None

    def _wait(self, timeout: float | None) -> int:
        if self._status is None:
            return super()._wait(timeout)  # type: ignore[misc]
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        assert self._status is not None
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self.returncode is None:
                if not self._heard and not select.select([self._status], [], [], timeout)[0]:
                    return False
                self.returncode = os.waitstatus_to_exitcode(int(self._line()))
                self._status.close()
        return True


def is_warm() -> bool:
    """Elsewhere a fork of a large program is not safe."""
    return quick.is_quick and sys.platform == "linux"


def run(command: Any, *, input: Any = None, timeout: float | None = None, check: bool = False, **settings: Any) -> Any:
    """`subprocess.run` for `[sys.executable, …]`."""
    if settings.pop("capture_output", False):
        settings |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        settings["stdin"] = subprocess.PIPE
    with Popen(command, **settings) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _can_be_warm(words: Any, given: dict[str, Any]) -> bool:
    """Not with an option of Python, in a directory that is gone, or with other values of what Python reads at start."""
    wanted = os.environ if given["env"] is None else given["env"]
    names = {name for name in {*wanted, *os.environ} if name.startswith(READ_AT_START)} - {"PYTHONPATH"}
    return (
        words[0] == sys.executable
        and (words[1] in ("-m", "-c") or not os.fsdecode(words[1]).startswith("-"))
        and all(given[name] in (None, (), False, -1) for name in UNUSUAL)
        and given["umask"] < 0
        and wanted.get("PYTHONPATH", "") in ("", str(SERVER.parents[1] / "src"))
        and all(wanted.get(name) == os.environ.get(name) for name in names)
    )


def _current_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


class _Server:
    def __init__(self) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())], pass_fds=[theirs.fileno()], start_new_session=True
            )
        assert self.requests.recv(100) == b"ready"
        atexit.register(self.close)

    def start(self, request: dict[str, Any], streams: list[int]) -> None:
        said = json.dumps(request).encode()
        self.requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(said))
        given = array.array("i", streams)
        self.requests.sendmsg([said], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)])

    def close(self) -> None:
        self.requests.close()
        self.process.wait()


_started: list[_Server] = []


def start_server() -> _Server:
    if not _started:
        _started.append(_Server())
    return _started[0]
