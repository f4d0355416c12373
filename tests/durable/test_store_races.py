"""Many at once on one store: processes that close the same segment, answer the same question, make the same tables."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa
from dbos import _sys_db_sqlite
from dbos._migration import sqlite_migrations

from forge.core.messages import Message
from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore
from forge.durable.store.find import RunFilter
from forge.durable.store.rows import NewRun, Outcome, Question
from forge.durable.store.tables import runs
from forge.durable.store.waits import Wait
from forge.workspace.state.store import StoreError
from tests import programs

RUNS = 12

PROCESS = """
import json, sys
from forge.core.messages import Message
from forge.durable.store.rows import NewRun, Outcome, Question
from forge.durable.store.waits import Wait
from forge.durable.store import RunStore

url, name, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
store = RunStore(url)
store.prepare()
won = {"closed": 0, "answered": 0, "advanced": 0}
for number in range(runs):
    run, question = f"run{number}", f"q{number}"
    store.create(NewRun(id=run, prompt="p", messages=[Message("user", "p")]))
    store.begin(run, 1, name)
    store.ask(Question(id=question, run=run, call="c", tool="t", digest="d", request={}))
    store.add_events(run, [("once", {"by": name}), (None, {"by": name})])
    waits = (Wait(kind="approval", call="c", detail={"question": question}), Wait(kind="question"))
    said = (Message("assistant", name), Message("assistant", name))
    closed = store.close_segment(run, 1, Outcome(status="waiting", messages=said, spent={"by": name}, waits=waits))
    won["answered"] += store.answer(question, {"kind": "once"}, by=name)
    won["advanced"] += store.advance(run, say=[Message("user", f"next {name}")], from_segment=1) is not None
