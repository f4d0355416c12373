"""The engine in this process: launched on the running loop, closed without a trace, one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from forge.core.errors import ToolError
from forge.durable.engine.claims import Claim, Ended
from forge.durable.engine.dbos_private import JsonSerializer, RecordedError
from forge.durable.engine.engine import Engine, new_worker_id, running_engine
from tests.durable._worker_process import subject
from tests.durable.fleet import fleet_of
from tests.durable.working import engine_of


def test_what_is_stored_is_json_without_nul_and_comes_back() -> None:
    serializer = JsonSerializer()
    for value in (None, {"a": [1, 2.5, "\0 \ud800 ä"]}, [True], "text", 2**70):
        stored = serializer.serialize(value)
        assert stored.isascii()
        assert "\0" not in stored
        assert serializer.deserialize(stored) == value
    error = serializer.deserialize(serializer.serialize(ValueError("no")))
    assert isinstance(error, RecordedError)
    assert str(error) == "ValueError: no"


def test_every_start_of_a_worker_has_an_id_of_its_own() -> None:
    assert new_worker_id("gpu-1").startswith("gpu-1-")
    assert new_worker_id("gpu-1") != new_worker_id("gpu-1")


async def test_it_runs_on_this_loop_and_leaves_it_as_it_was(local_first: str, tmp_path: Path) -> None:
    for number in range(2):  # again in the same process
        with fleet_of(local_first, tmp_path) as fleet:
            async with engine_of(local_first, subject(), version="1") as engine:
                assert running_engine() is engine
                name = await asyncio.to_thread(lambda: fleet.submit(f"r{number}", calls=1))  # noqa: B023
                while not fleet.store.get(name).is_over:  # noqa: ASYNC110 - the loop has to turn
                    await asyncio.sleep(0.01)
                assert fleet.store.get(name).status == "finished"
                assert engine.list_running() == [] or await _soon_empty(engine)
        assert await asyncio.to_thread(threading.current_thread) is not threading.current_thread()
        with pytest.raises(RuntimeError, match="no Engine"):
            running_engine()


async def _soon_empty(engine: Engine) -> bool:
    while engine.list_running():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return True


async def test_an_end_that_is_being_stored_is_not_forgotten(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing, go_on = threading.Event(), threading.Event()
    with fleet_of(sqlite, tmp_path) as fleet:
        async with engine_of(sqlite, subject(), version="1") as engine:
            poll = engine._claims.poll

            def poll_slowly(room: int, ended: Sequence[Ended] = ()) -> list[Claim]:
                if ended:
                    storing.set()
                    assert go_on.wait(60)
                return poll(room, ended)

            monkeypatch.setattr(engine._claims, "poll", poll_slowly)
            name = await asyncio.to_thread(lambda: fleet.submit("r", calls=1))
            assert await asyncio.to_thread(storing.wait, 60)
            try:
                assert [one.run for one in engine._claims.list_claimed()] == [name]
                rounds = [await asyncio.to_thread(engine.requeue_forgotten) for _ in range(3)]
            finally:
                go_on.set()
            assert rounds == [[], [], []]
            while engine._claims.list_claimed() or engine._ended:  # noqa: ASYNC110 - the loop has to turn
                await asyncio.sleep(0.01)


async def test_there_is_one_in_a_process(sqlite: str) -> None:
    async with engine_of(sqlite, listen=False):
        with pytest.raises(ToolError, match="already"):
            async with engine_of(sqlite):
                pass
        assert running_engine()


async def test_one_that_cannot_start_leaves_room_for_another(sqlite: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot be reached"):
        async with engine_of("postgresql://nobody:secret@127.0.0.1:1/none"):
            pass
    async with engine_of(sqlite, listen=False):
        assert running_engine()


async def test_runs_of_another_version_are_left_alone(local_first: str, tmp_path: Path) -> None:
    with fleet_of(local_first, tmp_path) as fleet:
        async with engine_of(local_first, subject(), version="2"):
            await asyncio.to_thread(lambda: fleet.submit("old", calls=1))
            await asyncio.to_thread(lambda: fleet.submit("new", calls=1, version="2"))
            while not fleet.store.get("new").is_over:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert fleet.store.get("old").status == "queued"
        async with engine_of(local_first, subject(), version="1"):
            while not fleet.store.get("old").is_over:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_what_is_under_way_at_the_end_goes_on_in_the_next(local_first: str, tmp_path: Path) -> None:
    with fleet_of(local_first, tmp_path) as fleet:
        async with engine_of(local_first, subject(), version="1", worker="first") as engine:
            await asyncio.to_thread(lambda: fleet.submit("r", tool="look", calls=2, seconds=0.3))
            while not fleet.begun("r"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with engine_of(local_first, subject(), version="1", worker="second") as engine:
            assert await asyncio.to_thread(engine.hand_back, "somebody else") == []
            assert await asyncio.to_thread(engine.hand_back, "first") == ["r.1"]
            assert await asyncio.to_thread(engine.hand_back, "first") == []
            while not fleet.store.get("r").is_over:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert fleet.store.get("r").worker == "second"
