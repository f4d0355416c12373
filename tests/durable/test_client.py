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
from forge.durable.client import Runs, pruning
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.queues import claim_key
from forge.durable.store.rows import NewRun, Outcome, Question, RunInfo
from forge.durable.store.tables import segments
from forge.durable.store.waits import Wait
from forge.durable.worker import Worker
from forge.models.scripted import Scripted
from forge.permissions.policy import rules
from forge.permissions.questions import Answer
from forge.workspace.state import state_directory
from forge.workspace.state.store import StoreError

PATIENCE = 120.0
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


def queued(runs: Runs) -> dict[str, tuple[str, str]]:
    """The state and the key of each segment."""
    c = segments.c
    rows = runs.store.database.read(lambda one: one.execute(sa.select(c.run, c.segment, c.state, c.key)).all())
    return {f"{run}.{segment}": (state, key) for run, segment, state, key in rows}


def known_to_engine(runs: Runs, *more: str) -> set[str]:
    """The engine's workflows, after it was told of some more."""
    client = runs._starter.client
    for name in more:
        client.enqueue({"workflow_name": "any", "queue_name": "nobody's", "workflow_id": name})
    return {one.workflow_id for one in client.list_workflows()}


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
    assert queued(runs) == {"mine.1": ("queued", claim_key("7", "main"))}
    assert runs.messages("mine") == [Message("user", "go")]
    assert runs.result("mine").reason == "waiting"
    refused(lambda: runs.submit("something else", run_id="mine"), "already exists")


def test_what_is_meant_for_a_run_that_is_not_there_reaches_no_other(runs):
    run, _ = asking(runs, runs.submit("pay", run_id="invoice-17"), "q1")
    uses = (
        runs.get,
        runs.messages,
        runs.result,
        runs.events,
        runs.questions,
        runs.wait,
        runs.cancel,
        runs.delete,
        runs.resume,
        runs.go_on,
        lambda id: runs.answer(id, Answer.ONCE),
        lambda id: runs.migrate(id, "2"),
    )
    for use in uses:
        refused(lambda: use("invoice-1"), 'there is no run "invoice-1"', "Did you mean invoice-17?")  # noqa: B023
    assert runs.get("invoice-17") == run
    assert len(runs.questions("invoice-17")) == 1
    assert runs.find("invoice-1").id == "invoice-17"
    assert runs.answer("invoice-17", Answer.ONCE).status == "queued"


def test_arguments_of_the_wrong_kind_are_refused_before_anything_happens(tmp_path):
    runs: Any = Runs(f"sqlite:///{tmp_path}/durable.db")
    made_of: Any = Runs
    wordy: Any = 5
    bad: dict[str, list[Any]] = {
        "run_id": [5, 0, b"a", "a\0", "\ud800", "x" * 10_000],
        "agent": [5, None, "", "\0"],
        "session": [5, None, "\0"],
        "tenant": [5, None, 0, "\ud800", "x" * 10_000],
        "queue": [5, None, "", "a\0", "x" * 10_000],
        "version": [5, 0, None, "x" * 256],
        "priority": [5.0, None, "high", True, 2**40],
        "messages": [5, None, "hello", ["hello"], [5]],
        "scope": [5, "text", [1]],
    }
    for name, values in bad.items():
        for value in values:
            refused(lambda: runs.submit("go", **{name: value}))  # noqa: B023
    for prompt in (5, None, b"go"):
        refused(lambda: runs.submit(prompt), "the prompt is not a string")  # noqa: B023
    for run_id in (5, None, b"a"):
        refused(lambda: runs.cancel(run_id), "the id of a run is not a string")  # noqa: B023
        refused(lambda: runs.resume(run_id), "the id of a run is not a string")  # noqa: B023
        refused(lambda: runs.answer(run_id, Answer.ONCE), "the id of a run is not a string")  # noqa: B023
    for say in ("", "  ", 5, b"more"):
        refused(lambda: runs.resume("one", say), "the message to a run")  # noqa: B023
        refused(lambda: runs.answer("one", say), "answer")  # noqa: B023
    refused(lambda: runs.resume("one", model=5), "the model is not a string")
    refused(lambda: runs.answer("one", Answer("once", feedback=wordy)), "the feedback of an answer is not a string")
    refused(lambda: runs.answer("one", Answer.ONCE, 5), "the id of a question is not a string")
    refused(lambda: runs.answer("one", Answer.ONCE, by=5), "the person who answers is not a string")
    for version in ("", "x" * 3_000, 5):
        refused(lambda: runs.migrate("one", version), "the version")  # noqa: B023
    refused(lambda: made_of(5), "must be a string, not 5")
    assert list(tmp_path.iterdir()) == []
    run = runs.submit("go", run_id="one", tenant="t", priority=-3, messages=[Message("user", "go")], scope={"a": 1})
    assert (run.priority, run.tenant, run.version) == (-3, "t", "0")
    assert runs.migrate("one", "x" * 255).version == "x" * 255
    runs.close()


