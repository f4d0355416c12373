"""Background jobs: read whenever somebody looks, bounded, ended with their session."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.session_programs import end_started
from forge.process.environment import shell_environment
from forge.process.running.jobs import Job, find_job, list_jobs, start_job
from tests.process.planting import found, mark, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def owner():
    name = uuid4().hex
    yield name
    end_started(name)


def job(line: str, owner: str, **options) -> Job:
    return start_job(["bash", "-c", line], cwd=Path("/"), env=shell_environment(), owner=owner, command=line, **options)


async def test_it_returns_at_once_and_is_read_later(owner, tmp_path):
    made = job(f"echo one; until [ -e {tmp_path}/go ]; do sleep 0.01; done; echo two; exit 3", owner)
    await made.wait(60)
    assert made.new_output() == (b"one\n", 0)
    assert made.runs
    (tmp_path / "go").touch()
    await made.wait(60, for_end=True)
    assert made.new_output() == (b"two\n", 0)
    assert (made.runs, made.exit_code, made.signal, made.status) == (False, 3, "", "ended")
    assert made.new_output(since=0) == (b"one\ntwo\n", 0)


def test_event_loops_come_and_go_meanwhile(owner):
    async def begin() -> Job:
        return job("echo hi; sleep 0.05; echo ho", owner)

    made = asyncio.run(begin())
    asyncio.run(made.wait(60, for_end=True))
    assert made.new_output() == (b"hi\nho\n", 0)


async def test_waiting_ends_when_time_is_up(owner):
    made = job("sleep 60", owner)
    await made.wait(0.01)
    assert made.runs
    assert made.new_output() == (b"", 0)


async def test_the_newest_output_is_kept(owner):
    made = job("seq 1000000", owner, most_logged=1_000)
    await made.wait(30, for_end=True)
    content, gone = made.new_output()
    assert content.endswith(b"\n999999\n1000000\n")
    assert len(content) == 1_000
    assert gone == made.log.total - 1_000


async def test_killed_it_is_gone_with_all_that_it_started(owner):
    word = mark()
    made = job(f"setsid sleep {word} & echo ready; sleep {word}", owner)
    await made.wait(60)
    assert await made.kill()
    assert not found(word)
    assert (made.status, made.signal) == ("killed", "SIGTERM")
    assert not await made.kill()


async def test_it_can_be_given_something_to_read(owner):
    made = job("wc -c", owner, stdin=b"x" * 300_000)
    await made.wait(60, for_end=True)
    assert made.new_output()[0] == b"300000\n"


async def test_a_session_sees_only_its_own(owner):
    mine = job("sleep 60", owner)
    assert find_job(owner, mine.id) is mine
    with pytest.raises(ToolError) as error:
        find_job("somebody else", mine.id)
    assert error.value.kind is ErrorKind.NOT_FOUND
    assert list_jobs("somebody else") == []


async def test_there_are_only_so_many_at_once_and_finished_ones_make_room(owner):
    first = job("true", owner, most_jobs=2)
    await first.wait(60, for_end=True)
    job("sleep 60", owner, most_jobs=2)
    job("sleep 60", owner, most_jobs=2)
    assert [one.id for one in list_jobs(owner)] == ["job_2", "job_3"]
    with pytest.raises(ToolError, match="2 jobs are already running"):
        job("true", owner, most_jobs=2)


async def test_they_end_with_their_session(owner):
    word = mark()
    job(f"sleep {word}", owner)
    left = job(f"sleep {word} & true", owner)
    await left.wait(60, for_end=True)
    assert word in left.left[0]
    assert len(found(word)) == 2
    end_started(owner)
    assert until(lambda: not found(word))
    assert list_jobs(owner) == []
