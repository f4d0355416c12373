"""One process beside Forge owns all programs: small, without secrets, replaced when it dies."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forge import Scope, ToolCall, rules, tool
from forge.pipeline import standard_executor
from forge.process.environment import command_environment, shell_environment
from forge.process.running.run import FinishedProgram, run
from forge.process.running.supervisor import end_left
from tests.process.planting import found, mark, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


async def shell(line: str, **options) -> FinishedProgram:
    return await run(["bash", "-c", line], cwd=Path("/"), env=shell_environment(), **options)


async def keeper() -> int:
    return int((await shell("echo $PPID")).output)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_one_keeper_serves_many_programs():
    assert await keeper() == await keeper()


async def test_programs_at_once_have_keepers_of_their_own():
    assert len(set(await asyncio.gather(*(keeper() for _ in range(5))))) == 5


async def test_a_keeper_with_something_left_is_not_used_again():
    word = mark()
    busy = int((await shell(f"echo $PPID; sleep {word} &", leave=word)).output)
    assert await keeper() != busy
    end_left(word)
    assert until(lambda: not found(word))


async def test_ending_one_owner_leaves_the_others_alone():
    one, two = mark(), mark()
    await shell(f"sleep {one} &", leave=one)
    await shell(f"sleep {two} &", leave=two)
    end_left(one)
    assert until(lambda: not found(one))
    assert found(two)
    end_left()
    assert until(lambda: not found(two))


async def test_it_knows_nothing_of_our_environment():
    pid = await keeper()
    assert Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0") in (b"", b"LC_CTYPE=C.UTF-8")


async def test_killed_it_takes_its_programs_along_and_is_replaced():
    word = mark()
    await shell(f"setsid sleep {word} &", leave=word)
    (head,) = [pid for pid in found(f"forge-supervisor-of-{os.getpid()}") if parent_of(pid) == os.getpid()]
    os.kill(head, signal.SIGKILL)
    assert until(lambda: not found(word))
    assert (await shell("echo again")).output == "again\n"


def test_a_forked_process_has_its_own():
    code = (
        "import asyncio, os; from pathlib import Path; from forge.process.running.run import run\n"
        "line = ['sh', '-c', 'echo $PPID']\n"
        "say = lambda: asyncio.run(run(line, cwd=Path('/'), env={'PATH': '/bin:/usr/bin'})).output\n"
        "mine = say()\n"
        "if os.fork() == 0:\n"
        "    print('differs' if say() != mine else 'the same', flush=True); os._exit(0)\n"
        "os.wait(); print('still mine' if say() == mine else 'another')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "differs\nstill mine\n", done.stderr


@tool(isolate=True)
def daemonise(word: str) -> str:
    """Leave something behind that left its group and its parents."""
    line = f"(setsid sleep {word} >/dev/null 2>&1 &) & sleep {word} >/dev/null 2>&1 &"
    subprocess.run(["bash", "-c", line], check=True)
    return str(os.getppid())


async def test_what_an_isolated_tool_leaves_is_killed_with_it():
    word = mark()
    executor = standard_executor([daemonise], policy=rules("allow *"))
    result = await executor.execute(ToolCall("daemonise", {"word": word}), Scope())
    assert int(result.for_llm) != os.getpid()
    assert not found(word)


def test_nothing_starts_before_the_first_program():
    code = """
import forge.process.running.run, os
from contextlib import suppress
from pathlib import Path

found = []
for number in filter(str.isdigit, os.listdir("/proc")):
    with suppress(OSError):  # others end meanwhile
        if f"forge-supervisor-of-{os.getpid()}".encode() in Path(f"/proc/{number}/cmdline").read_bytes():
            found.append(number)
print(Path(f"/proc/{os.getpid()}/task").exists(), [one for one in found if int(one) != os.getpid()])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True []\n", done.stderr


def test_the_environment_of_lines_is_small_and_says_that_nobody_is_there():
    theirs = {"PATH": "/bin", "HOME": "/home/a", "LC_TIME": "C", "API_KEY": "s3cret", "MINE": "1", "BASH_ENV": "x"}
    env = shell_environment(["MINE", "ABSENT"], theirs)
    assert env.items() >= {"PATH": "/bin", "HOME": "/home/a", "LC_TIME": "C", "MINE": "1", "TERM": "dumb"}.items()
    assert not env.keys() & {"API_KEY", "BASH_ENV", "ABSENT"}


def test_the_environment_of_commands_has_the_workspace_as_its_home():
    theirs = {
        "HOME": "/home/a",
        "https_proxy": "p",
        "OPENAI_ORG_ID": "o",
        "API_KEY": "s3cret",
        "MINE": "1",
        "TERM": "x",
    }
    env = command_environment(Path("/ws"), ["MINE", "HOME"], theirs)
    elsewhere = {name for name, value in env.items() if value == os.devnull} | {"PYTHONNOUSERSITE"}
    assert {"GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"} < elsewhere
    left = {name: value for name, value in env.items() if name not in elsewhere}
    assert left == {"PATH": os.defpath, "HOME": "/ws", "https_proxy": "p", "OPENAI_ORG_ID": "o", "MINE": "1"}


def test_settings_that_a_project_passes_through_are_used():
    theirs = {"GIT_CONFIG_GLOBAL": "/home/a/settings", "KUBECONFIG": "/home/a/kube"}
    env = command_environment(Path("/ws"), ["KUBECONFIG"], theirs)
    assert (env["KUBECONFIG"], env["GIT_CONFIG_GLOBAL"]) == ("/home/a/kube", os.devnull)


def test_settings_in_a_home_that_is_the_workspace_start_no_program(tmp_path: Path):
    (tmp_path / ".gitconfig").write_text('[core]\n\tfsmonitor = "touch PWNED; false"\n')
    git = shutil.which("git")
    if git is None:
        pytest.skip("NOT TESTED: there is no git here")
    env = command_environment(tmp_path)
    subprocess.run([git, "init", "-q", "."], cwd=tmp_path, env=env, check=True)
    subprocess.run([git, "status"], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert not (tmp_path / "PWNED").exists()
    obeying = {name: value for name, value in env.items() if name != "GIT_CONFIG_GLOBAL"}
    subprocess.run([git, "status"], cwd=tmp_path, env=obeying, check=True, capture_output=True)
    assert (tmp_path / "PWNED").exists()