def test_a_question_is_answered_in_words(runs):
    run = ended(runs, runs.submit("go"), "waiting", (Wait(kind="question", detail={"text": "Which?"}),))
    assert runs.needs_no_worker(run)
    refused(lambda: runs.answer(run.id, Answer.ONCE), "needs a text as answer")
    after = runs.answer(run.id, "the second")
    assert (after.status, after.segment) == ("queued", 2)
    assert runs.messages(run.id)[-1] == Message("user", "the second")
    assert f"{run.id}.2" in queued(runs)
    refused(lambda: runs.answer(run.id, "the third"), "nothing to answer")


def test_an_approval_is_answered_once(runs):
    run, (question,) = asking(runs, runs.submit("go"), "q1")
    assert runs.needs_no_worker(run)
    refused(lambda: runs.answer(run.id, "yes please"), "--yes")
    after = runs.answer(run.id, Answer.no("not today"), by="me")
    assert (after.status, after.segment) == ("queued", 2)
    stored = runs.store.question(question.id)
    assert (stored.answer, stored.by) == ({"kind": "no", "feedback": "not today"}, "me")
    refused(lambda: runs.give(stored, Answer.ONCE), "already answered", "no, by me")


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
    refused(lambda: runs.answer(run.id, Answer.ONCE, "zz"), "has no question with the id")
    refused(lambda: runs.answer(run.id, Answer.ONCE, "qb"), "has no question with the id")
    runs.answer(run.id, Answer.ONCE, f"qb-{run.id}")
    assert [one.id for one in runs.questions(run.id)] == [f"qa-{run.id}"]
    assert runs.get(run.id).status == "queued"  # the one that was allowed runs now


def test_an_answer_that_the_call_cannot_take_is_refused(runs):
    run, _ = asking(runs, runs.submit("go"), "q1", editable=False, remember="")
    refused(lambda: runs.answer(run.id, Answer.edit({"path": "b"})), "can no longer be changed")
    refused(lambda: runs.answer(run.id, Answer.ALWAYS), "cannot be approved for always")
    assert runs.answer(run.id, Answer.ONCE).status == "queued"


SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}


def test_arguments_that_do_not_fit_are_refused_when_they_are_given(runs):
    takes = {"parameters": SCHEMA, "aliases": {"file_path": "path"}, "strict": False}
    run, (question,) = asking(runs, runs.submit("go"), "q1", takes=takes)
    for arguments in ({"path": {"a": 5}}, {"lines": 3}, {"path": "b", "other": 1}, {}):
        edit = Answer.edit(arguments)
        refused(lambda: runs.answer(run.id, edit), "the arguments are not valid for write")  # noqa: B023
        refused(lambda: runs.give(question, edit), "the arguments are not valid for write")  # noqa: B023
    assert [one.id for one in runs.questions(run.id)] == [question.id], "it is still open"
    assert runs.answer(run.id, Answer.edit({"file_path": "b", "lines": "3"})).status == "queued"


