"""Runs from the page: begun, answered, followed, stopped, searched, exported, taken back."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from forge.console.api.questions import list_questions
from forge.console.api.requests import ApiRequest, json_response
from forge.core.errors import ErrorKind, ToolError
from forge.durable.store.rows import NewRun
from forge.durable.store.tables import questions, runs
from forge.project.runs.durable_runs import all_run_fields
from tests.console.conftest import call, running_console, script
from tests.durable.conftest import postgres, postgres_server, postgres_template
from tests.process.planting import found, mark, until

__all__ = ["postgres", "postgres_server", "postgres_template"]  # fixtures


async def test_a_run_is_begun_asked_about_answered_and_taken_back(tmp_path):
    model = script(tmp_path, call("file_write", path="a.txt", content="hello\n"), "It is written.")
    async with running_console(tmp_path, model=model) as console:
        run = (await console.post("/api/runs", {"prompt": "write a.txt"}, 201))["run"]
        question = await console.question()
        assert question["tool"] == "file_write"
        assert question["parts"] == [{"permission": "write", "target": "a.txt"}]
        assert "+hello" in question["preview"]
        assert question["remember"] == "allow write a.txt"
        assert "file_write" in question["shown"]
        assert (await console.get("/api/overview"))["waiting"] == 1
        assert not (tmp_path / "a.txt").exists()

        answered = await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
        assert answered["question"]["status"] == "answered"
        refused = await console.post(f"/api/questions/{question['id']}/answer", {"kind": "no"}, 409)
        assert refused["question"]["answer"]["kind"] == "once"
        assert refused["question"]["answer"]["by"] == "console"

        ended = await console.run_is(run["id"], "finished", "failed")
        assert (ended["status"], ended["text"], ended["turns"]) == ("finished", "It is written.", 2)
        assert (tmp_path / "a.txt").read_text() == "hello\n"
        assert ended["undoable"] == 1

        events = (await console.get(f"/api/runs/{run['id']}/events"))["events"]
        kinds = [one["event"]["event"] for one in events]
        assert kinds[0] == "run_started"
        assert kinds[-1] == "run_finished"
        calls = [one["event"] for one in events if one["event"]["event"] == "tool_call_end"]
        assert [one.get("waits", False) for one in calls] == [True, False]
        assert calls[1]["call"]["arguments"] == {"path": "a.txt", "content": "hello\n"}
        assert [one["n"] for one in events] == sorted({one["n"] for one in events})
        first = await console.get(f"/api/runs/{run['id']}/events", limit=2)
        rest = await console.get(f"/api/runs/{run['id']}/events", after=first["next"])
        assert [one["n"] for one in first["events"] + rest["events"]] == [one["n"] for one in events]
        tail = await console.get(f"/api/runs/{run['id']}/events", tail=1)
        assert tail["events"] == events[-1:]

        messages = (await console.get(f"/api/runs/{run['id']}/messages"))["messages"]
        assert [one["role"] for one in messages] == ["system", "user", "assistant", "tool", "assistant"]
        exported = await console.client.get(f"/api/runs/{run['id']}/export")
        assert exported.headers["content-type"] == "application/octet-stream"
        assert "attachment" in exported.headers["content-disposition"]
        assert [json.loads(line)["event"] for line in exported.text.splitlines()] == kinds
        assert "It is written." in (await console.client.get(f"/api/runs/{run['id']}/export?as=markdown")).text
        whole = (await console.client.get(f"/api/runs/{run['id']}/export?as=json")).json()
        assert whole == json.loads(json.dumps(all_run_fields(console.home.runs, console.home.runs.get(run["id"]))))
        refused = await console.get(f"/api/runs/{run['id']}/export", 400, **{"as": "html"})
        assert "json, ndjson or markdown" in refused["error"]["what"]

        undo = (await console.post(f"/api/runs/{run['id']}/undo", {}, 201))["run"]
        asked = await console.question()
        assert "-hello" in asked["preview"]
        await console.post(f"/api/questions/{asked['id']}/answer", {"kind": "once"})
        await console.run_is(undo["id"], "finished")
        assert not (tmp_path / "a.txt").exists()

        assert [one["id"] for one in (await console.get("/api/runs", text="WRITE A.T"))["runs"]] == [run["id"]]
        assert [one["id"] for one in (await console.get("/api/runs", text="is written"))["runs"]] == [run["id"]]
        assert (await console.get("/api/runs", text="100%"))["runs"] == []
        assert [one["id"] for one in (await console.get("/api/runs", kind="call"))["runs"]] == [undo["id"]]
        newest = await console.get("/api/runs", limit=1)
        assert [one["id"] for one in newest["runs"]] == [undo["id"]]
        older = await console.get("/api/runs", before=newest["next"])
        assert ([one["id"] for one in older["runs"]], older["next"]) == ([run["id"]], "")
        assert (await console.get("/api/runs", before="x", status=400))["error"]["why"] == "validation_error"


async def test_a_no_reaches_the_model_with_its_reason_and_other_arguments_are_what_runs(tmp_path):
    model = script(
        tmp_path,
        call("file_write", path="a.txt", content="one"),
        call("file_write", path="b.txt", content="one"),
        "Well.",
    )
    async with running_console(tmp_path, model=model) as console:
        run = (await console.post("/api/runs", {"prompt": "write"}, 201))["run"]
        first = await console.question()
        await console.post(f"/api/questions/{first['id']}/answer", {"kind": "no", "feedback": "not that file"})

        async def another() -> object:
            found = (await console.get("/api/questions"))["questions"]
            return [one for one in found if one["id"] != first["id"]]

        second = (await console.until(another))[0]
        checked = await console.post(f"/api/questions/{second['id']}/check", {"arguments": {"path": 3}})
        assert checked["problems"]
        changed = {"path": "b.txt", "content": "two"}
        checked = await console.post(f"/api/questions/{second['id']}/check", {"arguments": changed})
        assert (checked["problems"], checked["decision"]) == ([], "ask")
        assert "+two" in checked["preview"]
        assert not (tmp_path / "b.txt").exists()  # looking does nothing
        path = f"/api/questions/{second['id']}/answer"
        assert (await console.post(path, {"kind": "perhaps"}, 400))["error"]["why"] == "validation_error"
        assert (await console.post(path, {"kind": "once", "arguments": []}, 400))["error"]["why"] == "validation_error"
        await console.post(path, {"kind": "once", "arguments": changed})
        await console.run_is(run["id"], "finished")
        told = [one["text"] for one in (await console.get(f"/api/runs/{run['id']}/messages"))["messages"]]
        assert any("not that file" in one for one in told)
        assert (tmp_path / "b.txt").read_text() == "two"
        assert not (tmp_path / "a.txt").exists()
        denied = (await console.get("/api/denials"))["denials"]
        assert [(one["tool"], one["run"]) for one in denied] == [("file_write", run["id"])]
        assert denied[0]["suggestion"] == "allow write a.txt"


async def test_a_run_is_stopped_and_goes_on_with_something_new(tmp_path):
    (tmp_path / "policy").write_text("allow execute *\n")
    slow = f"{sys.executable} -c 'import time; print(1, flush=True); time.sleep(60)'"
    model = script(tmp_path, call("bash", command=slow), "So be it.")
    async with running_console(tmp_path, model=model, policy=str(tmp_path / "policy")) as console:
        run = (await console.post("/api/runs", {"prompt": "be slow", "session": "mine"}, 201))["run"]

        async def is_at_it() -> object:
            events = (await console.get(f"/api/runs/{run['id']}/events"))["events"]
            return any(one["event"]["event"] == "tool_output_chunk" for one in events)

        await console.until(is_at_it)
        sent = await console.post(f"/api/runs/{run['id']}/send", {"text": "Hurry up."})
        assert sent["run"]["can"] == ["cancel", "send"]
        assert (await console.post(f"/api/runs/{run['id']}/send", {"text": " "}, 400))["error"]["next"]
        assert (await console.post("/api/runs", {"prompt": "more", "session": "mine"}, 409))["error"]["next"]
        await console.post(f"/api/runs/{run['id']}/cancel")
        stopped = await console.run_is(run["id"], "cancelled")
        assert stopped["can"] == ["resume", "say"]
        await console.post(f"/api/runs/{run['id']}/resume", {"say": "Then leave it."})
        ended = await console.run_is(run["id"], "finished", "failed")
        assert ended["text"] == "So be it."
        said = (await console.get(f"/api/runs/{run['id']}/messages"))["messages"]
        assert [one["text"] for one in said if one["role"] == "user"] == ["be slow", "Then leave it.", "Hurry up."]


async def test_a_question_of_the_model_is_answered_in_words(tmp_path):
    model = script(tmp_path, call("ask_question", question="Which colour?"), "Blue it is.")
    async with running_console(tmp_path, model=model) as console:
        run = (await console.post("/api/runs", {"prompt": "paint"}, 201))["run"]
        waiting = await console.run_is(run["id"], "waiting")
        assert "answer" in waiting["can"]
        (wanted,) = (await console.get("/api/questions"))["words"]
        assert (wanted["run"], "Which colour?" in wanted["text"]) == (run["id"], True)
        await console.post(f"/api/runs/{run['id']}/answer", {"text": "blue"})
        assert (await console.run_is(run["id"], "finished"))["text"] == "Blue it is."
        assert (await console.post(f"/api/runs/{run['id']}/answer", {"text": "x"}, 409))["error"]["next"]


async def test_without_a_model_tools_work_and_chatting_says_why_not(tmp_path, monkeypatch):
    monkeypatch.setattr("forge.models.vendors.default_model", lambda: None)
    async with running_console(tmp_path) as console:
        me = await console.get("/api/me")
        assert me["model"] is None
        assert me["model_problem"]
        refused = await console.post("/api/runs", {"prompt": "hello"}, 409)
        assert refused["error"]["next"] == me["model_problem"]

        run = (await console.post("/api/tools/math_calculate/call", {"arguments": {"expression": "6*7"}}, 201))["run"]
        assert run["kind"] == "call"
        assert (await console.run_is(run["id"], "finished"))["text"] == "42"
        wrong = await console.post("/api/tools/math_calculate/call", {"arguments": {"expression": 1, "x": 2}}, 400)
        assert wrong["error"]["why"] == "validation_error"
        assert "math_calculate" in (await console.post("/api/tools/mathcalc/call", {}, 404))["error"]["next"]

        sessions = (await console.get("/api/sessions"))["sessions"]
        assert [one["name"] for one in sessions if one["is_demo"]] == ["demo"]
        assert (await console.get("/api/sessions/demo/events"))["events"]
        for path in ("policy", "schedules", "memory", "workers", "tools", "questions", "denials"):
            assert await console.get(f"/api/{path}")
        assert (await console.get("/api/runs/run-nope", 404))["error"]["why"] == "not_found"
        assert (await console.get("/api/nothing", 404))["error"]["what"]


@pytest.mark.slow
async def test_a_sub_agents_run_belongs_to_its_parents(tmp_path):
    (tmp_path / "child.json").write_text(
        json.dumps([call("file_write", path="c.txt", content="c"), "The child is done."])
    )
    (tmp_path / "forge.yaml").write_text(
        "agents: {scribe: {prompt: You write., tools: [{name: file_write}], "
        f"model: 'scripted:{tmp_path}/child.json'}}}}\n"
    )
    model = script(tmp_path, call("task", description="write", prompt="Write c.", agent_type="scribe"), "All done.")
    async with running_console(tmp_path, model=model, config=str(tmp_path / "forge.yaml")) as console:
        run = (await console.post("/api/runs", {"prompt": "delegate"}, 201))["run"]
        question = await console.question()
        if question["tool"] == "task":
            await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})

            async def of_child() -> object:
                found = (await console.get("/api/questions"))["questions"]
                return [one for one in found if one["tool"] == "file_write"]

            question = (await console.until(of_child))[0]
        assert (question["root"], question["prompt"], question["agent"]) == (run["id"], "delegate", "main/scribe")
        await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
        ended = await console.run_is(run["id"], "finished", "failed")
        assert ended["text"] == "All done."
        (child,) = ended["children"]
        assert (child["parent"], child["agent"], child["text"]) == (run["id"], "main/scribe", "The child is done.")
        events = (await console.get(f"/api/runs/{run['id']}/events"))["events"]
        assert {one["run"] for one in events} == {run["id"], child["id"]}
        calls = {one["event"]["call"]["id"] for one in events if one["run"] == run["id"] and "call" in one["event"]}
        assert child["parent_call"] in calls
        alone = (await console.get(f"/api/runs/{run['id']}/events", family=0))["events"]
        assert {one["run"] for one in alone} == {run["id"]}
        assert [one["id"] for one in (await console.get("/api/runs"))["runs"]] == [run["id"]]


class Stoppable:
    """In the place of a run that is worked on here."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        self.stopped.set()


