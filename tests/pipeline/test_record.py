"""Calls to a file, and from the file back."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forge import Scope, Secrets, ToolCall, ToolContext, ToolError, ToolResult, rules, tool
from forge.core.activity import ActivityStream
from forge.events import ToolCompleted
from forge.pipeline import standard_executor
from forge.pipeline.record import record, replay
from forge.project.project import Project, RunOptions
from tests.pipeline.calling import call_once, executor_of


@tool
def say(text: str) -> str:
    """Say it."""
    return text


@tool
async def later(number: int, ctx: ToolContext) -> ToolResult:
    """Later."""

    async def work() -> str:
        await asyncio.sleep(0)
        if number == 13:
            raise ToolError("unlucky")
        return f"finished {number}"

    return ctx.background(work(), f"started {number}")


def entries(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def run(executor, *calls: ToolCall) -> tuple[list[str], list[str]]:
    """What the calls were answered, and what their background work came to."""
    completed: list = []
    executor.activity.subscribe(completed.append, ToolCompleted)
    answered = [(await executor.execute(call, Scope(message_id=str(n)))).for_llm for n, call in enumerate(calls)]
    await executor.background.settled(10)
    await executor.background.settled(10)
    return answered, sorted(event.result.for_llm for event in completed)


def test_a_recording_is_replayed_without_running(tmp_path):
    path = tmp_path / "calls.ndjson"
    runs: list = []

    @tool
    def roll(sides: int) -> int:
        """Roll a die."""
        runs.append(sides)
        return len(runs)

    assert [call_once(roll, record(path), sides=6).for_llm for _ in range(2)] == ["1", "2"]
    assert entries(path)[0]["result"]["for_llm"] == "1"
    executor = executor_of([roll], replay(path))
    results = [asyncio.run(executor.execute(ToolCall("roll", {"sides": 6}), Scope())) for _ in range(3)]
    assert [result.for_llm for result in results[:2]] == ["1", "2"]
    assert "no more results" in results[2].for_llm
    assert len(runs) == 2


def test_a_broken_recording_is_refused_with_its_line(tmp_path):
    path = tmp_path / "calls.ndjson"
    for broken in ('{"name": "x"}', '{"name": "x", "arguments": {}, "result": 3}', "[]"):
        path.write_text(f"\n{broken}\n")
        with pytest.raises(ToolError, match="line 2"):
            replay(path)


def test_a_new_recording_is_its_owners_alone_from_the_beginning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual = os.umask(0o022)
    try:
        Project(RunOptions(workspace=str(tmp_path), record="calls.ndjson")).agent(with_model=False)
    finally:
        os.umask(usual)
    assert (tmp_path / "calls.ndjson").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ToolError, match="cannot record to"):
        Project(RunOptions(workspace=str(tmp_path), record="no/such/calls.ndjson")).agent(with_model=False)


async def test_secrets_are_masked_in_the_recording_and_the_call_is_found_again(tmp_path):
    path = tmp_path / "calls.ndjson"
    hidden = Secrets(["hunter2hunter2"])
    executor = executor_of([say], record(path), activity=ActivityStream(hidden))
    call = ToolCall("say", {"text": "my hunter2hunter2"})
    await executor.execute(call, Scope())
    await executor.execute(ToolCall("say", '{"text": "my hunter2hunter2", "x": '), Scope())
    assert "hunter2" not in path.read_text()
    assert entries(path)[0]["arguments"] == {"text": "my [secret]"}
    again = executor_of([say], replay(path), activity=ActivityStream(hidden))
    assert (await again.execute(call, Scope())).for_llm == "my [secret]"


async def test_the_secrets_of_a_recording_can_be_given(tmp_path):
    path = tmp_path / "calls.ndjson"
    await executor_of([say], record(path, Secrets(["hunter2hunter2"]))).execute(
        ToolCall("say", {"text": "hunter2hunter2"}), Scope()
    )
    assert "hunter2" not in path.read_text()


async def test_background_work_is_replayed_as_background_work(tmp_path):
    path = tmp_path / "calls.ndjson"
    calls = [ToolCall("later", {"number": number}) for number in (1, 1, 13)]
    recorded = await run(executor_of([later], record(path)), *calls)
    assert recorded[0] == ["started 1", "started 1", "started 13"]
    assert len(recorded[1]) == 3
    lines = entries(path)
    assert [line.get("completed", False) for line in lines].count(True) == 3
    assert all(line["result"]["async"] is not line.get("completed", False) for line in lines)
    again = [ToolCall("later", {"number": number}) for number in (1, 1, 13)]
    assert await run(executor_of([later], replay(path)), *again) == recorded


async def test_a_completion_never_answers_a_call(tmp_path):
    path = tmp_path / "calls.ndjson"
    await run(executor_of([later], record(path)), ToolCall("later", {"number": 1}))
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    executor = executor_of([later], replay(path))
    again = await run(executor, *[ToolCall("later", {"number": 1}) for _ in range(2)])
    assert again[0][0] == "started 1"
    assert "no more results" in again[0][1]
    assert again[1] == ["finished 1"]


async def test_refusals_are_recorded_as_answers(tmp_path):
    path = tmp_path / "calls.ndjson"

    @tool(permissions={"write"}, target="path")
    async def save(path: str) -> str:
        """Save."""
        return path

    made = standard_executor([save], policy=rules("allow write", "deny write b"))
    executor = executor_of([save], record(path), *made.steps)
    for arguments in ({"path": "a"}, {"path": "b"}, {"path": 3.5}):
        await executor.execute(ToolCall("save", arguments), Scope())
    assert [line["result"]["success"] for line in entries(path)] == [True, False, False]
    assert all("completed" not in line for line in entries(path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_call_that_cannot_be_recorded_has_its_result_and_a_warning(caplog):
    result = call_once(say, record("/dev/full"), text="hello")
    assert (result.for_llm, result.success) == ("hello", True)
    assert "this call was not recorded: No space left on device" in result.data["warning"]
    assert "was not recorded" in caplog.text
    assert "withheld" not in call_once(say, record("/dev/full"), text=3).for_llm
    assert "was not recorded" in call_once(say, record("/no/such/folder/x"), text="hello").data["warning"]


FULL = """
import resource, sys
from tests.pipeline.calling import call_once
from tests.pipeline.test_record import say
from forge.pipeline.record import record

__import__("sys").dont_write_bytecode = True  # half a compiled module would be left for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
for text in ("short", "x" * 5_000, "y" * 5_000, "end"):
    print(call_once(say, record(sys.argv[1]), text=text).data.get("warning", "recorded"))
"""


def test_half_a_line_is_taken_back(tmp_path):
    path = tmp_path / "calls.ndjson"
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", FULL, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])},
        capture_output=True,
        text=True,
    )
    warning = "this call was not recorded: File too large"
    assert found.stdout.splitlines() == ["recorded", warning, warning, "recorded"], found.stderr
    assert [line["arguments"]["text"] for line in entries(path)] == ["short", "end"]
