"""Calls that outlive their request: tasks, for clients that declare the extension."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, Request, RequestParams, Result
from pydantic import ConfigDict

from forge import ToolContext, ToolError, ToolResult, tool
from forge.mcp.server import calls as tasks
from forge.mcp.server import client_call
from tests.mcp.server.test_offer import ERAS, Endless, connected, deploy, offered, person, text

NEW = ERAS[1]


class Task(Result):
    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"]


class Whatever(Result):
    model_config = ConfigDict(extra="allow")


class Tasks(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def claims(self):
        async def resolve(claimed, ctx):
            raise AssertionError("the tests look at the task themselves")

        return [ResultClaim(result_type="task", model=Task, resolve=resolve)]


def following(offer, **options):
    return connected(offer, NEW, extensions=[Tasks()], **options)


async def start(client, name, arguments=None) -> dict[str, Any]:
    answer = await client.session.call_tool(name, arguments or {}, allow_claimed=True, allow_input_required=True)
    return answer.model_dump(by_alias=True)


async def send(client, method, task_id, **params) -> dict[str, Any]:
    class Params(RequestParams):
        model_config = ConfigDict(extra="allow")

    class Ask(Request[Params, str]):
        method: str
        params: Params

    request = Ask(method=method, params=Params.model_validate({"taskId": task_id, **params}))
    return (await client.session.send_request(request, Whatever)).model_dump(by_alias=True)


async def settled(client, task_id, *wanted) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found = await send(client, "tasks/get", task_id)
            if found["status"] in (wanted or ("completed", "failed", "cancelled")):
                return found
            await asyncio.sleep(0.005)


@tool
async def later(ctx: ToolContext, outcome: str = "") -> ToolResult:
    """Continue in the background."""

    async def work() -> str:
        if outcome == "error":
            raise ToolError("it failed")
        if outcome == "crash":
            raise RuntimeError("it broke")
        if outcome == "ask":
            answer = await ctx.ask("Sure?", key="sure")
            return f"{answer['answer']}!" if answer else "no"
        return "over"

    return ctx.background(work, "Started.")


async def test_background_work_is_a_task_with_its_result():
    async with offered(later) as offer, following(offer) as client:
        created = await start(client, "later")
        assert (created["resultType"], created["status"]) == ("task", "working")
        assert isinstance(created["ttlMs"], int)
        over = await settled(client, created["taskId"])
        assert over["status"] == "completed"
        assert over["result"]["content"][0]["text"] == "over"
        assert "requestState" not in over


async def test_the_next_call_does_not_take_a_tasks_result():
    @tool
    def plain() -> str:
        """Return at once."""
        return "plain"

    async with offered(later, plain) as offer, following(offer) as client:
        created = await start(client, "later")
        await asyncio.sleep(0)
        assert text(await client.call_tool("plain", {})) == "plain"
        assert (await settled(client, created["taskId"]))["result"]["content"][0]["text"] == "over"


async def test_an_error_of_the_tool_is_a_result_and_a_crash_is_a_failure():
    async with offered(later) as offer, following(offer) as client:
        failed = await settled(client, (await start(client, "later", {"outcome": "error"}))["taskId"])
        assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
        broken = await settled(client, (await start(client, "later", {"outcome": "crash"}))["taskId"])
        assert (broken["status"], broken["error"]["code"]) == ("failed", -32603)
        assert "result" not in broken


async def test_a_long_call_becomes_a_task(monkeypatch):
    monkeypatch.setattr(client_call, "TASK_AFTER", 0.01)
    endless = Endless()
    async with offered(endless, deploy) as offer, following(offer, elicitation_callback=person({})) as client:
        created = await start(client, "endless")
        assert (await send(client, "tasks/get", created["taskId"]))["status"] == "working"
        assert await send(client, "tasks/cancel", created["taskId"]) | {"_meta": None} == {
            "resultType": "complete",
            "_meta": None,
        }
        assert (await settled(client, created["taskId"]))["status"] == "cancelled"
        async with asyncio.timeout(60):
            await endless.cleaned.wait()
        await send(client, "tasks/cancel", created["taskId"])  # a second time, which does nothing


async def test_a_client_without_the_extension_waits(monkeypatch):
    monkeypatch.setattr(client_call, "TASK_AFTER", 0.01)

    @tool
    async def slow() -> str:
        """Take a moment."""
        await asyncio.sleep(0.05)
        return "done"

    async with offered(slow, later) as offer:
        for era in ERAS:
            async with connected(offer, era) as client:
                assert text(await client.call_tool("slow", {})) == "done"
                assert text(await client.call_tool("later", {})) == "Started."


async def test_a_task_asks_through_its_state():
    async with offered(later) as offer, following(offer, elicitation_callback=person({})) as client:
        created = await start(client, "later", {"outcome": "ask"})
        waiting = await settled(client, created["taskId"], "input_required")
        assert waiting["inputRequests"]["sure"]["method"] == "elicitation/create"
        answer = {"action": "accept", "content": {"answer": "yes"}}
        await send(client, "tasks/update", created["taskId"], inputResponses={"other": answer, "sure": {"no": 1}})
        assert (await send(client, "tasks/get", created["taskId"]))["status"] == "input_required"
        await send(client, "tasks/update", created["taskId"], inputResponses={"sure": answer})
        assert (await settled(client, created["taskId"]))["result"]["content"][0]["text"] == "yes!"


async def test_a_question_before_the_work_starts_comes_before_the_task():
    @tool
    async def both(ctx: ToolContext) -> ToolResult:
        """Ask, then continue in the background."""
        answer = await ctx.ask("Who?", key="who")

        async def work() -> str:
            return f"Hello, {answer}"

        return ctx.background(work, "Started.")

    async with offered(both) as offer, following(offer, elicitation_callback=person({})) as client:
        asked = await client.session.call_tool("both", {}, allow_claimed=True, allow_input_required=True)
        assert list(asked.input_requests) == ["who"]
        answers = {"who": ElicitResult(action="accept", content={"answer": "Bo"})}
        state = asked.request_state
        created = await client.session.call_tool(
            "both", {}, allow_claimed=True, input_responses=answers, request_state=state
        )
        found = created.model_dump(by_alias=True)
        assert "Bo" in (await settled(client, found["taskId"]))["result"]["content"][0]["text"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_tasks_are_for_those_who_know_their_id_and_declare_them(method):
    async with offered(later) as offer:
        async with following(offer) as client:
            with pytest.raises(MCPError) as refused:
                await send(client, method, "guessed")
            assert refused.value.error.code == -32602
        async with connected(offer, NEW) as client:
            with pytest.raises(MCPError) as refused:
                await send(client, method, "guessed")
            assert refused.value.error.code == -32021
        async with connected(offer, "legacy") as client:
            with pytest.raises(MCPError, match="Method not found"):
                await send(client, method, "guessed")


async def test_tasks_are_bounded_and_expire(monkeypatch):
    monkeypatch.setattr(tasks, "MOST_TASKS", 1)
    async with offered(later) as offer, following(offer) as client:
        created = await start(client, "later")
        assert text(await client.call_tool("later", {})) == "Started."  # no room: as for other clients
        monkeypatch.setattr(tasks, "KEPT", 0.0)
        with pytest.raises(MCPError, match="expired"):
            await send(client, "tasks/get", created["taskId"])
        offer.calls.tasks.remove_expired()
        assert offer.calls.tasks.has_room


async def test_the_end_of_the_server_ends_its_tasks(monkeypatch):
    monkeypatch.setattr(client_call, "TASK_AFTER", 0.01)
    endless = Endless()
    async with offered(endless) as offer, following(offer) as client:
        await start(client, "endless")
        assert not endless.cleaned.is_set()
    assert endless.cleaned.is_set()


async def test_clients_that_cannot_be_told_apart_wait_for_their_own_background_work():
    """A late result with the next call could reach another client."""
    go = asyncio.Event()

    @tool
    async def apart(ctx: ToolContext, word: str) -> ToolResult:
        """Continue in the background."""

        async def work() -> str:
            await go.wait()
            answer = await ctx.ask("Sure?")
            return f"{word}: {answer['answer'] if answer else 'no'}"

        return ctx.background(work, "Started.")

    @tool
    def plain() -> str:
        """Return at once."""
        return "plain"

    async with offered(apart, plain) as offer:
        offer.serve_many()
        answers = person({"answer": "yes"})
        async with connected(offer, NEW, elicitation_callback=answers) as one, connected(offer, NEW) as other:
            calls = [asyncio.create_task(one.call_tool("apart", {"word": word})) for word in ("a", "b")]
            assert text(await other.call_tool("plain", {})) == "plain"
            go.set()
            assert [text(answer) for answer in await asyncio.gather(*calls)] == ["a: yes", "b: yes"]
            assert text(await other.call_tool("plain", {})) == "plain"


async def test_a_cancelled_request_cancels_the_background_work_that_it_waits_for():
    started, cleaned = asyncio.Event(), asyncio.Event()

    @tool
    async def apart(ctx: ToolContext) -> ToolResult:
        """Continue in the background."""

        async def work() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.set()
            return "never"

        return ctx.background(work, "Started.")

    async with offered(apart) as offer:
        offer.serve_many()
        async with connected(offer, NEW) as client:
            call = asyncio.create_task(client.call_tool("apart", {}))
            await started.wait()
            call.cancel()
            async with asyncio.timeout(60):
                await cleaned.wait()