async def test_stopping_a_run_stops_what_it_started_and_no_other_with_a_name_like_its_own(tmp_path, monkeypatch):
    at_work = {name: Stoppable() for name in ("job", "job-child", "job-2")}
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:
        monkeypatch.setattr(console.home, "worker", SimpleNamespace(attempts=at_work))
        store = console.home.runs.store
        for one in (NewRun(id="job"), NewRun(id="job-child", parent="job"), NewRun(id="job-2")):
            await asyncio.to_thread(store.create, one)
        await console.post("/api/runs/job/cancel")
        async with asyncio.timeout(60):
            await at_work["job"].stopped.wait()
            await at_work["job-child"].stopped.wait()
        assert not at_work["job-2"].stopped.is_set()
        assert (await console.get("/api/runs/job-2"))["status"] == "queued"


async def test_a_run_can_be_looked_at_while_its_changes_cannot_be_read(tmp_path, monkeypatch):
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:
        await asyncio.to_thread(console.home.runs.store.create, NewRun(id="job"))
        assert (await console.get("/api/runs/job/undo"))["changes"] == []

        def full(*_: object, **__: object) -> None:
            raise ToolError("the disk is full", ErrorKind.SYSTEM)

        monkeypatch.setattr("forge.workspace.history.undo.UndoLog.entries", full)
        assert (await console.get("/api/runs/job"))["undoable"] == 0
        error = (await console.get("/api/runs/job/undo", 503))["error"]
        assert (error["what"], error["why"], bool(error["next"])) == ("the disk is full", "system_error", True)


