"""A program runs to its end, whatever it does, and nothing of it is left when it should be gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError, find_until_then
from forge.core.execution.deadline import Deadline, DeadlinePassed
from forge.process.environment import shell_environment
from forge.process.running.output import Capture, OutputPlan
from forge.process.running.run import FinishedProgram, run
from forge.process.running.supervisor import end_left
from tests.patience import longer
from tests.process.planting import found, mark, until, zombies

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

ENVIRONMENT = shell_environment()
HERE = Path("/")


async def shell(line: str, **options) -> FinishedProgram:
    return await run(["bash", "-c", line], **{"cwd": HERE, "env": ENVIRONMENT, **options})


async def test_output_errors_and_exit_code_are_told_apart():
    finished = await shell("echo out; echo err >&2; exit 3")
    assert (finished.output, finished.errors, finished.exit_code, finished.signal) == ("out\n", "err\n", 3, "")
    assert finished.duration > 0


async def test_both_kinds_of_output_can_come_in_one_in_their_order():
    finished = await shell("echo 1; echo 2 >&2; echo 3", output=OutputPlan(merge=True))
    assert (finished.output, finished.errors) == ("1\n2\n3\n", "")


async def test_a_signal_is_no_exit_code():
    killed, pretended = await shell("kill -9 $$"), await shell("exit 137")
    assert (killed.exit_code, killed.signal) == (None, "SIGKILL")
    assert (pretended.exit_code, pretended.signal) == (137, "")


async def test_it_returns_when_the_program_ends_whoever_holds_its_pipes():
    word = mark()
    started = time.monotonic()
    finished = await shell(f"sleep {word} & echo hi", leave=word)
    assert time.monotonic() - started < 60
    assert finished.output == "hi\n"
    assert [name.partition(" ")[2] for name in finished.left] == [f"sleep {word}"]
    assert found(word)
    end_left(word)
    assert until(lambda: not found(word))


async def test_what_is_left_and_nobody_wants_is_killed():
    word = mark()
    finished = await shell(f"sleep {word} & echo hi")
    assert finished.left == ()
    assert word in finished.killed[0]
    assert not found(word)


async def test_what_is_left_running_may_go_on_writing(tmp_path):
    line = f"(for i in $(seq 40000); do echo line $i; done; touch {tmp_path}/done) & sleep 0.01"
    finished = await shell(line, leave="writer")
    assert finished.left
    assert until((tmp_path / "done").exists)


async def test_output_comes_while_it_runs(tmp_path):
    pieces: list[str] = []

    def show(text: str) -> None:
        pieces.append(text)
        (tmp_path / "seen").touch()

    line = f"echo first; until [ -e {tmp_path}/seen ]; do sleep 0.01; done; echo second"
    finished = await shell(line, output=OutputPlan(on_output=show), timeout=60)
    assert finished.output == "first\nsecond\n"
    assert "".join(pieces) == finished.output
    assert pieces[0] == "first\n"


async def test_pieces_are_bounded_and_say_what_they_leave_out():
    pieces: list[str] = []
    await shell("head -c 30000000 /dev/zero | tr '\\0' x", output=OutputPlan(on_output=pieces.append))
    assert sum(map(len, pieces)) < 10_000_000
    assert any("bytes not shown" in piece for piece in pieces)


async def test_both_pipes_are_emptied_side_by_side():
    line = "for i in $(seq 20); do head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2; done"
    finished = await shell(line, output=OutputPlan(Capture(10, 10)))
    assert (finished.cut, finished.errors_cut) == (1_999_980, 1_999_980)


async def test_time_is_up_for_the_whole_tree_and_what_it_wrote_is_kept():
    word = mark()
    line = f"trap '' TERM; echo before; setsid sleep {word} & (setsid bash -c 'sleep {word}' &) ; sleep {word}"
    for seconds in longer(0.3):
        finished = await shell(line, timeout=seconds)
        if finished.output:
            break
    assert until(lambda: not found(word))
    assert finished.timed_out
    assert finished.output == "before\n"
    assert finished.signal == "SIGKILL"


async def test_a_program_is_asked_to_end_before_it_is_killed():
    for seconds in longer(0.3):
        finished = await shell(
            "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done", timeout=seconds
        )
        if "bye" in finished.output:
            break
    assert (finished.output, finished.exit_code, finished.timed_out) == ("ready\nbye\n", 5, True)


async def test_who_left_the_group_is_killed_as_soon_as_the_group_is_gone():
    word = mark()
    finished = await shell(f"env -i setsid /bin/sleep {word} & sleep {word}", timeout=0.2)
    assert finished.timed_out
    assert until(lambda: not found(word))


async def test_a_fork_bomb_of_sorts_is_killed():
    word = mark()
    line = f"f() {{ setsid bash -c 'sleep {word} & sleep {word}' & }}; while :; do f; sleep 0.002; done"
    await shell(line, timeout=0.5)
    assert until(lambda: not found(word))


async def test_cancelled_it_leaves_nothing():
    word = mark()
    line = f"trap '' TERM; setsid sleep {word} & echo ready; sleep {word}"
    ready = asyncio.Event()
    task = asyncio.create_task(shell(line, output=OutputPlan(on_output=lambda _: ready.set())))
    await ready.wait()
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    until_then = find_until_then(caught.value, FinishedProgram)
    assert until_then is not None
    assert until_then.output == "ready\n"
    assert until(lambda: not found(word))
    assert time.monotonic() - started < 60


async def test_abandoned_it_leaves_nothing_either():
    word = mark()
    with pytest.raises(DeadlinePassed):
        await Deadline(shell(f"trap '' TERM; sleep {word}; sleep {word}"), 0.2, grace=0.1)
    assert until(lambda: not found(word))


async def test_cancelled_before_it_starts_nothing_starts():
    task = asyncio.create_task(shell("sleep 60"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


FORGE = """
import asyncio, sys
from pathlib import Path
from forge.process.running.output import OutputPlan
from forge.process.running.run import run
from forge.process.running.jobs import start_job
from forge.process.environment import shell_environment

