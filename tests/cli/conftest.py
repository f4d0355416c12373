"""The command in a workspace of its own: in this process where that is enough, in another where it matters."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import forge
from forge.cli import perform as run
from tests import programs

SOURCES = str(Path(forge.__file__).parents[1])


LAUNCH = """
import fcntl, os, runpy, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if "forge.cli" not in sys.modules:
    os.execv(sys.executable, [sys.executable, "-m", "forge", *sys.argv[1:]])
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("forge", run_name="__main__", alter_sys=True)
"""
"""Starts the command so that Ctrl-C reaches it, whoever started the tests. To fork here would be unsafe: threads."""


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


TERMINAL = {"COLUMNS": "80", "TERM": "xterm-256color", "NO_COLOR": None, "VISUAL": None, "EDITOR": None}


def start(
    workspace: Path, *arguments: str, stream: int = subprocess.PIPE, **changes: str | None
) -> subprocess.Popen[bytes]:
    """The command while it runs, in a session of its own, connected to pipes or to a terminal."""
    return programs.Popen(
        [sys.executable, "-c", LAUNCH, *arguments],
        cwd=workspace,
        env=environment(**{**TERMINAL, **changes}),
        stdin=stream,
        stdout=stream,
        stderr=stream,
        start_new_session=True,
    )


def environment(**changes: str | None) -> dict[str, str]:
    given = {**os.environ, "PYTHONPATH": SOURCES, **changes}
    return {key: value for key, value in given.items() if value is not None}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, which is also the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENT_WORKSPACE_ROOT", raising=False)
    return tmp_path


@pytest.fixture
def here(workspace: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """`here("tool", "list")`: the command in this process."""
    log = logging.getLogger("forge")
    before = log.handlers, log.propagate, log.level

    def command(*arguments: str) -> Ended:
        capfd.readouterr()
        code = run(arguments)
        return Ended(code, *capfd.readouterr())

    yield command
    log.handlers, log.propagate = before[:2]
    log.setLevel(before[2])


@pytest.fixture
def there(workspace: Path) -> Any:
    """`there("tool", "call", "-", given=b"…")`: the command in a process of its own, without a terminal."""

    def command(*arguments: str, given: bytes = b"", **changes: str | None) -> Ended:
        done = programs.run(
            [sys.executable, "-m", "forge", *arguments],
            input=given,
            capture_output=True,
            cwd=workspace,
            env=environment(**changes),
            timeout=150,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    return command
