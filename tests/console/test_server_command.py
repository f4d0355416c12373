"""`forge console` as a person starts it: a link, a page, another link, an end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

import forge
from tests import programs

START = """
import sys
from forge.cli.commands.console import command
sys.exit(command.main(sys.argv[1:], standalone_mode=False))
"""


@pytest.fixture
def environment(tmp_path_factory) -> dict[str, str]:
    sources = str(Path(forge.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": sources, "XDG_DATA_HOME": str(tmp_path_factory.mktemp("data"))}


def start(workspace: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", START, *arguments]
    return programs.Popen(command, cwd=workspace, env=environment, text=True, **streams)  # type: ignore[call-overload]


def test_a_console_is_started_entered_twice_and_ended(tmp_path, environment):
    (tmp_path / "script.json").write_text(json.dumps(["Hi."]))
    console = start(tmp_path, environment, "--port", "0", "--model", f"scripted:{tmp_path}/script.json")
    try:
        assert console.stdout is not None
        link = console.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter\?token=[\w.-]+", link)
        with httpx2.Client(verify=False) as browser:
            entered = browser.get(link)
            assert entered.status_code == 303
            assert browser.get(link).status_code == 401
            token = {"x-forge-token": entered.headers["location"].rpartition("/")[2]}
            me = browser.get(link.partition("/enter")[0] + "/api/me", headers=token).json()
            assert me["workspace"] == str(tmp_path)
        other = programs.run(
            [sys.executable, "-c", START, "--url"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        with httpx2.Client(verify=False) as browser:
            assert browser.get(other.stdout.strip()).status_code == 303
        console.send_signal(signal.SIGTERM)
        assert console.wait(60) == 0
    finally:
        console.kill()
        _, errors = console.communicate()
    assert "Traceback" not in errors
    gone = start(tmp_path, environment, "--url")
    _, errors = gone.communicate(timeout=150)
    assert gone.returncode != 0
    assert "no console is running" in errors


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        ("console", ["--yes"], "No such option '--yes'"),
        ("console", ["--port", "0", "--model", "scripted:nothing.json"], "reading the script"),
        ("run", ["--console", "--quiet", "hello"], "--quiet is for runs at the terminal"),
        ("run", ["--console", "--detach", "hello"], "--detach is for runs at the terminal"),
        ("worker", ["--console", "--yes"], "--yes does not work with"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(module, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = import_module(f"forge.cli.commands.{module}").command
    ended = CliRunner().invoke(command, arguments)
    assert ended.exit_code == 2
    assert re.search(words, ended.output)
