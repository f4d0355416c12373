"""Those who only ask: they begin runs, see how far they are, answer, stop and continue them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from forge.agent.agent import Agent
from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.messages import Message, ToolCall
from forge.core.tool import tool
from forge.durable import pruning
from forge.durable.client import Runs
from forge.durable.rows import NewRun, Outcome, Question, RunInfo, Wait
from forge.durable.subject import Subject
from forge.durable.worker import Worker
from forge.permissions.answers import Answer
from forge.permissions.policy import rules
from forge.providers.scripted import Scripted
from forge.workspace.store import StoreError

PATIENCE = 60.0
REQUEST = {"tool": "write", "arguments": {"path": "a"}, "parts": [["write", "a"]], "editable": True, "remember": "r"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """On SQLite, shared by these tests: making a database takes a second."""
    with Runs(f"sqlite:///{tmp_path_factory.mktemp('client')}/durable.db") as made:
        yield made


@pytest.fixture
def everywhere(database):
    """On a database of each kind."""
    with Runs(database) as made:
        yield made


def ended(runs: Runs, run: RunInfo, status: Any = "finished", waits: tuple[Wait, ...] = (), **result: Any) -> RunInfo:
    """A worker's part: the run's segment is over."""
    assert runs.store.begin(run.id, run.segment, "w")
    said = {"text": "done", "reason": "answer", "turns": 1, "calls": 0, "usage": {}, "cost": None, "output": None}
    given = None if status == "waiting" else {**said, "error": None, **result}
    messages = (Message("assistant", "done"),)
    return runs.store.close_segment(
        run.id, run.segment, Outcome(status=status, messages=messages, spent={"turns": 1}, waits=waits, result=given)
    )


def asking(runs: Runs, run: RunInfo, *names: str, **request: Any) -> tuple[RunInfo, list[Question]]:
    """The run waits for these approvals, whose ids begin with these names."""
    asked = [
        Question(
            id=f"{name}-{run.id}", run=run.id, call=name, tool="write", digest=name, request={**REQUEST, **request}
        )
        for name in names
    ]
    waits = tuple(Wait(kind="approval", call=one.call, detail={"question": one.id}) for one in asked)
    kept = [runs.store.ask(one) for one in asked]
    return ended(runs, run, "waiting", waits), kept


def workflows(runs: Runs) -> dict[str, tuple[str, str]]:
    schema = "" if runs.store.database.is_sqlite else "dbos."
    query = sa.text(f"SELECT workflow_uuid, status, application_version FROM {schema}workflow_status")
    return {row[0]: (row[1], row[2]) for row in runs.store.database.read(lambda one: one.execute(query).all())}


def refused(call: Any, *words: str) -> None:
    with pytest.raises(ToolError) as caught:
        call()
    assert caught.value.suggestion
    for word in words:
        assert word in f"{caught.value.message} {caught.value.suggestion}"


def parent_and_child(runs: Runs) -> tuple[RunInfo, RunInfo]:
    parent = runs.submit("go", version="1")
    child = NewRun(id=f"{parent.id}-c", parent=parent.id, parent_call="c", prompt="sub", version="1")
    return parent, runs.store.create(child)


def waiting_for(child: RunInfo) -> tuple[Wait, ...]:
    return (Wait(kind="run", call="c", detail={"run": child.id}),)


def test_a_run_is_stored_and_queued_once(everywhere):
    runs = everywhere
    first = runs.submit("go", run_id="mine", tenant="t", session="s", version="7")
    again = runs.submit("go", run_id="mine")
    assert first == again
    assert (first.status, first.segment, first.version, first.tenant) == ("queued", 1, "7", "t")
    assert workflows(runs) == {"mine.1": ("ENQUEUED", "7")}
    assert runs.messages("mine") == [Message("user", "go")]
    assert runs.result("mine").reason == "waiting"
    refused(lambda: runs.submit("something else", run_id="mine"), "exists already")


def test_a_unique_beginning_of_the_id_is_enough(runs):
    runs.submit("go", run_id="run-abc")
    runs.submit("go", run_id="run-xyz")
    assert runs.get("run-ab").id == "run-abc"
    assert runs.events("run-ab") == []
    assert runs.questions("run-ab") == []
    refused(lambda: runs.get("nobody"), "there is no run")


def test_a_question_is_answered_in_words(runs):
    run = ended(runs, runs.submit("go"), "waiting", (Wait(kind="question", detail={"text": "Which?"}),))
    assert runs.is_settled(run)
    refused(lambda: runs.answer(run.id, Answer.ONCE), "answered in words")
    after = runs.answer(run.id, "the second")
    assert (after.status, after.segment) == ("queued", 2)
    assert runs.messages(run.id)[-1] == Message("user", "the second")
    assert f"{run.id}.2" in workflows(runs)
    refused(lambda: runs.answer(run.id, "the third"), "nothing to answer")


def test_an_approval_is_answered_once(runs):
    run, (question,) = asking(runs, runs.submit("go"), "q1")
    assert runs.is_settled(run)
    refused(lambda: runs.answer(run.id, "yes please"), "--yes")
    after = runs.answer(run.id, Answer.no("not today"), by="me")
    assert (after.status, after.segment) == ("queued", 2)
    stored = runs.store.question(question.id)
    assert (stored.answer, stored.by) == ({"kind": "no", "feedback": "not today"}, "me")
    refused(lambda: runs.give(stored, Answer.ONCE), "answered before", "no, by me")


def test_of_many_who_answer_at_once_one_is_heard(everywhere):
    runs = everywhere
    run, (question,) = asking(runs, runs.submit("go"), "q1")
    heard: list[int] = []

    def give(number: int) -> None:
        try:
            runs.answer(run.id, Answer.edit({"path": str(number)}), by=str(number))
            heard.append(number)
        except ToolError:
            pass

    threads = [threading.Thread(target=give, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 1
    stored = runs.store.question(question.id)
    assert (stored.answer, stored.by) == ({"kind": "once", "arguments": {"path": str(heard[0])}}, str(heard[0]))
    assert runs.get(run.id).segment == 2


def test_of_several_approvals_the_one_that_is_meant_is_named(runs):
    run, _ = asking(runs, runs.submit("go"), "qa", "qb")
    refused(lambda: runs.answer(run.id, Answer.ONCE), f"qa-{run.id} (write), qb-{run.id} (write)", "--question")
    refused(lambda: runs.answer(run.id, Answer.ONCE, "zz"), "asks nothing")
    runs.answer(run.id, Answer.ONCE, "qb")
    assert [one.id for one in runs.questions(run.id)] == [f"qa-{run.id}"]
    assert runs.get(run.id).status == "queued"  # the one that was allowed runs now


def test_an_answer_that_the_call_cannot_take_is_refused(runs):
    run, _ = asking(runs, runs.submit("go"), "q1", editable=False, remember="")
    refused(lambda: runs.answer(run.id, Answer.edit({"path": "b"})), "can no longer be changed")
    refused(lambda: runs.answer(run.id, Answer.ALWAYS), "may be remembered")
    assert runs.answer(run.id, Answer.ONCE).status == "queued"


def test_a_run_that_waits_for_its_sub_agents_approval_is_answered_itself(runs):
    parent, child = parent_and_child(runs)
    asking(runs, child, "q1")
    parent = ended(runs, parent, "waiting", waiting_for(child))
    assert runs.is_settled(parent)
    assert [one.run for one in runs.questions(parent.id)] == [child.id]
    runs.answer(parent.id, Answer.ONCE)
    assert runs.get(child.id).status == "queued"
    assert not runs.is_settled(runs.get(parent.id))
    assert runs.wait(parent.id, timeout=0).status == "waiting"


def test_a_cancelled_sub_agent_lets_its_parent_go_on(runs):
    parent, child = parent_and_child(runs)
    ended(runs, parent, "waiting", waiting_for(child))
    assert runs.cancel(child.id).status == "cancelled"
    assert (runs.get(parent.id).status, runs.get(parent.id).segment) == ("queued", 2)


def test_a_run_is_cancelled_with_those_it_started(runs):
    parent, child = parent_and_child(runs)
    assert runs.cancel(parent.id).status == "cancelled"
    assert runs.get(child.id).status == "cancelled"
    running = runs.submit("go")
    assert runs.store.begin(running.id, 1, "w")
    assert runs.cancel(running.id).cancelling


def test_what_is_over_goes_on_with_something_new_or_where_it_broke_off(runs):
    run = ended(runs, runs.submit("go"))
    refused(lambda: runs.resume(run.id), "nothing to go on with", "--say")
    after = runs.resume(run.id, "more")
    assert (after.status, after.segment) == ("queued", 2)
    assert runs.messages(run.id)[-1] == Message("user", "more")
    assert runs.resume(run.id).segment == 2  # nothing but seen to
    refused(lambda: runs.resume(run.id, "even more"), "cannot be told anything now")
    failed = ended(runs, runs.submit("go"), "failed", reason="error")
    assert runs.resume(failed.id).segment == 2
    stopped = ended(runs, runs.submit("go"), reason="max_turns")
    assert runs.resume(stopped.id).status == "queued"
    cancelled = runs.cancel(runs.submit("go").id)
    assert runs.resume(cancelled.id).status == "queued"


def test_words_do_not_get_between_a_call_and_its_result(runs):
    run, _ = asking(runs, runs.submit("go"), "q1")
    refused(lambda: runs.resume(run.id, "hurry"), "waits for a yes or a no")
    assert runs.resume(run.id).status == "waiting"


def test_a_run_whose_answer_was_stored_by_somebody_who_died_goes_on(runs):
    run, (question,) = asking(runs, runs.submit("go"), "q1")
    runs.give(question, Answer.ONCE)
    assert runs.get(run.id).status == "waiting"
    assert runs.resume(run.id).status == "queued"


def test_what_has_been_over_for_long_is_pruned_with_all_that_belongs_to_it(everywhere, monkeypatch):
    runs = everywhere
    monkeypatch.setattr(pruning, "BATCH", 2)
    old = [ended(runs, runs.submit(f"old {number}")) for number in range(5)]
    going_on, revived = runs.submit("goes on"), ended(runs, runs.submit("is taken up again"))
    runs.store.create(NewRun(id=f"{old[0].id}-child", parent=old[0].id))
    assert runs.store.begin(f"{old[0].id}-child", 1, "w")
    runs.store.put_file(old[1].id, "a.txt", b"data")
    moment = runs.store.now()
    fresh = ended(runs, runs.submit("fresh"))

    def left() -> set[str]:
        return {run.id for run in runs.list()}

    assert list(runs.prune(1_000)) == []
    runs.resume(revived.id, "more")
    monkeypatch.setattr(runs.store, "now", lambda: moment)
    assert runs.prunable(0) == 4, "one of them has a sub-agent that is not over"
    assert sum(runs.prune(0)) == 4
    assert left() == {old[0].id, f"{old[0].id}-child", going_on.id, revived.id, fresh.id}
    runs.store.close_segment(f"{old[0].id}-child", 1, Outcome(status="cancelled", messages=(), spent={}))
    assert list(runs.prune(0)) == [2]
    assert left() == {going_on.id, revived.id, fresh.id}
    with pytest.raises(StoreError, match="there is no run"):
        runs.store.files(old[1].id)
    assert {name.rpartition(".")[0] for name in workflows(runs)} == left()


def test_runs_are_given_to_another_version(everywhere):
    runs = everywhere
    parent, child = parent_and_child(runs)
    assert runs.migrate(parent.id, "2").version == "2"
    assert runs.get(child.id).version == "2"
    assert workflows(runs)[f"{parent.id}.1"] == ("ENQUEUED", "2")
    over = ended(runs, runs.submit("go", version="1"))
    assert runs.migrate(over.id, "2").version == "2"
    assert workflows(runs)[f"{over.id}.1"] == ("ENQUEUED", "1")  # what ran stays what it was


@tool(permissions={"write"}, target="name")
def note(name: str) -> str:
    """Note a name."""
    NOTED.append(name)
    return f"noted {name}"


NOTED: list[str] = []


@pytest.mark.timeout(180)
async def test_a_run_is_followed_to_its_question_answered_and_followed_to_its_end(database, tmp_path):
    NOTED.clear()
    calls: list[Any] = [[ToolCall("note", {"name": "a"}, "c1"), ToolCall("note", {"name": "b"}, "c2")], "All noted."]
    agent = Agent(Scripted(*calls), tools=[note], policy=rules("ask write"))
    runs = Runs(database)
    async with Worker(database, [Subject.of(agent, Scope(workspace=tmp_path))]):
        run = await asyncio.to_thread(lambda: runs.submit("go"))
        first = [event async for event in runs.follow(run.id)]
        assert [event.type for event in first if event.type.startswith("tool")] == ["tool_call_start"] * 2
        assert (await runs.settled(run.id)).status == "waiting"
        asked = sorted(await asyncio.to_thread(runs.questions, run.id), key=lambda one: one.call)
        assert [one.request["parts"] for one in asked] == [[["write", "a"]], [["write", "b"]]]
        await asyncio.to_thread(lambda: runs.give(asked[1], Answer.no("not b")))
        await asyncio.to_thread(lambda: runs.answer(run.id, Answer.ONCE, asked[0].id, by="me"))
        over = await runs.settled(run.id)
        story = [event async for event in runs.follow(run.id)]
    result = runs.result(run.id)
    runs.close()
    assert (over.status, result.text, result.reason, NOTED) == ("finished", "All noted.", "answer", ["a"])
    assert "not b" in next(one.text for one in result.messages if one.call_id == "c2")
    names = [event.type for event in story if event.type != "text_delta"]
    assert names[0] == "run_started"
    assert names[-1] == "run_finished"
    for name in ("tool_call_start", "tool_call_end", "permission_asked", "permission_answered"):
        assert names.count(name) == 2, names