store.close()
print(json.dumps(won), flush=True)
"""


def test_processes_that_do_the_same_do_it_once(shared_first: str) -> None:
    names = ["a", "b", "c"]
    processes = [
        programs.Popen(
            [sys.executable, "-c", PROCESS, shared_first, name, str(RUNS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        ended = [process.communicate(timeout=150) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [words for _, words in ended] == [""] * len(names)
    won = [json.loads(said) for said, _ in ended]
    assert sum(one["answered"] for one in won) == RUNS
    assert sum(one["advanced"] for one in won) <= RUNS, "an answer in between queues the run by itself"
    with RunStore(shared_first) as store:
        for number in range(RUNS):
            run = store.get(f"run{number}")
            assert (run.status, run.segment) == ("queued", 2)
            said = [message.text for message in store.messages(run.id)]
            assert said[0] == "p"
            assert said[1] == said[2] == run.spent["by"], "both from one of them"
            assert len(said) <= 4
            kept = [event["by"] for _, event in store.events(run.id)]
            assert len(kept) == len(names) + 1


def test_the_tables_are_made_once_by_many_who_start_together(empty_database: str) -> None:
    many = 6
    start = threading.Barrier(many)

    def prepare(number: int) -> str:
        with RunStore(empty_database) as store:
            start.wait(30)
            store.prepare()
            return store.create(NewRun(id=f"run{number}")).id

    with ThreadPoolExecutor(many) as pool:
        assert list(pool.map(prepare, range(many))) == [f"run{number}" for number in range(many)]
    with RunStore(empty_database) as store:
        assert store.counts() == {"queued": many}


@pytest.mark.slow
def test_the_engines_tables_are_made_once_by_many_who_start_together(empty_database: str) -> None:
    many = 6
    start = threading.Barrier(many)

    def prepare(number: int) -> int:
        with RunStore(empty_database) as store, closing(Starter(store)) as starter:
            start.wait(30)
            return len(starter.client.list_workflows())

    with ThreadPoolExecutor(many) as pool:
        assert list(pool.map(prepare, range(many))) == [0] * many


def test_the_engines_tables_are_made_as_a_whole_or_not_at_all(
    empty_sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken, RunStore(empty_sqlite) as store, closing(Starter(store)) as starter:
        broken.setattr(_sys_db_sqlite, "sqlite_migrations", [*sqlite_migrations[:3], "NONSENSE"])
        with pytest.raises(StoreError, match="syntax error"):
            starter.prepare_engine()
        assert not any("workflow" in name for name in sa.inspect(store.engine).get_table_names())
    with RunStore(empty_sqlite) as store, closing(Starter(store)) as starter:
        assert starter.client.list_workflows() == []


def test_of_two_answers_at_once_one_is_taken(store: RunStore) -> None:
    store.create(NewRun(id="one"))
    for number in range(10):
        store.ask(Question(id=f"q{number}", run="one", call="c", tool="t", digest="d", request={}))

    def answer(name: str) -> list[bool]:
        return [store.answer(f"q{number}", {"by": name}, by=name) for number in range(10)]

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(answer, "abcd"))
    assert [sum(one) for one in zip(*taken, strict=True)] == [1] * 10
    for one in store.questions("one", open=False):
        assert one.answer == {"by": one.by}
        assert taken["abcd".index(one.by)][int(one.id[1:])]


def test_an_answer_and_the_end_of_its_segment_meet_in_any_order(store: RunStore) -> None:
    for number in range(30):
        run, question = f"run{number}", f"q{number}"
        store.create(NewRun(id=run))
        store.begin(run, 1, "w")
        store.ask(Question(id=question, run=run, call="c", tool="t", digest="d", request={}))
        start = threading.Barrier(2)

        def close(run: str = run, question: str = question, start: threading.Barrier = start) -> None:
            start.wait()
            waits = (Wait(kind="approval", detail={"question": question}),)
            store.close_segment(run, 1, Outcome(status="waiting", messages=(), spent={}, waits=waits))

        thread = threading.Thread(target=close)
        thread.start()
        start.wait()
        assert store.answer(question, {}, by="me")
        dies = number % 2 == 0
        if not dies:
            store.advance(run)
        thread.join()
        due = {one.id for one in store.due(store.now() + 10)}
        assert store.get(run).status == "queued" or (dies and run in due)


def test_who_follows_events_misses_none_though_many_write(store: RunStore) -> None:
    store.create(NewRun(id="one"))
    store.create(NewRun(id="two"))
    writers, each = 4, 25

    def write(writer: int) -> None:
        for number in range(each):
            store.add_events("one", [(None, {"id": f"{writer}.{number}"}), (f"{writer}.{number}", {"id": "k"})])
            store.add_events("two", [(None, {})])

    seen: list[str] = []
    with ThreadPoolExecutor(writers) as pool:
        under_way = [pool.submit(write, writer) for writer in range(writers)]
        last, until = 0, time.monotonic() + 50
        while len(seen) < 2 * writers * each and time.monotonic() < until:
            done = all(one.done() for one in under_way)
            for number, event in store.events("one", after=last, limit=7):
                assert number > last
                last = number
                seen.append(event["id"])
            if done and not store.events("one", after=last):
                break
        for one in under_way:
            one.result()
    assert len(seen) == 2 * writers * each
    assert len(set(seen)) == writers * each + 1


def test_a_queued_run_is_given_to_one_who_looks(store: RunStore) -> None:
    for number in range(40):
        store.create(NewRun(id=f"run{number}"))
    back(store, 60)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: [run.id for run in store.claim_stranded(limit=40)], range(4)))
    looked = [name for one in found for name in one]
    assert len(looked) == len(set(looked)) == 40
    assert store.claim_stranded() == []
    back(store, 20)
    assert store.claim_stranded() == [], "the longer it waits, the rarer it is looked at"
    back(store, 20)
    assert len(store.claim_stranded()) == 40


@pytest.mark.slow
def test_a_long_history_makes_nothing_slower(store: RunStore) -> None:
    for name in ("short", "long"):
        store.create(NewRun(id=name, messages=[Message("user", "p")]))
    store.begin("long", 1, "w")
    said = tuple(Message("assistant", f"message {number}") for number in range(10_000))
    store.close_segment("long", 1, Outcome(status="waiting", messages=said, spent={}))
    store.advance("long")
    store.begin("short", 1, "w")
    store.close_segment("short", 1, Outcome(status="continue", messages=(), spent={}))
    times: dict[str, list[float]] = {"short": [], "long": []}
    for segment in range(2, 42):
        for name, taken in times.items():
            begun = time.perf_counter()
            store.begin(name, segment, "w")
            store.close_segment(name, segment, Outcome(status="waiting", messages=said[:2], spent={}))
            store.advance(name, say=[Message("user", "x")])
            taken.append(time.perf_counter() - begun)
    middle = {name: sorted(taken)[len(taken) // 2] for name, taken in times.items()}
    assert middle["long"] < 3 * middle["short"], middle
    assert len(store.messages("long")) == 10_001 + 40 * 3


def test_what_is_asked_often_finds_an_index(store: RunStore) -> None:
    store.create(NewRun(id="one"))
    asked: list[tuple[str, Any]] = []

    def note(_c: object, _k: object, statement: str, parameters: Any, *_: object) -> None:
        asked.append((statement, parameters))

    sa.event.listen(store.engine, "before_cursor_execute", note)
    store.due(1.0)
    store.claim_stranded()
    store.questions()
    store.questions("one")
    store.events("one")
    store.messages("one", 2)
    store.request_cancel("one")
    store.find("on")
    store.always("one")
    store.close_segment("one", 1, Outcome(status="continue", messages=(), spent={}))
    store.list()
    store.list(RunFilter(status="queued"))
    store.list(RunFilter(tenant="t"))
    sa.event.remove(store.engine, "before_cursor_execute", note)
    queries = [one for one in asked if one[0].startswith("SELECT") and "FROM forge_" in one[0]]
    assert len(queries) > 10
    with store.engine.begin() as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        if not is_sqlite:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # which is right for a small table
            connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        for statement, parameters in queries:
            plan = connection.exec_driver_sql(f"EXPLAIN {'QUERY PLAN ' if is_sqlite else ''}{statement}", parameters)
            words = "\n".join(str(row) for row in plan)
            assert "INDEX" in words.upper(), f"{statement}\n{words}"
            assert "SEQ SCAN" not in words.upper(), f"{statement}\n{words}"


def back(store: RunStore, seconds: float) -> None:
    """As if all of it had happened so many seconds ago."""
    with store.engine.begin() as connection:
        connection.execute(sa.update(runs).values(updated=runs.c.updated - seconds, look=runs.c.look - seconds))