@pytest.mark.parametrize("takes", [None, 5, {}, {"parameters": {"type": 5}}, {"parameters": {"$ref": "http://a/b"}}])
def test_where_it_is_not_known_what_fits_the_tool_itself_says_so_later(runs, takes):
    run, _ = asking(runs, runs.submit("go"), "q1", takes=takes)
    assert runs.answer(run.id, Answer.edit({"path": 5})).status == "queued"


def test_a_run_that_waits_for_its_sub_agents_approval_is_answered_itself(runs):
    parent, child = parent_and_child(runs)
    asking(runs, child, "q1")
    parent = ended(runs, parent, "waiting", waiting_for(child))
    assert runs.needs_no_worker(parent)
    assert [one.run for one in runs.questions(parent.id)] == [child.id]
    runs.answer(parent.id, Answer.ONCE)
    assert runs.get(child.id).status == "queued"
    assert not runs.needs_no_worker(runs.get(parent.id))
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
    refused(lambda: runs.resume(run.id), "nothing to resume", "--say")
    after = runs.resume(run.id, "more")
    assert (after.status, after.segment) == ("queued", 2)
    assert runs.messages(run.id)[-1] == Message("user", "more")
    assert runs.resume(run.id).segment == 2  # nothing but seen to
    refused(lambda: runs.resume(run.id, "even more"), "cannot take a message now")
    failed = ended(runs, runs.submit("go"), "failed", reason="error")
    assert runs.resume(failed.id).segment == 2
    stopped = ended(runs, runs.submit("go"), reason="max_turns")
    assert runs.resume(stopped.id).status == "queued"
    cancelled = runs.cancel(runs.submit("go").id)
    assert runs.resume(cancelled.id).status == "queued"


def test_words_do_not_get_between_a_call_and_its_result(runs):
    run, _ = asking(runs, runs.submit("go"), "q1")
    refused(lambda: runs.resume(run.id, "hurry"), "waits for an approval")
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
    assert list(runs.prune(0)) == [], "its sub-agent has only just ended"
    assert left() == {old[0].id, f"{old[0].id}-child", going_on.id, revived.id, fresh.id}
    with pytest.raises(StoreError, match="there is no run"):
        runs.store.files(old[1].id)
    assert {name.rpartition(".")[0] for name in queued(runs)} == left() - {f"{old[0].id}-child"}


def test_a_delete_that_was_killed_in_between_can_be_repeated(everywhere, monkeypatch):
    runs = everywhere
    run = ended(runs, runs.submit("go"))
    kept = ended(runs, runs.submit("keep"))

    def killed(run_id: str) -> None:
        raise KeyboardInterrupt

    known_to_engine(runs, f"{run.id}.1", f"{run.id}.1~2", f"{kept.id}.1")
    with runs.store.engine.begin() as connection:
        connection.execute(sa.update(segments).where(segments.c.run == run.id).values(starts=2))
    monkeypatch.setattr(runs.store, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        runs.delete(run.id)
    monkeypatch.undo()
    assert known_to_engine(runs) == {f"{kept.id}.1"}, "what the engine has goes first"
    assert runs.get(run.id) == run
    runs.delete(run.id)
    assert [one.id for one in runs.list()] == [kept.id]


def test_what_is_not_over_loses_nothing_when_it_is_to_be_deleted(runs):
    going_on = runs.submit("go")
    refused(
        lambda: runs.delete(going_on.id), "is queued, and only runs that have ended can be deleted", "forge runs cancel"
    )
    assert f"{going_on.id}.1" in queued(runs)
    runs.cancel(going_on.id)
    runs.delete(going_on.id)
    assert f"{going_on.id}.1" not in queued(runs)


def test_long_results_go_with_their_run_where_it_was(runs, tmp_path):
    spill = state_directory(tmp_path, "spill")
    (spill / "other.txt").write_text("of another run")
    (spill / "link.txt").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "outside.txt").write_text("somebody's own")
    hostile = ("../../outside.txt", "..", "link.txt", "a\0b")
    first, second = (ended(runs, runs.submit("go")) for _ in range(2))
    for run, name in ((first, "first.txt"), (second, "second.txt")):
        (spill / name).write_text("long")
        for one in (name, *hostile):
            runs.store.put_file(run.id, one, b"long")
    runs.delete(first.id, tmp_path)
    assert {one.name for one in spill.iterdir()} == {"second.txt", "other.txt", "link.txt"}
    sum(runs.prune(-60, tmp_path))
    assert {one.name for one in spill.iterdir()} == {"other.txt", "link.txt"}
    assert (tmp_path / "outside.txt").read_text() == "somebody's own"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    runs.delete(ended(runs, runs.submit("go")).id, elsewhere)
    assert list(elsewhere.iterdir()) == []


