"""Nothing keeps the program from ending: no hung tool, and no tool from Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.core.calling import ends, python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")

PREPARE = """
import asyncio, os, signal, sys, threading, time
from forge.core.activity import ActivityStream
from forge.core.context import Scope, ToolContext
from forge.core.execution.deadline import Deadline, DeadlinePassed, Deadline
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult

async def limit(ctx, proceed):
    try:
        return await Deadline(proceed(ctx), 0.1, 0.1)
    except DeadlinePassed:
        return ToolResult.error("timed out", "timeout")

def ready():
    os.write(1, b"ready\\n")  # not print: a thread that holds the lock of stdout when Python ends makes it abort

async def sleeps() -> str:
    "Sleep."
    ready()
    await asyncio.sleep(600)

async def spins() -> str:
    "Spin."
    ready()
    while True:
        pass

async def stubborn() -> str:
    "Ignore cancellation."
    ready()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

def blocks() -> str:
    "Block."
    ready()
    while True:
        time.sleep(600)

async def blocks_the_loop() -> str:
    "Block the loop."
    ready()
    time.sleep(600)

def yields():
    "Yield for ever."
    ready()
    while True:
        yield "."
        time.sleep(0.01)

async def goes_on(ctx: ToolContext) -> ToolResult:
    "Go on in the background."
    return ctx.background(stubborn.run if hasattr(stubborn, "run") else stubborn, "begun")

def executor(*steps):
    return ToolExecutor(ToolRegistry([sleeps, spins, stubborn, blocks, blocks_the_loop, yields, goes_on]), steps)

def call(name):
    return executor().execute(ToolCall(name), Scope())
"""


@pytest.mark.parametrize("name", ["sleeps", "stubborn", "blocks", "yields"])
def test_a_hung_tool_does_not_keep_the_program_from_ending(name):
    program = f"""{PREPARE}
async def main():
    result = await executor(limit).execute(ToolCall({name!r}), Scope())
    print(result.for_llm)

asyncio.run(main())
print("over")
"""
    code, output, errors = ends(python(program), 150)
    assert (code, output.split()) == (0, ["ready", "timed", "out", "over"]), errors


def test_hundreds_of_hung_tools_do_not_keep_the_program_from_ending():
    program = f"""{PREPARE}
async def main():
    calls = [ToolCall(name) for name in ["blocks"] * 100 + ["stubborn"] * 100]
    results = await executor(limit).execute_all(calls, Scope())
    print("results", len(results))

asyncio.run(main())
"""
    code, output, errors = ends(python(program), 150)
    assert code == 0, errors
    assert "results 200" in output


def test_work_in_the_background_does_not_keep_the_program_from_ending():
    program = f"""{PREPARE}
async def main():
    print((await call("goes_on")).for_llm, flush=True)
    await asyncio.sleep(0)

asyncio.run(main())
print("over")
"""
    code, output, errors = ends(python(program), 150)
    assert (code, output.split()) == (0, ["begun", "ready", "over"]), errors


def test_a_hung_listener_does_not_keep_the_program_from_ending():
    program = f"""{PREPARE}
def slow(event):
    time.sleep(0.1 if event.seq == 1 else 60)

async def never(event):
    await asyncio.Event().wait()

async def quick() -> str:
    "Be quick."
    return "quick"

async def main():
    stream = ActivityStream()
    stream.subscribe(slow)
    stream.subscribe(never)
    runs = ToolExecutor(ToolRegistry([quick]), [], stream)
    for _ in range(3):
        print((await runs.execute(ToolCall("quick"), Scope())).for_llm)

asyncio.run(main())
"""
    code, output, errors = ends(python(program), 150)
    assert (code, output.split()) == (0, ["quick"] * 3), errors


LOOPS = {
    "asyncio.run": "asyncio.run(call({name!r}))",
    "a bare loop": "loop = asyncio.new_event_loop()\nloop.run_until_complete(call({name!r}))",
    "asyncio.run with a listener": """
async def main():
    runs = executor()
    runs.activity.subscribe(lambda event: None)
    await runs.execute(ToolCall({name!r}), Scope())

asyncio.run(main())""",
    "a turn of several": """
async def main():
    await executor().execute_all([ToolCall("sleeps"), ToolCall("blocks"), ToolCall({name!r})], Scope())

asyncio.run(main())""",
}


@pytest.mark.parametrize(
    ("loop", "name"),
    [
        *((loop, name) for loop in LOOPS for name in ("sleeps", "blocks")),
        *(("a bare loop", name) for name in ("spins", "blocks_the_loop")),
    ],
)
def test_ctrl_c_stops_the_program(loop, name):
    code, errors = interrupted(LOOPS[loop].format(name=name))
    assert code == -signal.SIGINT, errors
    assert "KeyboardInterrupt" in errors


@pytest.mark.parametrize("name", ["spins", "blocks_the_loop"])
def test_a_second_ctrl_c_stops_a_program_whose_loop_is_blocked(name):
    """The first one is turned into a cancellation by asyncio.run, which a busy loop never sees."""
    code, errors = interrupted(LOOPS["asyncio.run"].format(name=name), times=2)
    assert code == -signal.SIGINT, errors


def test_ctrl_c_stops_a_tool_that_ignores_cancellation_behind_a_deadline():
    program = "asyncio.run(executor(patient).execute(ToolCall('stubborn'), Scope()))"
    patient = "async def patient(ctx, proceed):\n    return await Deadline(proceed(ctx), 60, 0.1)\n"
    code, errors = interrupted(patient + program)
    assert code == -signal.SIGINT, errors


def test_ctrl_c_stops_the_program_where_its_own_handler_raises():
    program = """
def interrupt(number, frame):
    raise KeyboardInterrupt("by a person")

signal.signal(signal.SIGINT, interrupt)
loop = asyncio.new_event_loop()
loop.run_until_complete(call("spins"))
"""
    code, errors = interrupted(program)
    assert code != 0
    assert "KeyboardInterrupt" in errors


def test_a_tool_that_raises_keyboard_interrupt_itself_does_not_stop_the_program():
    program = f"""{PREPARE}
def plain() -> str:
    "Raise."
    raise KeyboardInterrupt

async def asynchronous() -> str:
    "Raise."
    raise KeyboardInterrupt("words")

async def main():
    runs = ToolExecutor(ToolRegistry([plain, asynchronous]), [])
    for name in ("plain", "asynchronous"):
        print((await runs.execute(ToolCall(name), Scope())).is_error)

asyncio.run(main())
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""
    code, output, errors = ends(python(program))
    assert (code, output.split()) == (0, ["True"] * 4), errors


def interrupted(program: str, times: int = 1) -> tuple[int, str]:
    """Ctrl-C once the tool runs; exit code and errors."""
    running = python(f"{PREPARE}\n{program}\nprint('went on', flush=True)")
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    for _ in range(times):
        running.send_signal(signal.SIGINT)
        _wait(running, 0.3)  # two signals that arrive as one would be one: give the first its chance
    for _ in range(10):  # its tools last ten minutes
        if running.poll() is None and not _wait(running, 10):
            # Python misses a signal that arrives just before its event loop begins to wait
            running.send_signal(signal.SIGINT)
    code, output, errors = ends(running, 60)
    assert "went on" not in output
    return code, errors


def _wait(running: subprocess.Popen[str], seconds: float) -> bool:
    try:
        running.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
