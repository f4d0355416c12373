"""The index of the log of events: the same answers with and without, whatever happens to it or to the log."""

from __future__ import annotations

import gzip
import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from forge.project.audit import log as audit
from forge.project.audit import log_index as audit_index
from forge.project.audit.log import DAMAGED, Log, index_beside
from forge.project.audit.log_events import EventFilter, read_line
from forge.project.audit.log_index import EventIndex
from forge.workspace.state import mark_own

NOW = 1_700_000_000.0


def event(number: int, **more: Any) -> dict[str, Any]:
    dice = random.Random(number)
    kind = dice.choice(["run_started", "run_finished", "tool_call_start", "tool_call_end", "permission_answered"])
    tool = dice.choice(["bash", "file_read", "file_write", "web_fetch"])
    made: dict[str, Any] = {
        "event": kind,
        "ts": NOW + number + dice.uniform(-3, 3),
        "seq": number,
        "session": dice.choice(["talk", "other", "nightly-1", 'ü "x"']),
        "agent": dice.choice(["main", "helper"]),
    }
    if kind.startswith("tool"):
        made["call"] = {"id": f"c{number}", "name": tool, "arguments": "x" * dice.randrange(300)}
    if kind == "tool_call_end":
        wrong = dice.choice(["", "", "", "permission_error", "system_error"])
        made |= {"result": {"is_error": bool(wrong), **({"error_type": wrong} if wrong else {})}, "seconds": number % 7}
    if kind == "permission_answered":
        made["answer"] = dice.choice(["yes", "no"])
    if kind == "run_finished":
        made["reason"] = dice.choice(["answer", "error", "max_turns"])
    return made | more