async def main(word):
    env, cwd = shell_environment(), Path("/")
    start_job(["bash", "-c", f"setsid sleep {word}"], cwd=cwd, env=env, owner="a", command="")
    await run(["bash", "-c", f"sleep {word} &"], cwd=cwd, env=env, leave="a")
    show = lambda text: print(text, end="", flush=True)
    line = f"trap '' TERM; (setsid sleep {word} &); sleep {word} & echo ready; sleep {word}"
    await run(["bash", "-c", line], cwd=cwd, env=env, output=OutputPlan(on_output=show))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_nothing_outlives_forge(number):
    word = mark()
    with subprocess.Popen(
        [sys.executable, "-c", FORGE, word], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as forge:
        assert forge.stdout is not None
        assert forge.stdout.readline() == b"ready\n"
        assert len([pid for pid in found(word) if pid != forge.pid]) >= 4
        forge.send_signal(number)
    assert until(lambda: not found(word))
    assert until(lambda: not found(f"forge-supervisor-of-{forge.pid}"))


async def test_a_program_that_kills_its_keeper_is_killed_itself():
    word = mark()
    with pytest.raises(ToolError) as error:
        await shell(f"setsid sleep {word} & kill -9 $PPID; sleep {word}")
    assert error.value.kind is ErrorKind.SYSTEM
    assert until(lambda: not found(word))
    assert (await shell("echo again")).output == "again\n"


async def test_hundreds_of_runs_leave_no_zombies():
    for _ in range(25):
        await asyncio.gather(*(shell("sleep 0 & exit 0") for _ in range(20)))
    assert until(lambda: not zombies())


@pytest.mark.slow
def test_a_thousand_at_once_share_few_descriptors():
    code = """
        import asyncio, resource
        from pathlib import Path
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        from forge.process.running.run import run

        async def main():
            runs = [run(["sh", "-c", f"echo {n}; sleep 0.05"], cwd=Path("/"), env={"PATH": "/usr/bin:/bin"}, stdin=b"x")
                    for n in range(1000)]
            found = await asyncio.gather(*runs)
            assert [one.output for one in found] == [f"{n}\\n" for n in range(1000)]
            print("all")

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout == "all\n", done.stderr


async def test_bytes_that_are_no_text_are_shown_all_the_same():
    finished = await shell(r"printf 'a\xff\xfeb\0c\xe2\x82'")
    assert finished.output == "a\ufffd\ufffdb\0c\ufffd"


@pytest.mark.parametrize("head", range(6))
@pytest.mark.parametrize("tail", [0, 5, 6, 7, 8])
async def test_a_character_is_never_cut_in_half(head, tail):
    finished = await shell("printf '€%.0s' $(seq 20)", output=OutputPlan(Capture(head, tail)))
    assert "\ufffd" not in finished.output
    assert finished.output.count("€") == head // 3 + tail // 3
    assert finished.cut == 60 - head - tail
    assert ("bytes left out" in finished.output) == (head >= 3 and tail > 0)


async def test_output_of_just_the_bound_is_whole():
    finished = await shell("printf 0123456789", output=OutputPlan(Capture(4, 6)))
    assert (finished.output, finished.cut) == ("0123456789", 0)
    finished = await shell("printf 0123456789x", output=OutputPlan(Capture(4, 6)))
    assert (finished.output, finished.cut) == ("0123\n[… 1 bytes left out …]\n56789x", 1)


async def test_endless_output_is_bounded_and_ends():
    for seconds in longer(0.3):
        finished = await shell("yes", timeout=seconds, output=OutputPlan(Capture(1000, 1000)))
        if finished.cut > 100_000:
            break
    assert finished.timed_out
    assert len(finished.output) < 3000
    assert finished.cut > 100_000


async def test_there_is_nothing_to_read_unless_something_is_given():
    assert (await shell("cat; echo end", timeout=60)).output == "end\n"
    assert (await shell("cat", stdin=b"given")).output == "given"


async def test_much_can_be_given_while_much_comes_out():
    finished = await shell("cat", stdin=b"x" * 5_000_000, output=OutputPlan(Capture(0, 10)))
    assert finished.cut == 4_999_990


async def test_what_is_given_need_not_be_read():
    assert (await shell("exit 4", stdin=b"x" * 5_000_000)).exit_code == 4


REFUSED = {
    "no such program": (["no-such-program-here"], {}, ErrorKind.NOT_FOUND),
    "no such file": (["/no/such/file"], {}, ErrorKind.NOT_FOUND),
    "not executable": (["/etc/hostname"], {}, ErrorKind.USER),
    "a NUL byte": (["echo", "a\0b"], {}, ErrorKind.VALIDATION),
    "half a surrogate pair": (["echo", "\ud800"], {}, ErrorKind.VALIDATION),
    "a megabyte": (["echo", "x" * 1_000_000], {}, ErrorKind.VALIDATION),
    "many megabytes": (["echo", *["x" * 100_000] * 1_000], {}, ErrorKind.VALIDATION),
    "no such directory": (["echo"], {"cwd": Path("/no/such/directory")}, ErrorKind.NOT_FOUND),
    "a NUL byte in the environment": (["echo"], {"env": {"A": "\0"}}, ErrorKind.VALIDATION),
}


@pytest.mark.parametrize(("argv", "options", "kind"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_started_is_an_error(argv, options, kind):
    with pytest.raises(ToolError) as error:
        await run(argv, **{"cwd": HERE, "env": ENVIRONMENT, **options})
    assert error.value.kind is kind


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["true", "x" * 200_000], "200,000 bytes; the limit for one argument is 131,071"),
        (["true", *["x" * 100_000] * 11], "1,100,004 bytes; the limit for all arguments is 1,048,576"),
        ([], "it is empty"),
    ],
)
async def test_what_no_command_line_can_hold_is_said(argv, said):
    with pytest.raises(ToolError, match=said):
        await run(argv, cwd=HERE, env=ENVIRONMENT)


async def test_long_arguments_pass_whole():
    words = ["x" * 100_000] * 9
    finished = await run(["printf", "%s", *words], cwd=HERE, env=ENVIRONMENT)
    assert finished.output == "".join(words)


async def test_a_program_sees_only_what_it_is_given(tmp_path):
    finished = await shell("pwd; echo $A; ls /proc/self/fd | wc -l", cwd=tmp_path, env={"PATH": os.defpath, "A": "1"})
    assert finished.output.split() == [str(tmp_path), "1", "4"]  # three streams, and the directory that is listed


async def test_a_program_is_found_by_its_own_path(tmp_path):
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho mine")
    program.chmod(0o755)
    finished = await run(["mine"], cwd=HERE, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert finished.output == "mine\n"


async def test_signals_are_as_a_new_program_expects_them():
    finished = await shell("grep -E 'SigBlk|SigIgn' /proc/self/status")
    masks = [int(line.split()[1], 16) for line in finished.output.splitlines()]
    assert [mask & 0x7FFFFFFF for mask in masks] == [0, 0]


def test_loops_and_threads_share_the_keepers():
    said: list[str] = []

    def elsewhere(number: int) -> None:
        said.append(asyncio.run(shell(f"echo {number}")).output)

    threads = [threading.Thread(target=elsewhere, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [f"{number}\n" for number in range(8)]
    assert asyncio.run(shell("echo last")).output == "last\n"
