"""A run is repeated from one of its steps, and a session is copied up to a message; the old ones stay as they are."""

from __future__ import annotations

from itertools import product

import pytest

from forge.agent.session import SessionStore
from forge.core.messages import Message
from tests.console.conftest import call, running_console, script

TURNS = (call("file_read", path="a.txt"), call("glob_search", pattern="*.txt"), "Done.")


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    return tmp_path


async def finished_run(console) -> tuple[str, list[dict]]:
    run = (await console.post("/api/runs", {"prompt": "look around"}, 201))["run"]["id"]
    await console.run_is(run, "finished")
    return run, (await console.get(f"/api/runs/{run}/messages"))["messages"]


async def test_a_run_is_repeated_from_a_call(workspace):
    async with running_console(workspace, model=script(workspace, *TURNS)) as console:
        run, messages = await finished_run(console)
        second = next(
            one for message in messages for one in message.get("tool_calls", ()) if one["name"] == "glob_search"
        )
        wanted = {"call": second["id"]}
        told = await console.post(f"/api/runs/{run}/rerun", wanted)
        assert (told["written"], told["turns"]) == (False, 2)
        assert [one["name"] for one in told["calls"]] == ["glob_search"]
        assert len((await console.get("/api/runs"))["runs"]) == 1

        again = (await console.post(f"/api/runs/{run}/rerun", {**wanted, "say": "Be brief.", "write": True}, 201))[
            "run"
        ]
        assert (again["rerun_of"], again["prompt"], again["id"] != run) == (run, "look around", True)
        await console.run_is(again["id"], "finished")
        said = (await console.get(f"/api/runs/{again['id']}/messages"))["messages"]
        kept = told["kept"]
        assert [one["text"] for one in said[:kept]] == [one["text"] for one in messages[:kept]]
        assert (said[kept]["role"], said[kept]["text"]) == ("user", "Be brief.")
        assert (await console.get(f"/api/runs/{run}/messages"))["messages"] == messages


@pytest.mark.slow
async def test_a_run_is_repeated_from_a_message(workspace):
    async with running_console(workspace, model=script(workspace, *TURNS)) as console:
        run, messages = await finished_run(console)
        roles = [one["role"] for one in messages]
        person, first = roles.index("user"), roles.index("assistant")
        for number in (person, first):
            told = await console.post(f"/api/runs/{run}/rerun", {"message": number})
            assert (told["kept"], told["turns"], len(told["calls"])) == (first, 3, 2)
        again = (await console.post(f"/api/runs/{run}/rerun", {"message": first, "write": True}, 201))["run"]["id"]
        assert (await console.run_is(again, "finished"))["text"] == "Done."


async def test_an_unknown_step_is_refused(workspace):
    wrongs: list[tuple[dict[str, object], int]] = [
        ({"call": "nothing"}, 404), ({"message": 99}, 400), ({"message": True}, 400), ({}, 400), ({"call": 5}, 400)
    ]  # fmt: skip
    async with running_console(workspace, model=script(workspace, "Hi.")) as console:
        run, _ = await finished_run(console)
        for (wrong, status), write in product(wrongs, ({}, {"write": True})):
            error = (await console.post(f"/api/runs/{run}/rerun", {**wrong, **write}, status))["error"]
            assert error["next"]
        assert len((await console.get("/api/runs"))["runs"]) == 1


@pytest.mark.slow
async def test_a_single_call_and_a_result_are_no_place_to_begin(workspace):
    async with running_console(workspace, model=script(workspace, *TURNS)) as console:
        run, messages = await finished_run(console)
        result = next(number for number, one in enumerate(messages) if one["role"] == "tool")
        assert (
            "role is tool" in (await console.post(f"/api/runs/{run}/rerun", {"message": result}, 400))["error"]["what"]
        )
        alone = (await console.post("/api/tools/file_read/call", {"arguments": {"path": "a.txt"}}, 201))["run"]["id"]
        await console.run_is(alone, "finished")
        error = (await console.post(f"/api/runs/{alone}/rerun", {"message": 0}, 409))["error"]
        assert "single tool call" in error["what"]