def lines(first: int, last: int) -> bytes:
    return b"".join(json.dumps(event(number), ensure_ascii=False).encode() + b"\n" for number in range(first, last))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log in three files, one of them packed, with what crashes leave."""
    path = tmp_path / "audit.ndjson"
    torn = lines(1, 2)[:50]
    for name, content, age in (
        ("audit.ndjson.2.gz", gzip.compress(lines(0, 100)), 20),
        ("audit.ndjson.1", lines(100, 200) + torn + lines(200, 250) + b"nonsense\n\n", 10),
        ("audit.ndjson", lines(250, 400) + torn, 0),
    ):
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (NOW + 400 - age, NOW + 400 - age))
    return path


@pytest.fixture
def index(tmp_path: Path) -> EventIndex:
    return EventIndex(tmp_path / "index.db")


def answers(log: Log, last: int) -> list[Any]:
    wanted = log.wanted
    found: list[Any] = [list(log), log.unreadable]
    found += [Log(log.path, wanted, index=log._index).last(last)]
    return [*found, Log(log.path, wanted, index=log._index).summary().to_dict()]


WANTED = [
    EventFilter(),
    EventFilter(sessions=("talk",)),
    EventFilter(sessions=("n*", "ü*")),
    EventFilter(tools=("file_*",)),
    EventFilter(tools=("bash",), sessions=("other",)),
    EventFilter(agents=("helper",), events=("tool_*",)),
    EventFilter(since=NOW + 390),
    EventFilter(since=NOW + 150, until=NOW + 260),
    EventFilter(until=NOW + 20),
    EventFilter(denied=True),
    EventFilter(errors=True, since=NOW + 100),
    EventFilter(denied=True, errors=True, sessions=("talk",)),
    EventFilter(events=("run_finished",)),
    EventFilter(sessions=("nobody",)),
    EventFilter(tools=("[!f]*",)),
]


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_with_and_without_it_the_answers_are_the_same(log: Path, index: EventIndex, wanted: EventFilter) -> None:
    without = answers(Log(log, wanted), 7)
    assert without[0] or wanted.sessions == ("nobody",)
    for _ in range(2):  # built, and used
        assert answers(Log(log, wanted, index=index), 7) == without
    with log.open("ab") as stream:
        stream.write(b"\n" + lines(400, 450))
    assert answers(Log(log, wanted, index=index), 7) == answers(Log(log, wanted), 7)


def test_pages_and_transactions_follow_each_other(log: Path, index: EventIndex, monkeypatch: Any) -> None:
    monkeypatch.setattr(audit_index, "ROOM", 30)
    for module in (audit_index, audit):
        monkeypatch.setattr(module, "PAGE", 20)
    wanted = EventFilter(since=NOW + 1)
    assert list(Log(log, wanted, index=index)) == list(Log(log, wanted))


def test_only_what_is_asked_for_is_read(log: Path, index: EventIndex, monkeypatch: Any) -> None:
    read: list[bytes] = []

    def counted(line: bytes) -> Any:
        read.append(line)
        return read_line(line)

    list(Log(log, EventFilter(denied=True), index=index))
    monkeypatch.setattr(audit, "read_line", counted)
    monkeypatch.setattr(audit_index, "read_line", counted)
    found = list(Log(log, EventFilter(denied=True), index=index))
    assert len(read) <= len(found) + 1  # the torn line at the end
    read.clear()
    assert len(Log(log, EventFilter(events=("run_started",)), index=index).last(3)) == 3
    assert len(read) <= 4
    read.clear()
    assert Log(log, index=index).summary().total.calls > 20
    assert len(read) <= 1


def test_a_deleted_one_is_built_again_by_itself(log: Path, index: EventIndex) -> None:
    wanted = EventFilter(denied=True)
    expected = list(Log(log, wanted))
    assert list(Log(log, wanted, index=index)) == expected
    for path in index.path.parent.glob("index.db*"):  # type: ignore[union-attr]
        path.unlink()
    again = Log(log, wanted, index=index)
    assert list(again) == expected
    assert again.notes == []
    assert index.path is not None
    assert index.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"nonsense" * 1_000, b"SQLite format 3\0" + b"\xff" * 5_000])
def test_a_damaged_one_is_built_again_and_that_is_said(log: Path, tmp_path: Path, damage: bytes) -> None:
    path, wanted = tmp_path / "index.db", EventFilter(denied=True)
    expected = answers(Log(log, wanted), 5)
    with closing(EventIndex(path)) as first:
        assert list(Log(log, wanted, index=first)) == expected[0]
    path.write_bytes(damage)
    found = Log(log, wanted, index=EventIndex(path))
    assert list(found) == expected[0]
    assert found.notes == [DAMAGED]
    again = Log(log, wanted, index=EventIndex(path))
    assert answers(again, 5) == expected
    assert again.notes == []
    assert not list(tmp_path.glob("index.db.corrupt*"))


@pytest.mark.parametrize(
    "change", ["UPDATE audit_events SET place = place + 1 WHERE place > 500", "DROP TABLE audit_events"]
)
def test_one_that_says_something_wrong_is_not_believed(log: Path, index: EventIndex, change: str) -> None:
    wanted = EventFilter(sessions=("talk",))
    list(Log(log, wanted, index=index))
    index.close()
    assert index.path is not None
    with closing(sqlite3.connect(index.path)) as connection, connection:
        connection.execute(change)
    expected = list(Log(log, wanted))
    for _ in range(2):
        found = Log(log, wanted, index=index)
        assert list(found) == expected
    assert found.notes == []


def test_what_is_pruned_is_forgotten(log: Path, index: EventIndex) -> None:
    def indexed() -> int:
        index.close()
        assert index.path is not None
        with closing(sqlite3.connect(index.path)) as connection:
            count: int = connection.execute("SELECT count(*) FROM audit_events").fetchone()[0]
            return count

    wanted = EventFilter(sessions=("*",))
    assert len(list(Log(log, wanted, index=index))) == indexed() == 400
    log.rename(f"{log}.3")
    log.write_bytes(lines(400, 410))
    assert len(list(Log(log, wanted, index=index))) == indexed() == 410
    Path(f"{log}.1").unlink()
    Path(f"{log}.2.gz").unlink()
    assert len(list(Log(log, wanted, index=index))) == indexed() == 160


def test_a_log_that_was_emptied_and_grew_again_is_another(log: Path, index: EventIndex) -> None:
    wanted = EventFilter(sessions=("*",))
    list(Log(log, wanted, index=index))
    log.write_bytes(lines(1_000, 1_400))  # in place, and longer than before
    assert list(Log(log, wanted, index=index)) == list(Log(log, wanted))


def test_while_others_hold_it_the_log_is_read_without(log: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(audit_index, "PATIENCE", 0.0)
    index, wanted = EventIndex(tmp_path / "index.db"), EventFilter(denied=True)
    expected = list(Log(log, wanted))
    assert list(Log(log, wanted, index=index)) == expected
    with log.open("ab") as stream:
        stream.write(b"\n")
    with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        found = Log(log, wanted, index=index)
        assert list(found) == expected
        assert found.notes == []


def test_it_is_kept_only_where_the_state_was_made_here(tmp_path: Path) -> None:
    """One that came with a clone could hide what happened."""
    (tmp_path / "audit.ndjson").write_bytes(lines(0, 10))
    assert index_beside(tmp_path / "audit.ndjson") is None
    mark_own(tmp_path)
    assert index_beside(tmp_path / "audit.ndjson") is not None
    assert index_beside(tmp_path / "other.ndjson") is None
