"""A process that has imported Forge already. Every program asked for is a fork of it, so that it starts at once.

pytest-xdist has nothing like it. The 1,135 quick tests of `tests/cli` took 114 s of CPU and 9 minutes with it, 220 s
and 24 minutes without it, one after the other on two busy cores.

Run as a program: `warm_server.py SOCKET`, the number of a descriptor. `tests/programs.py` writes to the other end.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
import time
import types
from typing import Any, NoReturn

PACKAGES = ("agent", "cli", "durable", "models", "permissions", "pipeline", "process", "project", "schedules", "tools")
OTHERS = (
    "dbos", "html_to_markdown", "httpx2", "importlib.metadata", "jsonschema_rs", "mcp", "pydantic", "selectolax.lexbor",
    "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "starlette.applications", "uvicorn",
)  # fmt: skip
MOST = 1 << 22
"""The bytes of a request, at most: a program and its environment."""


def import_everything() -> None:
    for name in (f"forge.{package}" for package in PACKAGES):
        for found in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if not found.name.endswith(("__main__", "_program")):  # programs: they run when they are imported
                _try_to_import(found.name)
    for name in OTHERS:
        _try_to_import(name)


def _try_to_import(name: str) -> None:
    with contextlib.suppress(Exception):  # an extra that is not installed
        importlib.import_module(name)


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks for each request. Returns the request in the program's own process, and None at the end."""
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        said, ancillary, _, _ = requests.recvmsg(MOST, socket.CMSG_SPACE(4 * 8))
        if not said:
            return None
        given = array.array("i")
        for _, _, data in ancillary:
            given.frombytes(data)
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _wait_for_the_program(json.loads(said), *given)
        for one in given:
            os.close(one)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _wait_for_the_program(request: dict[str, Any], status: int, *streams: int) -> dict[str, Any]:
    """Tells the program's number and, later, how it ended. Returns only in the program itself."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _take_over(request, streams)
        return request
    for one in streams:
        os.close(one)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, f"{pid}\n".encode())
        os.write(status, f"{os.waitpid(pid, 0)[1]}\n".encode())
    os._exit(0)


def _take_over(request: dict[str, Any], streams: tuple[int, ...]) -> None:
    """Becomes the program: its streams, session, directory, environment and signals."""
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 4096)
    os.chdir(request["directory"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _open(number, "w" if number else "r")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _open(number: int, mode: str) -> Any:
    errors = "backslashreplace" if number == 2 else "strict"
    opened: Any = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
    opened.reconfigure(line_buffering=number == 2 or opened.isatty())
    return opened


def end(words: list[str]) -> NoReturn:
    """Runs a program and ends as Python does, but leaves it to the system to take the memory back."""
    try:
        code = run(words)
    except SystemExit as stop:
        code = stop.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1 if not isinstance(error, KeyboardInterrupt) else -signal.SIGINT
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # private: waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            os.write(2, f"Exception ignored in: {stream!r}\nOSError: {error}\n".encode())
            code = 120
    if code is not None and code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit((code or 0) & 0xFF)


def run(words: list[str]) -> Any:
    """As `python WORDS` does: `-m MODULE`, `-c CODE` or the path of a program, and arguments."""
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    del sys.path[0]  # this directory
    requests = socket.socket(fileno=int(sys.argv[1]))
    import_everything()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in every fork"
    gc.collect()
    gc.freeze()
    requests.send(b"ready")
    if asked := serve(requests):
        end(asked["words"])
