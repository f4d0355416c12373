"""The command where things are not as they should be: in a sentence, with the right exit code, and without a trace."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import resource
import select
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from forge.cli import forge
from tests import programs
from tests.cli.conftest import Ended, environment

BUBBLEWRAP = shutil.which("bwrap")
COMMANDS = (  # quick ones that look at everything a person has
    ("tool", "list"),
    ("tool", "call", "math_calculate", '{"expression": "1 + 1"}'),
    ("doctor",),
    ("session", "list"),
    ("schedule", "list"),
    ("policy", "explain", "bash", '{"command": "ls"}'),
)
FEW = COMMANDS[1:4]  # where a place is odd for all of them in the same way
WRITE = ("tool", "call", "file_write", '{"path": "a.txt", "content": "text"}', "--yes")
STATEFUL = (
    WRITE,
    ("tool", "call", "file_create", '{"filename": "a.txt", "content": "text"}', "--yes"),
    ("tool", "call", "todo_write", '{"items": [{"content": "Rest."}]}'),
    ("tool", "call", "schedule_set", '{"cron": "@daily", "task": "Rest."}', "--yes"),
    ("tool", "call", "bash", '{"command": "seq 100000"}', "--yes"),
)


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that does something."""
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*words, name))


EVERY = [" ".join(words) for words in leaves(forge)]


def ran(workspace: Path, *arguments: str, before: tuple[str, ...] = (), env: Any = None, **how: Any) -> Ended:
    """The command in a process of its own."""
    done = programs.run(
        [*before, sys.executable, "-m", "forge", *arguments],
        cwd=workspace,
        env=environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=55,
        **how,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def assert_said(ended: Ended) -> None:
    """Whatever happened, no insides of the program are shown."""
    assert ended.code in (0, 1, 2), ended
    for text in (ended.out, ended.err):
        for insides in ("Traceback", "should not happen", 'File "', " object at 0x", "<function", "Errno"):
            assert insides not in text, text


@pytest.mark.slow
@pytest.mark.parametrize("home", ["absent", "a file", "missing", "relative", "read-only"])
@pytest.mark.parametrize("command", FEW, ids=lambda words: " ".join(words[:2]))
def test_any_home_will_do(workspace, command, home):
    (workspace / "file").write_text("")
    read_only = workspace / "home"
    read_only.mkdir(mode=0o500)
    places = {"absent": None, "a file": str(workspace / "file"), "missing": "/no/such/home", "relative": "home"}
    own = {"HOME": places.get(home, str(read_only)), "XDG_CONFIG_HOME": None, "XDG_DATA_HOME": None}
    before: tuple[str, ...] = ()
    if home == "read-only" and BUBBLEWRAP and os.geteuid() == 0:  # permissions do not stop root
        before = (BUBBLEWRAP, "--dev-bind", "/", "/", "--ro-bind", str(read_only), str(read_only))
    ended = ran(workspace, *command, before=before, env=environment(**own))
    assert_said(ended)
    assert ended.code == 0, ended


@pytest.mark.slow
@pytest.mark.parametrize("command", FEW, ids=lambda words: " ".join(words[:2]))
def test_a_locale_of_ascii_will_do(workspace, command):
    (workspace / "ümläut.txt").write_text("größer")
    ended = ran(workspace, *command, env=environment(LANG="C", LC_ALL="C"))
    assert_said(ended)
    assert ended.code == 0, ended


def test_a_locale_of_ascii_reads_any_name(workspace):
    (workspace / "ümläut.txt").write_text("größer")
    plain = environment(LANG="C", LC_ALL="C")
    ended = ran(workspace, "tool", "call", "file_read", '{"path": "ümläut.txt"}', env=plain)
    assert "größer" in ended.json["for_llm"]


@pytest.mark.slow
def test_whatever_the_umask_state_is_the_owners_alone(workspace):
    for command in STATEFUL:
        ended = ran(workspace, *command, umask=0)
        assert ended.code == 0, ended
    state = workspace / ".forge"
    found = {str(path.relative_to(workspace)): path.lstat().st_mode & 0o777 for path in (state, *state.rglob("*"))}
    assert {"state.db", "audit.ndjson", ".gitignore"} <= {Path(name).name for name in found}
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}


