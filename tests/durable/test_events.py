"""Events that are written together are one row, which is packed; each is stored once, whoever writes and whenever."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from forge.durable.store import NewRun, RunStore, StoreError, find
from forge.durable.store import events as module
from forge.durable.store.events import (
    EventKeys,
    NewEvent,
    find_events,
    newest_event,
    pack,
    read_event,
    read_events,
    read_last_events,
    span_of_events,
    unpack,
)
from forge.durable.store.tables import events

HOSTILE = "NUL \0, lone \ud800, \x01 first, 'quote\" \\ %s :name 🙂 \u202e"


def named(*keys: str | None) -> list[NewEvent]:
    return [(key, {"event": "text", "n": number}) for number, key in enumerate(keys)]


def rows(store: RunStore) -> list[tuple[Any, ...]]:
    query = sa.select(events.c.run, events.c.segment, events.c.size).order_by(events.c.number)
    with store.engine.begin() as connection:
        return [tuple(row) for row in connection.execute(query)]


def told(store: RunStore, run: str = "one") -> list[Any]:
    return [event.get("n") for _, event in store.events(run)]


@pytest.mark.parametrize(
    "lines",
    [
        [(None, "{}")],
        [("key", '{"a":"ü\U0001f600"}'), (None, "{}"), ("tab\there\n", '{"text":"\\t\\n"}')],
        [("\ud800", "{}"), ("\0", "{}"), ("", "{}")],
        [(f"1:tool_call_end:{n}::", json.dumps({"n": n})) for n in range(1_000)],
    ],
)
def test_what_is_packed_comes_back(lines: list[tuple[str | None, str]]) -> None:
    assert list(unpack(pack(lines))) == lines


def test_one_event_alone_becomes_shorter_too() -> None:
    call = {"id": "call_1", "name": "file_read", "arguments": {"path": "a.py"}}
    event = {"event": "tool_call_start", "ts": 1794881690.11, "seq": 29, "session": "s", "agent": "main", "call": call}
    text = json.dumps(event, separators=(",", ":"))
    assert len(pack([("1:tool_call_start:call_1::", text)])) < len(text) / 2


def test_a_row_of_a_newer_format_is_refused() -> None:
    with pytest.raises(StoreError, match="packed by a newer Forge"):
        list(unpack(b"\x02anything"))


def test_events_that_are_written_together_are_one_row(store: RunStore) -> None:
    for run in ("one", "two"):
        store.create(NewRun(id=run))
    store.add_events_of({("one", 1): named("a", None, "b"), ("two", 3): named("a"), ("one", 2): named("a")})
    assert sorted(rows(store)) == [("one", 1, 3), ("one", 2, 1), ("two", 3, 1)]
    assert told(store) == [0, 1, 2, 0], "another segment may have the same key"


def test_many_and_large_events_are_several_rows(store: RunStore) -> None:
    store.create(NewRun(id="one"))
    store.add_events("one", [(None, {"n": number}) for number in range(2_500)])
    large = [(None, {"n": number, "text": "x" * 200_000}) for number in range(3)]
    store.add_events("one", large)
    assert [size for _, _, size in rows(store)] == [1_000, 1_000, 500, 1, 1, 1]
    assert told(store)[:1_000] == list(range(1_000))
    page, after = [], 0
    while found := store.events("one", after=after, limit=700):
        page += found
        after = found[-1][0]
    assert [event["n"] for _, event in page] == [*range(2_500), *range(3)]
    numbers = [number for number, _ in page]
    assert numbers == sorted(set(numbers))


def test_a_key_is_stored_once_by_whoever_comes_next(store: RunStore) -> None:
    store.create(NewRun(id="one"))
    store.add_events("one", named("a", "b", "b", None))
    with RunStore(store.url) as other:  # another worker, after a crash
        other.add_events("one", named("b", "c", None))
        store.add_events("one", named("c", "d"))  # the first one still runs
        other.add_events("one", named("d", "e"))
        store.add_events("one", named("a", "e", "f"))
    keys = [key for key, _ in lines(store)]
    assert [key for key in keys if key is not None] == ["a", "b", "c", "d", "e", "f"]
    assert keys.count(None) == 2


def test_a_write_that_fails_is_not_remembered(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(NewRun(id="one"))
    store.add_events("one", named("a"))
    real = find.insert_rows

    def then_fails(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        raise ValueError("just before the commit")

    monkeypatch.setattr(module, "insert_rows", then_fails)
    with pytest.raises(StoreError, match="just before"):
        store.add_events("one", named("b"))
    monkeypatch.setattr(module, "insert_rows", real)
    with RunStore(store.url) as other:  # SQLite gives it the number of the row that was not stored
        other.add_events("one", named("x"))
    store.add_events("one", named("b", "x"))
    assert [key for key, _ in lines(store)] == ["a", "x", "b"]


def test_the_keys_of_a_busy_run_are_read_once(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(NewRun(id="one"))
    store.add_events("one", named("a"))
    monkeypatch.setattr(module, "_read_keys", None)  # it would fail
    for number in range(10):
        store.add_events("one", named(f"k{number}", "a"))
    assert len(lines(store)) == 11


def test_only_some_runs_and_segments_are_remembered() -> None:
    keys = EventKeys()
    for number in range(3_000):
        run = f"run-{number}"
        keys.note(module.Added({}, {run: 0}, {run: 1}, {(run, 1): (set(), {"a"})}))
    assert keys.known(("run-0", 1), 1) is None
    assert keys.known(("run-2999", 1), 1) == {"a"}
    for segment in range(2, 10):
        added = module.Added(
            {}, {"run-2999": segment - 1}, {"run-2999": segment}, {("run-2999", segment): (set(), {"b"})}
        )
        keys.note(added)
    assert keys.known(("run-2999", 9), 9) == {"b"}
    assert keys.known(("run-2999", 1), 9) is None


def test_events_of_several_runs_are_read_row_by_row(store: RunStore) -> None:
    for run in ("one", "two"):
        store.create(NewRun(id=run))
    store.add_events("one", [("a", {"event": "old", "n": 1})])
    store.add_events("one", [(None, {"event": "old", "n": 2})])
    store.add_events("two", [("a", {"event": "old", "n": 3})])
    store.add_events("one", [("a", {"n": "twice"}), ("b", {"n": 4}), (None, {"n": HOSTILE})])
    store.add_events("two", [("b", {"event": "new", "n": 5})])
    found = store.events("one")
    assert [event["n"] for _, event in found[:3]] == [1, 2, 4]
    for place, (number, _) in enumerate(found):
        assert store.events("one", after=number) == found[place + 1 :]
        assert store.events("one", limit=place + 1) == found[: place + 1]
    everybody = store.read_events(lambda connection: read_events(connection, None, 0, 100))
    assert [json.loads(one.text)["n"] for one in everybody if "NUL" not in one.text] == [1, 2, 3, 4, 5]
    for one in everybody:
        assert store.read_events(partial(read_event, ids=[one.run], number=one.number)) == one
    assert store.read_events(lambda connection: read_event(connection, ["two"], found[0][0])) is None
    newest = store.read_events(newest_event)
    assert newest == (everybody[-1].number, everybody[-1].row)
    ids = ["one", "two"]
    span = store.read_events(lambda connection: span_of_events(connection, ids))
    assert span == (everybody[0].number, everybody[-1].number, len(everybody))
    for limit in range(8):
        tail = store.read_events(partial(read_last_events, ids=ids, limit=limit))
        assert tail == everybody[-limit:] if limit else tail == []
    old = store.read_events(lambda connection: find_events(connection, ['"event":"old"', "new"], 100, 3))
    assert [json.loads(one.text)["n"] for one in old] == [5, 3, 2]
    assert store.find_event("one", 1, "a") == {"event": "old", "n": 1}
    assert store.find_event("one", 1, "b") == {"n": 4}
    assert store.find_event("one", 2, "b") is None


def test_a_row_that_was_missing_is_read_whole(store: RunStore) -> None:
    store.create(NewRun(id="one"))
    for text in ("a", "b", "c"):
        store.add_events("one", [(None, {"n": f"{text}{number}"}) for number in range(3)])
    first, second, third = (row for row in range(1, 4))
    last = store.read_events(newest_event)[0]
    late = store.read_events(lambda connection: read_events(connection, None, last, 1, [second]))
    assert [json.loads(one.text)["n"] for one in late] == ["b0", "b1", "b2"]
    assert {one.row for one in late} == {second}
    assert (first, third) == (1, newest_row(store))


def lines(store: RunStore) -> list[tuple[str | None, str]]:
    with store.engine.begin() as connection:
        packed = connection.execute(sa.select(events.c.packed).order_by(events.c.number)).scalars().all()
    return [line for one in packed for line in unpack(one)]


def newest_row(store: RunStore) -> int:
    return store.read_events(newest_event)[1]