async def test_work_that_nobody_waits_for_does_not_fail_in_silence(tmp_path, caplog):
    async def fail() -> None:
        raise ValueError("nobody saw this")

    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:
        console.home.begin(fail())

        async def is_told() -> bool:
            return "nobody saw this" in caplog.text

        await console.until(is_told)
        assert not console.home.tasks


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_programs_of_a_conversation_go_on_until_the_console_ends(tmp_path):
    word = mark()
    started = call("bash", command=f"sleep {word}", background=True)
    model = script(tmp_path, started, call("bash_jobs"), "It runs.")  # said by each run
    (tmp_path / "forge.yaml").write_text('sandbox: off\npermissions: {rules: ["allow execute"]}\n')
    async with running_console(tmp_path, model=model, config=str(tmp_path / "forge.yaml")) as console:
        first = (await console.post("/api/runs", {"prompt": "start it"}, 201))["run"]
        assert (await console.run_is(first["id"], "finished", "failed"))["text"] == "It runs."
        again = {"prompt": "does it run?", "session": first["session"]}
        second = (await console.post("/api/runs", again, 201))["run"]
        await console.run_is(second["id"], "finished", "failed")
        messages = (await console.get(f"/api/runs/{second['id']}/messages"))["messages"]
        jobs = [one["text"] for one in messages if one["role"] == "tool"][-1]
        assert [line.partition(" for ")[0] for line in jobs.splitlines()] == ["job_1: running", "job_2: running"]
        assert len(found(word)) == 2
    assert until(lambda: not found(word))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_all_open_questions_are_counted_and_reachable_however_many_wait(tmp_path, request, kind):
    """With 10,000 waiting runs, a page costs a handful of statements and little of the processor."""
    database = request.getfixturevalue("postgres") if kind == "postgres" else None
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), database=database, works=False) as console:
        store = console.home.runs.store
        let_wait(store, approvals=5_000, words=5_000)
        assert (await console.get("/api/overview"))["waiting"] == 10_000
        asked = ApiRequest({}, {}, {})
        await asyncio.to_thread(list_questions, console.home, asked)  # what the first one loads
        statements: list[str] = []
        sa.event.listen(store.engine, "before_cursor_execute", lambda _, __, text, *___: statements.append(text))
        began = time.thread_time()
        told = list_questions(console.home, asked)
        json_response(told)
        assert time.thread_time() - began < 0.3
        assert len(statements) <= 20
        assert (told["total"], told["words_total"]) == (5_000, 5_000)
        roots = [one["root"] for one in told["questions"]]
        assert roots == [f"a{number:05}" for number in range(len(roots))]  # those of a sub-agent have the run above it

        seen: set[str] = set()
        answered: set[str] = set()
        page, last = await console.get("/api/questions"), ""
        while page["questions"] or page["words"]:
            seen |= {one["id"] for one in page["questions"]}
            answered |= {one["run"] for one in page["words"]}
            last = page["questions"][-1]["id"] if page["questions"] else last
            page = await console.get("/api/questions", after=last, words_after=page["words_next"])
        assert (len(seen), len(answered)) == (5_000, 5_000)
        await console.get("/api/questions", 400, words_after="yesterday")


