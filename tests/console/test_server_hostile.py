"""Whatever is sent, wherever to: an answer in three parts, and a console that goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

from forge.console.server import GET, POST
from tests.console.conftest import Console, call, running_console, script
from tests.quick import pairs

NAMES = {"id": "run-nope", "name": "math_calculate", "number:int": "7", "index:int": "0", "name:path": "a/b"}
FIELDS: dict[str, dict[str, Any]] = {  # what each change takes, as it should be
    "/api/questions/{id}/answer": {"kind": "once", "feedback": "f", "arguments": {}},
    "/api/questions/{id}/check": {"arguments": {}},
    "/api/runs": {"prompt": "p", "session": "s"},
    "/api/runs/migrate": {},
    "/api/runs/questions": {"runs": ["r"]},
    "/api/runs/retry": {"runs": ["r"], "write": True},
    "/api/runs/delete": {"runs": ["r"], "write": True},
    "/api/runs/{id}/mark": {"verdict": "good", "note": "n"},
    "/api/runs/{id}/cancel": {},
    "/api/runs/{id}/resume": {"say": "s"},
    "/api/runs/{id}/answer": {"text": "t"},
    "/api/runs/{id}/send": {"text": "t"},
    "/api/runs/{id}/undo": {"call": "c", "turn": "t"},
    "/api/tools/{name}/call": {"arguments": {"expression": "1"}, "session": "s"},
    "/api/tools/{name}/check": {"arguments": {"expression": "1"}},
    "/api/tools/{name}/copy": {"arguments": {"expression": "1"}},
    "/api/policy/explain": {"tool": "bash", "arguments": {"command": "ls"}, "agent": "main"},
    "/api/policy/rule": {"rule": "allow read", "was": "x", "write": True, "confirm": True},
    "/api/runs/{id}/rerun": {"call": "c", "message": 0, "say": "s", "write": True},
    "/api/sessions/{name}/fork": {"upto": 1, "new": "n", "say": "s"},
    "/api/sessions/{name}/rewind": {"turn": 1, "expect": "e", "write": True},
    "/api/memory/note": {"content": "c", "target": "memory", "write": True},
    "/api/schedules": {
        "cron": "@daily",
        "task": "t",
        "id": "i",
        "timezone": "UTC",
        "skill": "s",
        "channel": "c",
        "channel_target": "t",
        "one_shot": True,
        "enabled": True,
        "replaces": True,
        "write": True,
    },
    "/api/schedules/{id}/remove": {},
    "/api/schedules/{id}/pause": {},
    "/api/schedules/{id}/resume": {},
    "/api/schedules/{id}/run": {},
}
NO_OBJECTS = [
    b"null", b"[]", b"1", b'"x"', b"{", b"\xff\xfe{", b"{}{}", b"[" * 5_000 + b"]" * 5_000, b'{"x": NaN}',
    b'{"x": [1e400]}', b'{"x": -Infinity}', b'{"x": "\\ud800"}', b'{"\\udfff": 1}', b'{"x": ' + b"9" * 5_000 + b"}",
    b'{"arguments": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
]  # fmt: skip
WRONG: list[Any] = [
    None,
    1,
    True,
    [],
    {},
    "",
    "\0",
    "x" * 300_000,
    {"a": {"b": [None]}},
    "../../x",
    "a/b",
    "\u202e\u2028",
    "a\nb",
]


def at(path: str) -> str:
    for name, value in NAMES.items():
        path = path.replace(f"{{{name}}}", value)
    return path


async def refused(console: Console, path: str, body: bytes) -> int:
    headers = {"x-forge-token": console.token, "content-type": "application/json"}
    answer = await console.client.post(at(path), content=body, headers=headers)
    told = answer.json()
    assert answer.status_code < 500, (path, body[:80], answer.text)
    if answer.status_code >= 400:
        assert all(told["error"][part] for part in ("what", "why", "next")), (path, body[:80], answer.text)
    return answer.status_code


def test_every_change_is_tried_here():
    assert set(FIELDS) == set(POST)


async def test_no_body_makes_a_change_fail_badly(tmp_path, monkeypatch):
    monkeypatch.setattr("forge.models.vendors.default_model", lambda: None)
    async with running_console(tmp_path, works=False) as console:
        for path, fields in FIELDS.items():
            for body in NO_OBJECTS:
                assert await refused(console, path, body) == 400, (path, body[:80])
            for name, wrong in pairs(fields, WRONG):
                await refused(console, path, json.dumps({**fields, name: wrong}).encode())
        good = await console.post("/api/tools/math_calculate/check", {"arguments": {"expression": "1"}})
        assert good["problems"] == []


async def test_no_address_makes_a_look_fail_badly(tmp_path, monkeypatch):
    monkeypatch.setattr("forge.models.vendors.default_model", lambda: None)
    queries = ["after=-1", "after=1e9", f"after={'9' * 30}", "limit=NaN", "limit=-5", "before=nan x", "before=1e400 x",
               "before=%00", "status=%00,x", "text=%25%ff", "kind=z", "tail=-3", "since=-1", "q=%00",
               "name=../../etc/x", "name=%00", "as=html", "session=%00", f"text={'x' * 3_000}",
               "days=-1", "tool=%00"]  # fmt: skip
    ids = ["%00", "%ff%fe", "a%2Fb", "..%2F..%2Fx", "%E2%80%AE", "%F0%9F%98%80", "x" * 1_000, "%25", "-"]
    async with running_console(tmp_path, works=False) as console:
        paths = [f"{at(path)}?{query}" for path, query in pairs(GET, queries)]
        paths += [path.replace("{id}", one).replace("{name}", one) for path in GET if "{" in path for one in ids]
        for path in paths:
            answer = await console.client.get(at(path))
            assert answer.status_code < 500, (path[:200], answer.text)
            if answer.status_code >= 400:
                assert all(answer.json()["error"][part] for part in ("what", "why", "next")), (path[:200], answer.text)
        assert (await console.get("/api/runs", limit=5, text="nothing"))["runs"] == []


async def test_a_session_is_found_by_whatever_name_it_has(tmp_path):
    async with running_console(tmp_path, model=script(tmp_path, "Hello.")) as console:
        for name in ("team/alice", "demo", "50% off?", "ü #1"):
            at_session = f"/api/sessions/{quote(name, safe='')}"
            is_demo = name == "demo"
            assert (await console.get(at_session, 200 if is_demo else 404)).get("is_demo", False) is is_demo
            run = (await console.post("/api/runs", {"prompt": "hi", "session": name}, 201))["run"]
            await console.run_is(run["id"], "finished")
            await console.post("/api/runs", {"prompt": "again", "session": name}, 201)  # which keeps the first
            found = await console.get(at_session)
            assert (found["name"], found["is_demo"]) == (name, False)
            assert run["id"] in [one["id"] for one in found["runs"]]
            events = (await console.get(f"{at_session}/events"))["events"]
            assert events[0]["event"]["prompt"] == "hi"
            assert (await console.get(f"{at_session}/messages"))["messages"]
            sessions = [one for one in (await console.get("/api/sessions"))["sessions"] if one["name"] == name]
            assert [one["is_demo"] for one in sessions] == [False]


async def test_two_who_answer_at_the_same_moment_are_not_both_heard(tmp_path):
    model = script(tmp_path, call("file_write", path="a.txt", content="hi"), "Done.")
    async with running_console(tmp_path, model=model) as console:
        run = (await console.post("/api/runs", {"prompt": "write"}, 201))["run"]
        question = await console.question()
        headers = {"x-forge-token": console.token}
        path = f"/api/questions/{question['id']}/answer"
        answers = await asyncio.gather(
            *(console.client.post(path, json={"kind": kind}, headers=headers) for kind in ("once", "no", "once", "no"))
        )
        assert sorted(one.status_code for one in answers) == [200, 409, 409, 409]
        (taken,) = [one.json()["question"]["answer"]["kind"] for one in answers if one.status_code == 200]
        told = {one.json()["question"]["answer"]["kind"] for one in answers if one.status_code == 409}
        assert told == {taken}
        await console.run_is(run["id"], "finished")
        assert (tmp_path / "a.txt").exists() is (taken == "once")


async def test_other_arguments_do_not_get_around_a_rule(tmp_path):
    (tmp_path / "policy").write_text("ask write **\ndeny write secret/**\n")
    model = script(tmp_path, call("file_write", path="a.txt", content="hi"), "Well.")
    async with running_console(tmp_path, model=model, policy=str(tmp_path / "policy")) as console:
        for path, is_written in (("secret/x", False), ("b.txt", True)):
            run = (await console.post("/api/runs", {"prompt": "write"}, 201))["run"]
            question = await console.question()
            wanted = {"path": path, "content": "hi"}
            checked = await console.post(f"/api/questions/{question['id']}/check", {"arguments": wanted})
            assert checked["decision"] == ("ask" if is_written else "deny")
            await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once", "arguments": wanted})
            await console.run_is(run["id"], "finished")
            assert (tmp_path / path).exists() is is_written
            assert not (tmp_path / "a.txt").exists()
