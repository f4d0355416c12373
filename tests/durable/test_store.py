"""The life of a run in the store, in SQLite and in Postgres alike."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.core.messages import Message, ToolCall, Usage
from forge.core.result import Attachment
from forge.durable.store import RunStore, StoreError
from forge.durable.store.find import RunFilter
from forge.durable.store.rows import NewRun, Outcome, Question, RunInfo
from forge.durable.store.tables import background, questions
from forge.durable.store.waits import Wait


def test_a_run_is_queued_for_its_first_segment_which_sees_what_was_said(store: RunStore) -> None:
    run = store.create(
        NewRun(
            id="one",
            agent="helper",
            session="s",
            tenant="t",
            queue="q",
            priority=3,
            version="v1",
            prompt="Hello.",
            messages=[Message("user", "before"), Message("user", "Hello.")],
            scope={"channel": "cli"},
            carrier={"traceparent": "00-1"},
            parent="",
        )
    )
    assert (run.status, run.segment, run.waits, run.result, run.cancelling) == ("queued", 1, (), None, False)
    assert (run.agent, run.session, run.tenant, run.queue, run.priority) == ("helper", "s", "t", "q", 3)
    assert (run.version, run.prompt, run.scope, run.carrier) == (
        "v1",
        "Hello.",
        {"channel": "cli"},
        {"traceparent": "00-1"},
    )
    assert run.created == run.updated > 1_000_000_000
    assert store.get("one") == run
    assert texts(store.messages("one", 1)) == ["before", "Hello."]


def test_the_same_id_is_one_run(store: RunStore) -> None:
    first = made(store, "one", "Hello.")
    assert made(store, "one", "Hello.") == first
    assert texts(store.messages("one")) == ["Hello."]
    with pytest.raises(StoreError, match="already exists with another prompt"):
        made(store, "one", "Something else.")


def test_a_conversation_is_given_back_as_it_was(store: RunStore) -> None:
    said = [
        Message("user", "look", attachments=(Attachment("image/png", b"\0\xff", "a.png"),)),
        Message(
            "assistant",
            "a \0 and 🙂",
            (ToolCall("read", {"path": "x\0"}, "c1"), ToolCall("odd", "{not json", "c2", "mcp")),
            finish="calls",
            usage=Usage(1, 2, 3),
            extra={"thinking": ["\0", 2**70]},
        ),
        Message("tool", "", call_id="c1"),
    ]
    store.create(NewRun(id="one", messages=said))
    assert store.messages("one") == said


def test_each_segment_sees_what_was_said_before_it(store: RunStore) -> None:
    made(store, "one", "a")
    assert store.begin("one", 1, "w1")
    run = store.close_segment("one", 1, ended("continue", "b", "c", turns=2))
    assert (run.status, run.segment, run.spent) == ("queued", 2, {"turns": 2})
    assert store.begin("one", 2, "w2")
    assert store.get("one").worker == "w2"
    assert store.close_segment("one", 2, ended("finished", "d", result={"text": "d"})).result == {"text": "d"}
    again = store.advance("one", say=[Message("user", "e"), Message("user", "f")])
    assert again is not None
    assert (again.status, again.segment, again.result) == ("queued", 3, None)
    assert texts(store.messages("one", 1)) == ["a"]
    assert texts(store.messages("one", 2)) == ["a", "b", "c"]
    assert texts(store.messages("one", 3)) == ["a", "b", "c", "d", "e", "f"]
    assert texts(store.messages("one")) == ["a", "b", "c", "d", "e", "f"]


def test_a_segment_is_closed_once_however_late_the_second_time(store: RunStore) -> None:
    made(store, "one", "a")
    store.begin("one", 1, "w")
    first = store.close_segment("one", 1, ended("waiting", "b", waits=(Wait(kind="question"),)))
    assert store.close_segment("one", 1, ended("failed", "other")) == first
    store.advance("one")
    now = store.get("one")
    assert store.close_segment("one", 1, ended("failed", "other")) == now
    assert store.close_segment("one", 3, ended("failed", "other")) == now, "nor one that has not begun"
    assert texts(store.messages("one")) == ["a", "b"]


def test_only_the_current_segment_begins(store: RunStore) -> None:
    made(store, "one")
    assert not store.begin("one", 2, "w")
    assert store.begin("one", 1, "w")
    assert store.begin("one", 1, "another"), "as a replay does"
    store.close_segment("one", 1, ended("finished"))
    assert not store.begin("one", 1, "w")
    assert not store.begin("nothing", 1, "w")


def test_what_waits_or_is_over_goes_on_once(store: RunStore) -> None:
    for status in ("waiting", "finished", "failed"):
        made(store, status)
        store.begin(status, 1, "w")
        assert store.advance(status) is None, "it is running"
        store.close_segment(status, 1, ended(status))
        assert store.advance(status, from_segment=7) is None
        assert store.advance(status, from_segment=1) is not None
        assert store.advance(status) is None, "it is queued"


def test_a_cancelled_run_stays_so_unless_it_is_revived(store: RunStore) -> None:
    made(store, "one")
    cancelled = store.request_cancel("one")
    assert cancelled.status == "cancelled"
    assert cancelled.result is not None
    assert cancelled.result["reason"] == "cancelled"
    assert store.request_cancel("one") == cancelled
    assert not store.begin("one", 1, "w")
    assert store.advance("one") is None
    revived = store.advance("one", revive=True)
    assert revived is not None
    assert (revived.status, revived.segment) == ("queued", 2)


def test_a_running_one_is_marked_and_cancelled_when_its_segment_ends(store: RunStore) -> None:
    for ending in ("waiting", "continue", "cancelled"):
        made(store, ending)
        store.begin(ending, 1, "w")
        assert store.request_cancel(ending).cancelling
        assert ending in store.find_called(["waiting", "continue", "cancelled", "nothing"]).cancelled
        run = store.close_segment(ending, 1, ended(ending, "said"))
        assert (run.status, run.cancelling, run.waits) == ("cancelled", False, ())
        assert texts(store.messages(ending))[-1] == "said"
        assert ending in store.find_called([ending]).cancelled  # what it left under way is to be stopped, too
    made(store, "other")
    assert store.find_called(["other"]) == store.find_called([]) == (frozenset(), frozenset())
    store.send("other", "hello")
    assert store.find_called(["other", "waiting"]) == (frozenset({"waiting"}), frozenset({"other"}))


def test_a_cancelled_run_has_no_background_work_that_is_told_of_later(store: RunStore) -> None:
    for name in ("stopped", "goes-on"):
        made(store, name)
        store.begin(name, 1, "w")
        left = Outcome(status="waiting", messages=(), spent={}, waits=(Wait(kind="background"),), held="w")
        store.close_segment(name, 1, left)
    store.request_cancel("stopped")
    held = store.database.read(lambda connection: connection.execute(sa.select(background.c.run)).scalars().all())
    assert held == ["goes-on"]


def test_one_that_finishes_before_it_is_stopped_has_finished(store: RunStore) -> None:
    made(store, "one")
    store.begin("one", 1, "w")
    store.request_cancel("one")
    assert store.close_segment("one", 1, ended("finished", result={"text": "done"})).status == "finished"


def test_runs_that_a_run_started_are_cancelled_with_it(store: RunStore) -> None:
    made(store, "one")
    for child, parent in (("one-a", "one"), ("one-b", "one"), ("one-a-a", "one-a"), ("other", "")):
        store.create(NewRun(id=child, parent=parent))
    store.begin("one-b", 1, "w")
    store.request_cancel("one")
    found = {run.id: (run.status, run.cancelling) for run in store.list()}
    assert found == {
        "one": ("cancelled", False),
        "one-a": ("cancelled", False),
        "one-a-a": ("cancelled", False),
        "one-b": ("running", True),
        "other": ("queued", False),
    }


def test_a_beginning_is_enough_to_find_a_run(store: RunStore) -> None:
    for name in ("abc1", "abc2", "xyz", "Xyz2"):
        made(store, name)
    store.create(NewRun(id="xyz-child", parent="xyz"))
    assert store.find("abc1").id == "abc1"
    assert store.find("xy").id == "xyz"
    assert store.find("X").id == "Xyz2"
    assert store.find("xyz-").id == "xyz-child"
    with pytest.raises(StoreError, match='several run ids begin with "abc": abc1, abc2'):
        store.find("abc")
    with pytest.raises(StoreError, match='there is no run "abc3"') as caught:
        store.find("abc3")
    assert caught.value.kind is ErrorKind.NOT_FOUND
    assert "abc1" in caught.value.suggestion


def test_for_programs_an_id_is_the_whole_of_it(store: RunStore) -> None:
    """Else what is meant for a run that is gone reaches another, whose id begins alike."""
    made(store, "invoice-17")
    store.begin("invoice-17", 1, "w")
    store.ask(question("q1", "invoice-17"))
    uses: list[Any] = [
        store.get,
        store.request_cancel,
        store.delete,
        store.advance,
        store.questions,
        store.files,
        lambda run: store.file(run, "a"),
        lambda run: store.put_file(run, "a", b"data"),
        lambda run: store.set_version(run, "2"),
        lambda run: store.set_scope(run, {}),
        lambda run: store.ask(question("q2", run)),
        lambda run: store.add_events(run, [(None, {})]),
        lambda run: store.close_segment(run, 1, ended("finished")),
    ]
    before = store.get("invoice-17")
    for use in uses:
        with pytest.raises(StoreError, match='there is no run "invoice-1"') as caught:
            use("invoice-1")
        assert caught.value.suggestion == "Did you mean invoice-17?"
    assert store.messages("invoice-1") == []
    assert store.events("invoice-1") == []
    assert store.get("invoice-17") == before
    assert store.request_cancel("invoice-17").cancelling


def test_a_hostile_id_is_not_found_and_not_made(store: RunStore) -> None:
    made(store, "abcd")
    for name in ("", "%", "_", "abc%", "a\0b", "\ud800", "a'; DROP TABLE forge_runs;--", "a" * 5_000, "🙂"):
        for call in (store.get, store.request_cancel, store.delete, store.advance, store.files):
            with pytest.raises(StoreError) as caught:
                call(name)
            assert caught.value.kind is ErrorKind.NOT_FOUND
        with pytest.raises(StoreError, match="cannot be the id of a run"):
            made(store, name)
        assert store.messages(name) == []
        assert store.events(name) == []
        assert not store.begin(name, 1, "w")
        assert not store.find_called([name]).cancelled
        with pytest.raises(StoreError, match="no question"):
            store.question(name)


HOSTILE = "NUL \0, lone \ud800, \x01 first, 'quote\" \\ %s :name 🙂 \u202e"


def test_hostile_text_comes_back_as_it_was(store: RunStore) -> None:
    for number, text in enumerate([HOSTILE, f"\x01{HOSTILE}", "\0", "\x01", "\ud800" * 255, "🙂" * 253]):
        name, asked = f"run{number}", f"q{number}"
        named = text.replace("\0", "").replace("\ud800", "").join("nn")  # names have none of the two
        run = store.create(NewRun(id=name, agent=named, session=named, tenant=named, version=named, prompt=text))
        assert (run.agent, run.session, run.tenant, run.version, run.prompt) == (*(named,) * 4, text)
        for wanted in (RunFilter(agent=named), RunFilter(session=named), RunFilter(tenant=named)):
            assert run in store.list(wanted)
        store.begin(name, 1, text)
        assert store.get(name).worker == text
        store.ask(question(asked, name, call=text, tool=text))
        assert store.answer(asked, {"kind": "no"}, by=text)
        assert (store.question(asked).call, store.question(asked).by) == (text, text)


def test_what_is_said_may_be_long_and_names_may_not(store: RunStore) -> None:
    assert made(store, "one", "🙂" * 1_000_000).prompt == "🙂" * 1_000_000
    store.add_events("one", [("k" * 100_000, {}), ("k" * 100_000, {}), ("k" * 100_001, {})])
    assert len(store.events("one")) == 2
    long: dict[str, Any] = dict.fromkeys(("agent", "session", "tenant", "queue", "version", "parent"), "x" * 256)
    for name, value in long.items():
        with pytest.raises(StoreError, match=f"the {name} of run two has 256 characters"):
            store.create(NewRun(id="two", **{name: value}))
    with pytest.raises(StoreError, match="id of a question"):
        store.ask(question("q" * 256, "one"))


def test_the_newest_runs_come_first(store: RunStore) -> None:
    for number in range(5):
        store.create(NewRun(id=f"run{number}", tenant="even" if number % 2 == 0 else "odd", session="s", parent="p"))
    assert [run.id for run in store.list()] == ["run4", "run3", "run2", "run1", "run0"]
    assert [run.id for run in store.list(limit=2)] == ["run4", "run3"]
    assert [run.id for run in store.list(RunFilter(tenant="odd", session="s"))] == ["run3", "run1"]
    assert store.list(RunFilter(parent="")) == []
    store.begin("run1", 1, "w")
    assert [run.id for run in store.list(RunFilter(status="running"))] == ["run1"]
    assert [run.id for run in store.list(RunFilter(status=["running", "queued"], tenant="odd"))] == ["run3", "run1"]
    assert store.counts() == {"queued": 4, "running": 1}
    assert store.list(limit=-1) == []
    assert len(store.list(limit=10**30)) == 5


def test_a_question_is_asked_once_and_answered_once(store: RunStore) -> None:
    made(store, "one")
    asked = store.ask(question("q1", "one"))
    assert asked.asked > 1_000_000_000
    assert (asked.answer, asked.answered, asked.by) == (None, 0.0, "")
    assert store.ask(replace(question("q1", "one"), tool="another")) == asked
    store.ask(question("q2", "one"))
    assert [one.id for one in store.questions()] == [one.id for one in store.questions("one")] == ["q1", "q2"]
    assert store.answer("q1", {"kind": "once", "arguments": {"a": 1}}, by="me")
    assert not store.answer("q1", {"kind": "no"}, by="you")
    kept = store.ask(question("q1", "one"))
    assert (kept.answer, kept.by) == ({"kind": "once", "arguments": {"a": 1}}, "me")
    assert kept.answered >= kept.asked
    assert [one.id for one in store.questions("one")] == ["q2"]
    assert [one.id for one in store.questions("one", open=False)] == ["q1", "q2"]


def test_nobody_is_asked_for_a_run_that_is_over(store: RunStore) -> None:
    made(store, "one")
    store.ask(question("q", "one"))
    store.request_cancel("one")
    assert store.questions() == []
    with pytest.raises(StoreError, match="run one is cancelled"):
        store.answer("q", {"kind": "once"}, by="me")
    with pytest.raises(StoreError, match="there is no run"):
        store.ask(question("q2", "nothing"))


def test_an_answer_that_comes_before_the_segment_has_ended_is_not_lost(store: RunStore) -> None:
    made(store, "one")
    store.begin("one", 1, "w")
    store.ask(question("q", "one"))
    store.answer("q", {"kind": "once"}, by="me")
    assert store.advance("one") is None
    run = store.close_segment("one", 1, ended("waiting", waits=(approval("q"),)))
    assert (run.status, run.segment, run.waits) == ("queued", 2, ())


def test_an_answer_whose_giver_dies_is_due(store: RunStore) -> None:
    made(store, "one")
    store.begin("one", 1, "w")
    store.ask(question("q", "one"))
    run = store.close_segment("one", 1, ended("waiting", waits=(approval("q"), approval("q2"))))
    assert (run.status, run.waits) == ("waiting", (approval("q"), approval("q2")))
    assert store.due(store.now() + 1_000) == []
    store.answer("q", {"kind": "once"}, by="me")
    assert store.due(store.now()) == [], "it is the giver's to continue it"
    assert [one.id for one in store.due(store.now() + 10)] == ["one"]
    store.advance("one")
    assert store.due(store.now() + 10) == []


def test_a_run_that_waits_for_another_is_due_when_that_is_over(store: RunStore) -> None:
    made(store, "one")
    store.create(NewRun(id="child", parent="one"))
    store.begin("one", 1, "w")
    waits = (Wait(kind="run", detail={"run": "child"}),)
    assert store.close_segment("one", 1, ended("waiting", waits=waits)).status == "waiting"
    store.request_cancel("child")
    assert [one.id for one in store.due(store.now() + 10)] == ["one"]
    store.advance("one")
    store.begin("one", 2, "w")
    assert store.close_segment("one", 2, ended("waiting", waits=waits)).status == "queued", "it was over already"


def test_a_time_that_has_come_is_due(store: RunStore) -> None:
    for name, until in (("late", 300), ("soon", 100), ("odd", "never"), ("bad", float("nan"))):
        made(store, name)
        store.begin(name, 1, "w")
        waits = (Wait(kind="time", detail={"until": until}), Wait(kind="question"))
        store.close_segment(name, 1, ended("waiting", waits=waits))
    assert store.due(99) == []
    assert [run.id for run in store.due(100)] == ["soon"]
    assert [run.id for run in store.due(1_000)] == ["soon", "late"]
    assert [run.id for run in store.due(1_000, limit=1)] == ["soon"]


def test_what_is_queued_and_not_begun_is_looked_at_in_turn(store: RunStore) -> None:
    for number in range(5):
        made(store, f"run{number}")
    store.begin("run0", 1, "w")
    assert store.claim_stranded() == []
    first = store.claim_stranded(older=0, limit=3)
    second = store.claim_stranded(older=0, limit=3)
    assert {run.id for run in first} == {"run1", "run2", "run3"}
    assert "run4" in {run.id for run in second}, "a long queue is looked through in turn"
    assert all(isinstance(run, RunInfo) and run.status == "queued" for run in first)


def test_events_are_numbered_and_a_key_is_kept_once(store: RunStore) -> None:
    made(store, "one")
    made(store, "two")
    store.add_events("one", [])
    store.add_events("one", [("a", {"n": 1}), (None, {"n": 2}), ("a", {"n": 3}), (None, {"n": 2})])
    store.add_events("two", [("a", {"n": 4})])
    store.add_events("one", [("a", {"n": 5}), ("b", {"n": HOSTILE, "nan": float("nan")})])
    found = store.events("one")
    assert [event["n"] for _, event in found[:3]] == [1, 2, 2]
    assert found[3][1]["nan"] == "NaN"
    assert found[3][1]["n"].startswith("NUL \0")
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert store.events("one", after=numbers[1]) == found[2:]
    assert store.events("one", limit=2) == found[:2]
    assert store.events("one", after=10**30) == []
    assert store.events("one", after=-(10**30)) == found
    with pytest.raises(StoreError, match="there is no run"):
        store.add_events("nothing", [(None, {})])


def test_files_are_kept_and_replaced(store: RunStore) -> None:
    made(store, "one")
    store.put_file("one", "b/ü\0", b"\0\xff")
    store.put_file("one", "a", b"")
    store.put_file("one", "b/ü\0", b"new")
    assert store.files("one") == [("a", 0), ("b/ü\0", 3)] or store.files("one") == [("b/ü\0", 3), ("a", 0)]
    assert store.file("one", "b/ü\0") == b"new"
    with pytest.raises(StoreError, match="has no file"):
        store.file("one", "c")
    with pytest.raises(StoreError, match="there is no run"):
        store.put_file("nothing", "a", b"")
    with pytest.raises(StoreError, match="name of a file"):
        store.put_file("one", "", b"")


def test_a_file_may_be_large_but_not_too_large(store: RunStore) -> None:
    made(store, "one")
    most = 16 * 1024 * 1024
    store.put_file("one", "large", bytes(most))
    assert store.files("one") == [("large", most)]
    with pytest.raises(StoreError, match="may have 16777216 bytes, and has 16777217"):
        store.put_file("one", "larger", bytes(most + 1))


def test_only_what_is_over_is_deleted_and_nothing_of_it_stays(store: RunStore) -> None:
    made(store, "one", "a")
    store.create(NewRun(id="child", parent="one"))
    store.ask(question("q", "one"))
    store.add_events("one", [("k", {})])
    store.put_file("one", "f", b"x")
    with pytest.raises(StoreError, match="run one is queued"):
        store.delete("one")
    store.request_cancel("one")
    store.delete("one")
    assert store.list() == []
    made(store, "one", "b")
    assert texts(store.messages("one")) == ["b"]
    assert store.events("one") == []
    assert store.files("one") == []
    assert store.questions("one", open=False) == []


def test_a_run_is_not_deleted_while_one_that_it_started_goes_on(store: RunStore) -> None:
    made(store, "one")
    store.create(NewRun(id="child", parent="one"))
    store.begin("one", 1, "w")
    store.begin("child", 1, "w")
    store.close_segment("one", 1, ended("finished"))
    assert store.get("child").cancelling
    with pytest.raises(StoreError, match="run child is running"):
        store.delete("one")
    assert store.get("one").status == "finished", "all or nothing"


def test_runs_that_claim_to_have_started_each_other_do_no_harm(store: RunStore) -> None:
    for name, parent in (("a", "b"), ("b", "a"), ("c", "c")):
        store.create(NewRun(id=name, parent=parent))
        store.begin(name, 1, "w")
    store.request_cancel("a")
    store.request_cancel("c")
    assert store.find_called("abc").cancelled == {"a", "b", "c"}
    for name in "abc":
        store.close_segment(name, 1, ended("cancelled"))
    store.delete("a")
    store.delete("c")
    assert store.list() == []


def test_a_run_can_be_given_to_another_version(store: RunStore) -> None:
    store.create(NewRun(id="one", version="v1"))
    assert store.set_version("one", "v2").version == "v2"
    assert store.get("one").version == "v2"


def test_what_json_cannot_hold_is_described(store: RunStore) -> None:
    odd: dict[Any, Any] = {
        "nan": float("nan"),
        "object": object(),
        "deep": nested(500),
        "huge": 10**6000,
        3: {"set": {1}},
    }
    store.create(NewRun(id="one", scope=odd))
    store.begin("one", 1, "w")
    run = store.close_segment("one", 1, ended("failed", result=odd))
    assert run.result is not None
    assert (run.scope["nan"], run.result["nan"], run.result["3"]) == ("NaN", "NaN", {"set": [1]})
    assert store.get("one") == run


def test_a_priority_that_no_column_holds_is_refused(store: RunStore) -> None:
    bad: list[Any] = [2**31, -(2**63), 10**30, 5.0, 10.5, float("nan"), None, "high", True, [1]]
    for priority in bad:
        with pytest.raises(StoreError, match="priority"):
            store.create(NewRun(id="one", priority=priority))
    assert store.create(NewRun(id="one", priority=2**31 - 1)).priority == 2**31 - 1


BAD: dict[str, list[Any]] = {
    "id": [5, None, b"one", "", "a\0", "\ud800", "x" * 10_000, "a b"],
    "agent": [5, None, "", "a\0", "\ud800", "x" * 10_000],
    "queue": [5, None, "", "a\0", "\ud800", "x" * 10_000],
    "session": [5, None, "a\0", "\ud800", "x" * 10_000],
    "tenant": [5, None, ["a"], "a\0", "\ud800", "x" * 10_000],
    "version": [5, None, "a\0", "\ud800", "x" * 256],
    "parent": [5, None],
    "parent_call": [5, None],
    "prompt": [5, None, b"hello"],
    "scope": [5, None, "text", [1]],
    "carrier": [5, None],
    "messages": [
        5,
        None,
        "hello",
        b"hello",
        {"role": "user"},
        ["hello"],
        [Message("nobody", "x")],  # type: ignore[arg-type]
        [Message([], "x")],  # type: ignore[arg-type]
        [Message("user", 5)],  # type: ignore[arg-type]
        [Message("tool", "x", call_id=5)],  # type: ignore[arg-type]
        [Message("assistant", tool_calls=5)],  # type: ignore[arg-type]
        [Message("assistant", tool_calls=("pay",))],  # type: ignore[arg-type]
        [Message("assistant", tool_calls=(ToolCall(5, {}),))],  # type: ignore[arg-type]
        [Message("assistant", tool_calls=(ToolCall("pay", [1]),))],  # type: ignore[arg-type]
        [Message("user", "x", attachments=("file",))],  # type: ignore[arg-type]
        [Message("user", "x", extra=5)],  # type: ignore[arg-type]
    ],
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_stored_is_refused_before_a_transaction_begins(name: str, tmp_path: Path) -> None:
    store = RunStore(f"sqlite:///{tmp_path}/durable.db")  # there is none: asking it would say so
    for value in BAD[name]:
        with pytest.raises(StoreError) as caught:
            store.create(NewRun(**{"id": "one", name: value}))
        assert caught.value.kind is ErrorKind.VALIDATION, caught.value
        assert len(caught.value.message) < 300
        assert caught.value.suggestion
    lookups: list[Any] = [store.get, store.find, store.request_cancel, store.advance, store.delete]
    for lookup in lookups:
        with pytest.raises(StoreError, match="the id of a run is not a string: 5"):
            lookup(5)
    assert list(tmp_path.iterdir()) == []
    store.prepare()
    assert store.create(NewRun(id="one", messages=[Message("user", "x")], scope={"a": 1}, tenant="ü")).id == "one"
    store.close()


def made(store: RunStore, name: str, prompt: str = "Hello.") -> RunInfo:
    return store.create(NewRun(id=name, prompt=prompt, messages=[Message("user", prompt)]))


def ended(status: str, *said: str, turns: int = 1, waits: tuple[Wait, ...] = (), result=None) -> Outcome:
    messages = tuple(Message("assistant", text) for text in said)
    return Outcome(status=status, messages=messages, spent={"turns": turns}, waits=waits, result=result)  # type: ignore[arg-type]


def question(name: str, run: str, call: str = "c1", tool: str = "shell") -> Question:
    return Question(id=name, run=run, call=call, tool=tool, digest="d", request={"arguments": {"command": "ls \0"}})


def approval(name: str) -> Wait:
    return Wait(kind="approval", call="c1", detail={"question": name})


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_only_the_worker_of_a_running_segment_stores_its_questions(store: RunStore) -> None:
    made(store, "r")
    store.begin("r", 1, "w")
    assert store.ask(question("q1", "r"), 1, "w").answer is None
    for segment, worker in ((2, "w"), (1, "another")):
        with pytest.raises(StoreError, match="another worker runs it"):
            store.ask(question("q2", "r"), segment, worker)
    store.close_segment("r", 1, Outcome(status="finished", messages=(), spent={}, result={"text": "done"}))
    with pytest.raises(StoreError, match="the run is finished"):
        store.ask(question("q2", "r"), 1, "w")
    assert [one.id for one in store.questions("r", open=False)] == ["q1"]


def test_a_hundred_thousand_open_questions_are_counted_and_read_in_pages(store: RunStore) -> None:
    made(store, "r")
    store.begin("r", 1, "w")
    store.ask(question("first", "r"))
    _multiply_questions(store, 100_000)
    begun = time.monotonic()
    assert store.count_questions() == 100_001
    page = store.questions(limit=500)
    following = store.questions(limit=500, after=page[-1].id)
    assert time.monotonic() - begun < 5  # to read them all takes ten times as long
    assert (page[0].id, len(page), len(following)) == ("first", 500, 500)
    assert not {one.id for one in page} & {one.id for one in following}


def _multiply_questions(store: RunStore, count: int) -> None:
    """Copies the only question."""
    names = [column.name for column in questions.c if column.name not in ("id", "asked")]
    columns = ", ".join(f'"{name}"' for name in names)
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
    copy = (
        f"INSERT INTO {questions.name} (id, asked, {columns}) {numbers}"
        f"SELECT 'q' || n.i, asked + n.i / 7, {columns} FROM {questions.name} CROSS JOIN n"
    )
    if store.database.is_sqlite:
        copy = f"{numbers}INSERT INTO {questions.name} (id, asked, {columns}) " + copy.partition(numbers)[2]
    store.database.write(lambda connection: connection.execute(sa.text(copy)))


def test_a_partial_index_has_its_condition_in_both_databases(empty_database: str) -> None:
    with RunStore(empty_database) as store:
        store.prepare()
        tables = ("forge_runs", "forge_segments", "forge_questions")
        found = [one for table in tables for one in sa.inspect(store.engine).get_indexes(table)]
        partial = {
            one["name"]: str(condition)
            for one in found
            for key, condition in one.get("dialect_options", {}).items()
            if key.endswith("_where")
        }
    assert "'queued'" in partial["forge_segments_queued"]
    assert "NULL" in partial["forge_questions_open"].upper()
    assert "parent" in partial["forge_runs_parent"]
    assert "forge_runs_created" in {one["name"] for one in found}.difference(partial)
