"""A run that another process queues, and a message to a run, are noticed at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from forge.durable.engine.start_segments import Starter
from forge.durable.store import NewRun, RunStore
from forge.durable.store.inbox import Notices

LONGEST = 120.0  # seconds on a busy machine


@contextmanager
def listening(database: str) -> Iterator[tuple[RunStore, list[int]]]:
    """Listens for the queue `default`; the list has an entry for every notice."""
    told: list[int] = []
    heard = threading.Condition()

    def tell() -> None:
        with heard:
            told.append(1)
            heard.notify_all()

    with RunStore(database) as store, RunStore(database) as own:
        store.prepare()
        notices = Notices(own.database, ["default"], tell)
        notices.start()
        try:
            with heard:
                assert heard.wait_for(lambda: told, LONGEST), "it listens"
                told.clear()
            yield store, told
            with heard:
                assert heard.wait_for(lambda: told, LONGEST), "it notices"
        finally:
            notices.end()


def test_a_queued_run_is_noticed(database: str) -> None:
    with listening(database) as (store, told):
        starter = Starter(store)
        run = store.create(NewRun(id="r", version="0"))
        told.clear()  # SQLite's file changed
        starter.start(run)
        starter.close()


def test_a_run_of_another_queue_is_none_of_ours(postgres: str) -> None:
    with listening(postgres) as (store, told):
        starter = Starter(store)
        starter.start(store.create(NewRun(id="other", version="0", queue="other")))
        starter.start(store.create(NewRun(id="ours", version="0")))
        starter.close()
    assert told == [1]


def test_a_message_to_a_run_is_noticed_by_the_name_of_the_run(postgres: str) -> None:
    heard: queue.Queue[str] = queue.Queue()
    listens = threading.Event()
    with RunStore(postgres) as store, RunStore(postgres) as own:
        store.prepare()
        notices = Notices(own.database, ["default"], listens.set, heard.put)
        notices.start()
        try:
            assert listens.wait(LONGEST), "it listens"
            for name in ("first", "second"):
                store.create(NewRun(id=name, version="0"))
                store.send(name, "hello")
            assert [heard.get(timeout=LONGEST) for _ in range(2)] == ["first", "second"]
        finally:
            notices.end()