def let_wait(store, *, approvals, words):
    """Stores runs that wait for a person: every third approval is one of a sub-agent."""
    common: dict[str, Any] = dict.fromkeys(("session", "tenant", "parent", "parent_call", "worker", "attempt"), "")
    common |= {"agent": "main", "queue": "default", "version": "0", "priority": 0, "segment": 1, "status": "waiting"}
    common |= {"spent": {}, "scope": {}, "carrier": {}, "cancelling": False, "result": None, "look": None}
    rows, asked = [], []
    for number in range(approvals):
        waits = [{"kind": "approval", "call": "c", "detail": {"question": f"q{number:05}"}}]
        when = {"created": 1_000.0 + number, "updated": 1_000.0 + number}
        rows.append({**common, **when, "id": f"a{number:05}", "prompt": f"Change {number}", "waits": waits})
        if number % 3 == 0:
            rows.append({**rows[-1], "id": f"a{number:05}-c", "parent": f"a{number:05}"})
        arguments = {"path": f"f{number}.txt", "content": "x" * 300}
        wanted = {"arguments": arguments, "parts": [["write", f"f{number}.txt"]], "agent": "main"}
        about = {"run": rows[-1]["id"], "call": "c", "tool": "file_write", "digest": "d", "request": wanted, "by": ""}
        asked.append({**about, "id": f"q{number:05}", "asked": when["created"]})
    for number in range(words):
        waits = [{"kind": "question", "call": "", "detail": {"text": f"Which one, {number}?"}}]
        when = {"created": 2_000.0 + number // 2, "updated": 2_000.0 + number // 2}
        rows.append({**common, **when, "id": f"w{number:05}", "prompt": "Ask", "waits": waits})
    with store.engine.begin() as connection:
        connection.execute(sa.insert(runs), rows)
        if asked:
            connection.execute(sa.insert(questions), asked)
