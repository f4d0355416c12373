"""The same on a database that many machines share."""

from __future__ import annotations

from tests.console.conftest import call, running_console, script
from tests.durable.conftest import postgres, postgres_server, postgres_template

__all__ = ["postgres", "postgres_server", "postgres_template"]  # fixtures


async def test_a_run_is_followed_and_answered_on_postgres(tmp_path, postgres):
    model = script(tmp_path, call("file_write", path="a.txt", content="hi"), "It is 100% done.")
    async with running_console(tmp_path, model=model, database=postgres) as console, console.stream() as events:
        me = await console.get("/api/me")
        assert (me["is_own_database"], me["database"].startswith("postgresql://")) == (False, True)
        run = (await console.post("/api/runs", {"prompt": "Write it"}, 201))["run"]
        question = await console.question()
        await console.post(f"/api/questions/{question['id']}/answer", {"kind": "no", "feedback": "no"})
        await console.run_is(run["id"], "finished")
        seen = []
        async for kind, _, data in events:
            if kind == "event":
                seen.append(data["n"])
                if data["event"]["event"] == "run_finished":
                    break
        told = (await console.get(f"/api/runs/{run['id']}/events"))["events"]
        assert {one["n"] for one in told} <= set(seen)
        for text in ("write IT", "100% DONE", run["id"]):
            assert [one["id"] for one in (await console.get("/api/runs", text=text, kind="chat"))["runs"]] == [
                run["id"]
            ]
        assert (await console.get("/api/runs", text="10_% done"))["runs"] == []
        assert [one["tool"] for one in (await console.get("/api/denials"))["denials"]] == ["file_write"]
        (queue,) = (await console.get("/api/workers"))["queues"]
        assert queue == {"name": "default", "queued": 0, "running": 0, "waiting": 0, "oldest": None}
        assert (await console.get("/api/overview"))["counts"]["finished"] == 1


async def test_characters_that_postgres_does_not_take_are_no_error(tmp_path, postgres):
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), database=postgres, works=False) as console:
        for path in ("/api/runs/%00", "/api/questions/%00", "/api/runs/%00/events", "/api/sessions/%00"):
            assert (await console.get(path, 404))["error"]["next"]
        for query in ("session=%00", "agent=%00", "text=%00", "status=%00", "before=nan+x", "before=1e400+%00"):
            assert (await console.get(f"/api/runs?{query}"))["runs"] == []
        sent = {"arguments": {"expression": "1"}, "session": "a\0b"}
        refused = await console.post("/api/tools/math_calculate/call", sent, 400)
        assert "session" in refused["error"]["what"]
        sent = {"arguments": {"expression": "1\0"}, "session": "a b"}
        assert (await console.post("/api/tools/math_calculate/call", sent, 201))["run"]["session"] == "a b"