@pytest.mark.slow
async def test_a_session_is_copied_up_to_a_message_and_continued(workspace):
    with SessionStore.of(workspace) as sessions:
        sessions.open("talk").append(Message("user", "hello"), Message("assistant", "hi"), Message("user", "more"))
    async with running_console(workspace, model=script(workspace, "Again.")) as console:
        told = await console.post("/api/sessions/talk/fork", {"upto": 2, "new": "talk-2"}, 201)
        assert (told["session"], told["run"]) == ({"name": "talk-2", "messages": 2}, None)
        said = (await console.get("/api/sessions/talk-2/messages"))["messages"]
        assert [one["text"] for one in said] == ["hello", "hi"]
        assert (await console.get("/api/sessions/talk"))["messages"] == 3

        assert (await console.post("/api/sessions/talk/fork", {"upto": 2, "new": "talk-2"}, 409))["error"]["next"]
        assert (await console.post("/api/sessions/talk/fork", {"upto": 0}, 400))["error"]["next"]
        assert (await console.post("/api/sessions/nobody/fork", {"upto": 1}, 404))["error"]["next"]

        told = await console.post("/api/sessions/talk/fork", {"upto": 2, "say": "and now?"}, 201)
        assert told["session"]["name"].startswith("talk-")
        ended = await console.run_is(told["run"]["id"], "finished")
        assert (ended["session"], ended["text"]) == (told["session"]["name"], "Again.")


async def test_without_a_model_or_a_token_nothing_is_repeated(workspace):
    with SessionStore.of(workspace) as sessions:
        sessions.open("talk").append(Message("user", "hello"), Message("assistant", "hi"))
    async with running_console(workspace, works=False) as console:
        error = (await console.post("/api/sessions/talk/fork", {"upto": 1, "say": "x"}, 409))["error"]
        assert "no model" in error["what"]
        await console.post("/api/sessions/talk/fork", {"upto": 1}, 201)
        console.client.headers.pop("x-forge-token")
        assert (await console.client.post("/api/sessions/talk/fork", json={"upto": 1})).status_code == 403


def allowing(workspace) -> str:
    (workspace / "rules.txt").write_text("allow write\n")
    return str(workspace / "rules.txt")


async def test_a_session_is_rewound_after_its_preview_and_back_again(workspace):
    turns = (call("file_write", path="b.txt", content="two\n"), "Done.")
    async with running_console(workspace, model=script(workspace, *turns), policy=allowing(workspace)) as console:
        begun = (await console.post("/api/runs", {"prompt": "write it", "session": "talk"}, 201))["run"]["id"]
        await console.run_is(begun, "finished")
        await console.get("/api/sessions/talk")
        path = "/api/sessions/talk/rewind"
        told = await console.post(path, {"turn": 0})
        assert (told["is_done"], told["problem"], told["effects"]["summary"]) == (False, "", "deletes 1 file")
        assert "-two" in told["diff"]
        listed = await console.get("/api/sessions/talk/turns")
        assert [one["files"] for one in listed["turns"]] == [["b.txt"], []]
        assert listed["is_rewound"] is False
        assert (await console.post(path, {"turn": 0, "write": True}, 400))["error"]["next"]
        assert (await console.post(path, {"turn": True}, 400))["error"]["next"]
        assert (await console.post(path, {"turn": 0, "write": True, "expect": "another"}, 409))["error"]["next"]
        assert (workspace / "b.txt").read_text() == "two\n"
        assert (await console.post(path, {"turn": 0, "write": True, "expect": told["digest"]}))["is_done"]
        assert not (workspace / "b.txt").exists()
        assert (await console.get("/api/sessions/talk/messages"))["messages"] == []
        assert (await console.get("/api/sessions/talk/turns"))["is_rewound"] is True
        back = await console.post(path, {"turn": None})
        await console.post(path, {"turn": None, "write": True, "expect": back["digest"]})
        assert (workspace / "b.txt").read_text() == "two\n"
        log = (workspace / ".forge" / "audit.ndjson").read_text()
        assert log.count('"session_rewound"') == 2


async def test_a_session_whose_file_somebody_changed_is_not_rewound(workspace):
    turns = (call("file_write", path="b.txt", content="two\n"), "Done.")
    async with running_console(workspace, model=script(workspace, *turns), policy=allowing(workspace)) as console:
        begun = (await console.post("/api/runs", {"prompt": "write it", "session": "talk"}, 201))["run"]["id"]
        await console.run_is(begun, "finished")
        (workspace / "b.txt").write_text("mine\n")
        told = await console.post("/api/sessions/talk/rewind", {"turn": 0})
        assert "b.txt" in told["problem"]
        body = {"turn": 0, "write": True, "expect": told["digest"]}
        assert (await console.post("/api/sessions/talk/rewind", body, 409))["error"]["next"]
        assert (workspace / "b.txt").read_text() == "mine\n"
