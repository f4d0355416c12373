"""How the command ends when the world around it does."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forge.cli.commands.tool.list_tools
from tests.cli.conftest import environment, start


def test_ctrl_c_ends_a_stream_without_a_traceback(workspace):
    process = start(workspace, "tool", "call", "-")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"name": "math_calculate", "arguments": {"expression": "1"}}\n')
    process.stdin.flush()
    assert b'"for_llm": "1"' in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=150)
    assert process.returncode == 130
    assert err.strip() == b""


def test_answers_are_there_before_the_next_line_is_sent(workspace):
    process = start(workspace, "tool", "call", "-")
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(3):
        process.stdin.write(b'{"name": "math_calculate", "arguments": {"expression": "%d"}}\n' % number)
        process.stdin.flush()
        assert b'"for_llm": "%d"' % number in process.stdout.readline()
    process.communicate(timeout=150)
    assert process.returncode == 0


def test_a_reader_that_leaves_is_no_traceback(workspace):
    process = start(workspace, "tool", "call", "-")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    lines = b'{"name": "uuid_generate", "arguments": {}}\n' * 100
    try:
        process.stdin.write(lines)
        process.stdin.close()
    except BrokenPipeError:
        pass
    assert process.stderr is not None
    err = process.stderr.read()
    assert process.wait(timeout=150) == 1
    process.stderr.close()
    assert err == b""


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
def test_head_and_closed_streams_are_no_tracebacks(workspace):
    python = f"{sys.executable} -m forge"
    script = f"""
        {python} tool list | head -1
        {python} tool list >&-
        {python} tool call uuid_generate >&- 2>&- <&-
        {python} tool call - <&-
        cat .forge/audit.ndjson | wc -l
    """
    done = subprocess.run(["sh", "-c", script], cwd=workspace, env=environment(), capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("NAME")
    assert done.stdout.split()[-1] == "2"  # the log holds its own events, and nothing meant for the closed streams


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [["tool", "list"], ["tool", "call", "uuid_generate"]])
def test_a_full_disk_is_said_with_what_to_do(workspace, command):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "forge", *command],
            env=environment(),
            cwd=workspace,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "forge: writing the output failed: the disk is full",
        "Free some space, or write elsewhere, then run the command again.",
    ]


def test_a_home_is_not_needed(there):
    ended = there("tool", "call", "math_calculate", '{"expression": "1"}', HOME=None, XDG_CONFIG_HOME=None, PATH=None)
    assert ended.json["for_llm"] == "1"


def test_a_current_directory_that_is_gone_is_a_usage_error(workspace, there):
    gone = workspace / "gone"
    gone.mkdir()
    script = f"""
import os, sys
os.chdir({str(gone)!r})
os.rmdir({str(gone)!r})
from forge.cli import perform as run
sys.exit(run(["tool", "call", "uuid_generate"]))
"""
    done = subprocess.run([sys.executable, "-P", "-c", script], env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert "--workspace" in done.stderr
    assert there("tool", "call", "uuid_generate").code == 0


def test_an_internal_error_is_one_line_and_with_debug_a_traceback(here, monkeypatch):
    def broken(options: object) -> None:
        raise RuntimeError("the wheel came off")

    monkeypatch.setattr(forge.cli.commands.tool.list_tools, "project_tools", broken)
    ended = here("tool", "list")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[0] == "forge: this should not happen: RuntimeError: the wheel came off"
    assert "Traceback" not in ended.err
    assert "Traceback" in here("tool", "list", "--debug").err


def test_debug_logs_what_happens(here):
    assert "math_calculate" in here("tool", "call", "math_calculate", "--debug").err
    assert here("tool", "call", "math_calculate").err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tol"], "Did you mean `forge tool`?"),
        (["tool", "lst"], "Did you mean `forge tool list`?"),
        (["frobnicate"], "Known are "),
        (["tool", "list", "--jsn"], "--jsn"),
        (["tool", "call"], "NAME"),
    ],
)
def test_a_slip_of_the_tongue_is_exit_code_2(here, arguments, words):
    ended = here(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


def test_help_and_version_say_what_there_is(here):
    help_text = here("--help")
    assert help_text.code == 0
    for word in ("completion", "doctor", "policy", "tool", "130"):
        assert word in help_text.out
    assert here("--version").out.startswith("forge ")
    assert "Exit codes" in here("tool", "call", "--help").out


def test_python_m_forge_is_the_command(there):
    assert there("--version").out.startswith("forge ")


@pytest.mark.parametrize("name", sorted(forge.cli.forge.modules))
@pytest.mark.slow
def test_every_command_starts_in_a_process_of_its_own(workspace, name):
    """`here` and, in `make test`, `there` share a process that has started already."""
    done = subprocess.run(
        [sys.executable, "-m", "forge", name, "--help"],
        cwd=workspace,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: forge {name}")