def test_only_whole_families_that_are_old_are_pruned(everywhere, monkeypatch):
    runs = everywhere
    old, young = ended(runs, runs.submit("old")), ended(runs, runs.submit("its child is young"))
    for run in (old, young):
        for name, parent in (("c", run.id), ("d", f"{run.id}-c")):
            runs.store.create(NewRun(id=f"{run.id}-{name}", parent=parent))
            assert runs.store.begin(f"{run.id}-{name}", 1, "w")
    finished = Outcome(status="finished", messages=(), spent={})
    for name in ("c", "d"):
        runs.store.close_segment(f"{old.id}-{name}", 1, finished)
    runs.store.close_segment(f"{young.id}-c", 1, finished)
    moment = runs.store.now()
    monkeypatch.setattr(runs.store, "now", lambda: moment)
    assert sum(runs.prune(0)) == 3
    assert {run.id for run in runs.list()} == {young.id, f"{young.id}-c", f"{young.id}-d"}  # the last is at work
    runs.store.close_segment(f"{young.id}-d", 1, finished)
    assert list(runs.prune(0)) == []
    monkeypatch.setattr(runs.store, "now", lambda: moment + 100)
    assert list(runs.prune(0)) == [3]


def test_a_refused_resume_changes_nothing(runs):
    run = ended(runs, runs.submit("go"))
    with pytest.raises(ToolError, match="nothing to resume"):
        runs.resume(run.id, model="scripted:other.yaml")
    assert "model" not in runs.get(run.id).scope
    assert runs.resume(run.id, "more", model="scripted:other.yaml").scope["model"] == "scripted:other.yaml"


def test_runs_are_given_to_another_version(everywhere):
    runs = everywhere
    parent, child = parent_and_child(runs)
    assert runs.migrate(parent.id, "2").version == "2"
    assert runs.get(child.id).version == "2"
    assert queued(runs)[f"{parent.id}.1"] == ("queued", claim_key("2", "main"))
    over = ended(runs, runs.submit("go", version="1"))
    assert runs.migrate(over.id, "2").version == "2"
    assert queued(runs)[f"{over.id}.1"] == ("queued", claim_key("1", "main"))  # what ran stays what it was


@tool(permissions={"write"}, target="name")
def note(name: str) -> str:
    """Note a name."""
    NOTED.append(name)
    return f"noted {name}"


NOTED: list[str] = []


@pytest.mark.timeout(400)
async def test_a_run_is_followed_to_its_question_answered_and_followed_to_its_end(shared_first, tmp_path):
    NOTED.clear()
    calls: list[Any] = [[ToolCall("note", {"name": "a"}, "c1"), ToolCall("note", {"name": "b"}, "c2")], "All noted."]
    agent = Agent(Scripted(*calls), tools=[note], policy=rules("ask write"))
    runs = Runs(shared_first)
    async with Worker(shared_first, [prepare_for_worker(agent, Scope(workspace=tmp_path))]):
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