@pytest.mark.slow
@pytest.mark.parametrize("command", FEW, ids=lambda words: " ".join(words[:2]))
def test_a_current_directory_that_is_gone(workspace, command):
    gone = workspace / "gone"
    gone.mkdir()
    leave = "import os, sys; os.rmdir(os.getcwd()); from forge.cli import main; sys.argv[0] = 'forge'; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", leave, *command], cwd=gone, env=environment(), capture_output=True, text=True
    )
    ended = Ended(done.returncode, done.stdout, done.stderr)
    assert_said(ended)
    there = subprocess.run(
        [sys.executable, "-P", "-c", leave, *command, "--workspace", str(workspace)],
        cwd=_made(gone),
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert there.returncode == 0, there.stderr


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def confined(workspace):
    """`confined("--ro-bind", …)`: how to start the command so that it sees the workspace so."""
    if BUBBLEWRAP is None:
        pytest.skip("needs bubblewrap")
    probe = subprocess.run([BUBBLEWRAP, "--dev-bind", "/", "/", "--size", "262144", "--tmpfs", str(workspace), "true"])
    if probe.returncode:
        pytest.skip("bubblewrap cannot mount here")
    return lambda *flags: (BUBBLEWRAP, "--dev-bind", "/", "/", *flags, "--chdir", str(workspace))


@pytest.mark.slow
@pytest.mark.parametrize("command", [*FEW, *STATEFUL], ids=lambda words: " ".join(words[:3]))
def test_a_read_only_workspace(workspace, confined, tmp_path_factory, command):
    elsewhere = environment(TMPDIR=str(tmp_path_factory.mktemp("temporary")))
    before = confined("--ro-bind", str(workspace), str(workspace))
    ended = ran(workspace, *command, before=before, env=elsewhere)
    assert_said(ended)
    assert list(workspace.iterdir()) == []
    if command is WRITE:
        assert "read-only" in ended.json["error"]
        assert ran(workspace, *command, env=elsewhere).code == 0


FILL = 'head -c 400000 /dev/zero > filler 2>/dev/null; exec "$@"'


@pytest.mark.slow
@pytest.mark.parametrize("command", [*FEW, *STATEFUL], ids=lambda words: " ".join(words[:3]))
def test_a_full_disk(workspace, confined, tmp_path_factory, command):
    elsewhere = environment(TMPDIR=str(tmp_path_factory.mktemp("temporary")))
    before = (*confined("--size", "262144", "--tmpfs", str(workspace)), "sh", "-c", FILL, "sh")
    ended = ran(workspace, *command, before=before, env=elsewhere)
    assert_said(ended)
    if command is WRITE:
        assert "the disk is full" in ended.json["error"]


@pytest.mark.slow
@pytest.mark.parametrize("command", STATEFUL, ids=lambda words: " ".join(words[:3]))
def test_a_disk_that_fills_while_it_works(workspace, command):
    """Every file ends after so many bytes, and whatever is begun ends in words."""
    limit = 3_000

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    env = environment(PYTHONDONTWRITEBYTECODE="1")  # half a compiled module would be left for everybody
    ended = ran(workspace, *command, env=env, preexec_fn=small)
    assert_said(ended)
    assert ran(workspace, "tool", "list").code == 0


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}])
def test_no_colours_where_they_are_not_wanted(workspace, variables):
    code, shown = at_terminal(workspace, "doctor", "--verbose", **variables)
    assert code == 0
    assert "\x1b[" not in shown
    assert "sandbox" in shown


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, 80, 1_000])
@pytest.mark.parametrize(
    "command", [*COMMANDS, ("tool", "describe", "bash"), ("--help",)], ids=lambda words: words[-1][:20]
)
def test_any_width_of_a_terminal(workspace, command, columns):
    code, shown = at_terminal(workspace, *command, columns=columns)
    assert code == 0
    assert_said(Ended(code, shown, ""))


def at_terminal(workspace: Path, *arguments: str, columns: int = 80, **variables: str) -> tuple[int, str]:
    """The exit code, and all that was shown on a terminal of that width."""
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    usual = {"TERM": "xterm-256color", "COLUMNS": None, "NO_COLOR": None, "FORCE_COLOR": None}
    with programs.Popen(
        [sys.executable, "-m", "forge", *arguments],
        cwd=workspace,
        env=environment(**{**usual, **variables}),
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
    ) as process:
        os.close(its_end)
        shown = b""
        while select.select([terminal], [], [], 50)[0]:
            try:
                piece = os.read(terminal, 65_536)
            except OSError:  # Linux's way to say that the other side is closed
                break
            if not piece:
                break
            shown += piece
        os.close(terminal)
    return process.returncode, shown.decode()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [*FEW, ("--help",)], ids=lambda words: " ".join(words[:2]))
def test_an_output_that_takes_nothing(workspace, command):
    script = 'exec "$@" > /dev/full'
    ended = ran(workspace, *command, before=("sh", "-c", script, "sh"))
    assert "Traceback" not in ended.err
    if command[-1] != "list" or command[0] == "tool":  # the others have nothing to list, which is said elsewhere
        assert ended.code == 1
        assert ended.err == "forge: [Errno 28] No space left on device\n"


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", [COMMANDS[0], COMMANDS[1], COMMANDS[2]], ids=lambda words: " ".join(words[:2]))
def test_closed_streams(workspace, command, closed):
    ended = ran(workspace, *command, before=("sh", "-c", f'exec "$@" {closed}', "sh"))
    assert_said(ended)
    assert ended.code == 0


@pytest.mark.parametrize(
    "command", [COMMANDS[0], COMMANDS[2], ("tool", "describe", "bash")], ids=lambda w: " ".join(w[:2])
)
def test_a_reader_that_leaves_early(workspace, command):
    script = '"$@" | head -c 1 >/dev/null'
    ended = ran(workspace, *command, before=("sh", "-c", script, "sh"))
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("words", EVERY)
def test_every_command_explains_itself_with_an_example(here, words):
    ended = here(*words.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    usage, _, rest = ended.out.partition("\n")
    assert usage.startswith(f"Usage: forge {words}")
    assert re.search(rf"\bforge {words}\b", rest), "no example of it"


@pytest.mark.parametrize("words", EVERY)
def test_an_unknown_flag_is_exit_code_2(here, words):
    ended = here(*words.split(), "--no-such-flag")
    assert (ended.code, ended.out) == (2, "")
    assert "--no-such-flag" in ended.err


@pytest.mark.parametrize("command", [("tool", "list", "--config", "bad.yaml"), ("tool", "call", "nope"), ("run", "hi")])
def test_only_debug_shows_where(workspace, command):
    (workspace / "bad.yaml").write_text("tools: [")
    keyless = environment(ANTHROPIC_API_KEY=None, OPENAI_API_KEY=None, ANTHROPIC_AUTH_TOKEN=None)
    ended = ran(workspace, *command, env=keyless)
    assert_said(ended)
    assert ended.code == 2


FIFOS = {  # the place of a FIFO, and the command that reports it
    ".forge/pins.json": ("doctor",),
    ".forge/state.db": ("doctor",),
    ".forge/state.db-wal": ("schedule", "list"),
    ".forge/untrusted.jsonl": ("doctor",),
    ".forge/audit.ndjson": WRITE,
    "forge.yaml": ("doctor",),
    ".gitignore": ("tool", "call", "grep_search", '{"pattern": "needle"}'),
    "below/.ignore": ("tool", "call", "glob_search", '{"pattern": "**/*.txt"}'),
}


@pytest.mark.parametrize("place", FIFOS)
def test_a_fifo_in_the_place_of_a_file_is_reported_and_keeps_nobody_waiting(there, workspace, place):
    (workspace / "below").mkdir()
    (workspace / "below" / "a.txt").write_text("needle")
    assert there(*WRITE).code == 0
    path = workspace / place
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    ended = there(*FIFOS[place])
    said = ended.out + ended.err
    assert "not a regular file" in said or "not regular files" in said
    assert "Traceback" not in said
    path.unlink()
    ended = there(*FIFOS[place])
    assert "regular file" not in ended.out + ended.err
