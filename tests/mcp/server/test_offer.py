"""An executor's tools as MCP clients see them, in both eras of the protocol, with the official client."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from forge import Attachment, Tool, ToolContext, ToolRegistry, ToolResult, rules, tool
from forge.core.context import Scope
from forge.mcp.server import ElicitingApprover, calls, client_call
from forge.mcp.server import offer as offer_module
from forge.mcp.server.handlers import make_server
from forge.mcp.server.offer import Offer
from forge.pipeline import standard_executor
from forge.tools.conversation import converse
from forge.tools.tool_search import ToolSearch

ERAS = ("legacy", "2026-07-28")


@pytest.fixture(params=ERAS)
def era(request):
    return request.param


@tool
def add(a: int, b: int = 1) -> dict:
    """Add two numbers."""
    return {"sum": a + b}


@tool(permissions={"execute"}, target="service")
def deploy(service: str) -> str:
    """Deploy a service."""
    return f"{service} is live"


@tool(permissions={"read"}, idempotent=True, target="name")
def look(name: str) -> str:
    """Look something up."""
    return f"{name}: fine"


@tool(permissions={"network"}, target="url")
def reach(url: str) -> str:
    """Reach for something far away."""
    return url


@tool(hidden=True)
def resize_picture() -> str:
    """Make a picture smaller."""
    return "small"


@tool
async def busy(ctx: ToolContext) -> str:
    """Work for a while and say so."""
    ctx.progress("one", done=1, total=3)
    await asyncio.sleep(0)
    ctx.output("\x1b[31mhalf-way\x1b[0m\n")
    ctx.progress("three", done=3, total=3)
    return "done"


class Endless(Tool):
    """Never end."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cleaned = asyncio.Event()

    async def run(self) -> str:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # a clean-up that takes more than one step
            self.cleaned.set()
        return "never"


@asynccontextmanager
async def offered(*tools, policy=None, everything=False, **options):
    registry = ToolRegistry(tools)
    executor = standard_executor(registry, policy=policy, approve=ElicitingApprover(), **options)
    offer = Offer(executor, Scope(), everything=everything)
    async with offer.open():
        yield offer


def connected(offer, era, **options):
    return Client(make_server(offer), mode=era, cache=None, **options)


def person(content=None, action="accept", asked=None):
    async def answer(ctx, params):
        if asked is not None:
            asked.append(params)
        return ElicitResult(action=action, content=content)

    return answer


def text(answer):
    return "\n".join(block.text for block in answer.content if block.type == "text")


async def test_a_call_gives_text_and_structured_content(era):
    async with offered(add) as offer, connected(offer, era) as client:
        answer = await client.call_tool("add", {"a": 2, "b": 3})
        assert json.loads(text(answer)) == {"sum": 5}
        assert answer.structured_content == {"sum": 5}
        assert not answer.is_error


async def test_tools_are_listed_with_what_their_permissions_mean(era):
    async with offered(add, deploy, look, converse) as offer, connected(offer, era) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        assert set(listed) == {"add", "deploy", "look"}
        assert listed["add"].input_schema["required"] == ["a"]
        assert listed["add"].description == "Add two numbers."
        hints = {name: one.annotations for name, one in listed.items()}
        assert hints["look"].read_only_hint
        assert hints["look"].idempotent_hint
        assert not hints["look"].destructive_hint
        assert hints["deploy"].destructive_hint
        assert not hints["deploy"].read_only_hint
        assert not hints["deploy"].open_world_hint
        assert listed["deploy"].meta["forge/permissions"] == ["execute"]


async def test_what_reaches_the_network_is_an_open_world():
    async with offered(reach) as offer, connected(offer, "legacy") as client:
        (found,) = (await client.list_tools()).tools
        assert found.annotations.open_world_hint
        assert found.annotations.destructive_hint
        assert not found.annotations.read_only_hint


async def test_an_unknown_tool_is_an_error_of_the_protocol(era):
    async with offered(add, converse) as offer, connected(offer, era) as client:
        for name in ("ad", "converse", "x" * 10_000):
            with pytest.raises(MCPError) as error:
                await client.call_tool(name, {})
            assert error.value.code == -32602
            assert len(error.value.message) < 300


async def test_wrong_arguments_are_an_error_the_model_sees(era):
    async with offered(add) as offer, connected(offer, era) as client:
        answer = await client.call_tool("add", {"a": "many"})
        assert answer.is_error
        assert "a: expected integer" in text(answer)
        assert answer.meta["forge/error_type"] == "validation_error"


async def test_a_failing_tool_is_an_error_the_model_sees(era):
    @tool
    def fails() -> str:
        """Fail."""
        raise ValueError("no luck")

    async with offered(fails) as offer, connected(offer, era) as client:
        answer = await client.call_tool("fails", {})
        assert answer.is_error
        assert "no luck" in text(answer)


async def test_attachments_go_as_what_they_are(era):
    @tool
    def draw() -> ToolResult:
        """Draw."""
        attached = (
            Attachment("image/png", b"\x89PNG", "a.png"),
            Attachment("audio/wav", b"RIFF", "b.wav"),
            Attachment("application/pdf", b"%PDF", "c d.pdf"),
            Attachment("text/csv", b"a,b\n", "e.csv"),
            Attachment("text/plain", b"\xff", ""),
        )
        return ToolResult(for_llm="drawn", attachments=attached)

    async with offered(draw) as offer, connected(offer, era) as client:
        said, image, audio, pdf, csv, raw = (await client.call_tool("draw", {})).content
        assert (said.text, image.type, audio.type) == ("drawn", "image", "audio")
        assert (image.mime_type, image.data) == ("image/png", "iVBORw==")
        assert pdf.resource.blob == "JVBERg=="
        assert str(pdf.resource.uri).endswith("/3/c%20d.pdf")
        assert csv.resource.text == "a,b\n"
        assert raw.resource.blob == "/w=="


async def test_data_that_is_too_large_is_left_out_and_counted(era):
    @tool
    def pile() -> ToolResult:
        """Pile up."""
        return ToolResult(for_llm="piled", data={str(number): "x" * 1_000 for number in range(2_000)})

    async with offered(pile) as offer, connected(offer, era) as client:
        answer = await client.call_tool("pile", {})
        assert text(answer) == "piled"
        assert answer.structured_content is None
        assert answer.meta["forge/structured_left_out"] > 2_000_000


async def test_progress_and_output_reach_a_client_that_wants_them():
    heard: list = []

    async def hear(progress, total, message):
        heard.append((progress, total, message))

    async with offered(busy) as offer, connected(offer, "legacy") as client:
        answer = await client.call_tool("busy", {}, progress_callback=hear)
        assert text(answer) == "done"
        assert (3.0, 3.0, "three") in heard
        assert "half-way" in [message for _, _, message in heard]
        assert [one[0] for one in heard] == sorted({one[0] for one in heard})
        assert not offer.executor.activity.listening


async def test_without_a_progress_token_nobody_listens(era):
    async with offered(busy) as offer, connected(offer, era) as client:
        assert text(await client.call_tool("busy", {})) == "done"
        assert not offer.executor.activity.listening


async def test_cancelling_a_call_lets_the_tool_clean_up(era):
    endless = Endless()
    async with offered(endless, add) as offer, connected(offer, era) as client:
        waiting = asyncio.create_task(client.call_tool("endless", {}))
        await endless.started.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(endless.cleaned.wait(), 60)
        assert text(await client.call_tool("add", {"a": 1}))


async def test_calls_of_a_client_that_leaves_are_cancelled():
    endless = Endless()
    async with offered(endless) as offer:
        async with connected(offer, "legacy") as client:
            waiting = asyncio.create_task(client.call_tool("endless", {}))
            await endless.started.wait()
        await asyncio.wait_for(endless.cleaned.wait(), 60)
        with pytest.raises(MCPError):
            await waiting


@pytest.mark.slow
async def test_a_thousand_calls_at_once_are_all_answered(era):
    async with offered(add) as offer, connected(offer, era) as client:
        answers = await asyncio.gather(*(client.call_tool("add", {"a": number}) for number in range(1_000)))
        assert [answer.structured_content["sum"] for answer in answers] == list(range(1, 1_001))


async def test_too_many_calls_are_refused_and_the_rest_goes_on(era, monkeypatch):
    monkeypatch.setattr(calls, "MOST_WAITING", 2)
    endless = Endless()
    async with offered(endless) as offer, connected(offer, era) as client:
        waiting = [asyncio.create_task(client.call_tool("endless", {})) for _ in range(2)]
        await endless.started.wait()
        answer = await client.call_tool("endless", {})
        assert answer.is_error
        assert answer.meta["forge/error_type"] == "rate_limited"
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await asyncio.wait_for(endless.cleaned.wait(), 60)


# approvals


async def test_a_person_is_asked_through_the_client_and_sees_what_will_run(era):
    asked: list = []
    answers = person({"decision": "once", "feedback": "only today"}, asked=asked)
    async with offered(deploy) as offer, connected(offer, era, elicitation_callback=answers) as client:
        answer = await client.call_tool("deploy", {"service": "shop"})
        assert "shop is live" in text(answer)
        assert "only today" in text(answer)
        assert "execute shop" in asked[0].message
        assert asked[0].requested_schema["properties"]["decision"]["enum"] == ["once", "always", "no"]
        await client.call_tool("deploy", {"service": "shop"})
        assert len(asked) == 2


async def test_always_is_remembered_for_the_session(era):
    asked: list = []
    answers = person({"decision": "always"}, asked=asked)
    async with offered(deploy) as offer, connected(offer, era, elicitation_callback=answers) as client:
        for _ in range(2):
            assert text(await client.call_tool("deploy", {"service": "shop"})) == "shop is live"
        assert len(asked) == 1


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ({"decision": "no", "feedback": "not on Fridays"}, "accept"),
        ({"decision": "yes"}, "accept"),
        ({}, "accept"),
        (None, "accept"),
        ({"decision": "once"}, "decline"),
        (None, "cancel"),
    ],
)
async def test_anything_but_a_clear_yes_is_a_no(era, content, action):
    answers = person(content, action)
    async with offered(deploy) as offer, connected(offer, era, elicitation_callback=answers) as client:
        answer = await client.call_tool("deploy", {"service": "shop"})
        assert answer.is_error
        assert "the person refused" in text(answer)
        assert answer.meta["forge/error_type"] == "permission_error"
        if content and "feedback" in content:
            assert "not on Fridays" in text(answer)


async def test_a_client_that_cannot_ask_is_refused_and_told_what_would_allow_it(era):
    async with offered(deploy) as offer, connected(offer, era) as client:
        answer = await client.call_tool("deploy", {"service": "shop"})
        assert answer.is_error
        assert "there is no one to ask" in text(answer)
        assert "allow execute shop" in text(answer)


async def test_a_rule_answers_before_anybody_is_asked(era):
    async with offered(deploy, policy=rules("allow execute")) as offer, connected(offer, era) as client:
        assert text(await client.call_tool("deploy", {"service": "shop"})) == "shop is live"


async def test_a_client_whose_form_fails_gets_a_no():
    async def broken(ctx, params):
        raise RuntimeError("no screen")

    async with offered(deploy) as offer, connected(offer, "legacy", elicitation_callback=broken) as client:
        answer = await client.call_tool("deploy", {"service": "shop"})
        assert answer.is_error
        assert "the person refused" in text(answer)


async def test_secrets_are_masked_in_what_the_person_is_shown(era):
    asked: list = []
    answers = person({"decision": "no"}, asked=asked)
    async with (
        offered(deploy, secrets=["hunter2hunter2"]) as offer,
        connected(offer, era, elicitation_callback=answers) as client,
    ):
        await client.call_tool("deploy", {"service": "hunter2hunter2"})
        assert "hunter2hunter2" not in asked[0].message


async def test_questions_by_return_are_open_once_and_for_the_same_call_only():
    async with offered(deploy) as offer, connected(offer, ERAS[1], elicitation_callback=person({})) as client:
        session = client.session

        async def call(arguments, **more):
            return await session.call_tool("deploy", arguments, allow_input_required=True, **more)

        question = await call({"service": "shop"})
        yes = {"approval": ElicitResult(action="accept", content={"decision": "once"})}
        for arguments, state in (({"service": "bank"}, question.request_state), ({"service": "shop"}, "guessed")):
            with pytest.raises(MCPError, match="no longer open"):
                await call(arguments, input_responses=yes, request_state=state)
        answer = await call({"service": "shop"}, input_responses=yes, request_state=question.request_state)
        assert text(answer) == "shop is live"
        with pytest.raises(MCPError, match="no longer open"):
            await call({"service": "shop"}, input_responses=yes, request_state=question.request_state)


async def test_a_question_that_nobody_comes_back_to_does_not_keep_others_waiting(monkeypatch):
    monkeypatch.setattr(client_call, "HURRY", 0.01)
    answers = person({"decision": "once"})
    async with offered(deploy) as offer, connected(offer, ERAS[1], elicitation_callback=answers) as client:
        await client.session.call_tool("deploy", {"service": "shop"}, allow_input_required=True)
        assert text(await client.call_tool("deploy", {"service": "bank"})) == "bank is live"


async def test_a_question_nobody_answers_is_a_no(monkeypatch):
    monkeypatch.setattr(client_call, "PATIENCE", 0.01)
    never = asyncio.Event()

    async def silent(ctx, params):
        await never.wait()

    async with offered(deploy) as offer, connected(offer, "legacy", elicitation_callback=silent) as client:
        answer = await client.call_tool("deploy", {"service": "shop"})
        assert answer.is_error


# the list changes


async def test_clients_hear_that_the_tools_changed(monkeypatch):
    monkeypatch.setattr(offer_module, "EVERY", 0.01)
    heard = asyncio.Event()

    async def hear(message):
        if "list_changed" in str(getattr(message, "method", "")):
            heard.set()

    async with offered(add) as offer, connected(offer, "legacy", message_handler=hear) as client:
        assert client.session.initialize_result.capabilities.tools.list_changed
        assert [one.name for one in (await client.list_tools()).tools] == ["add"]
        offer.registry.add(look)
        await asyncio.wait_for(heard.wait(), 60)
        assert [one.name for one in (await client.list_tools()).tools] == ["add", "look"]


async def test_later_clients_hear_it_on_the_stream_they_listen_to(monkeypatch):
    monkeypatch.setattr(offer_module, "EVERY", 0.01)
    async with (
        offered(add) as offer,
        connected(offer, ERAS[1]) as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        offer.registry.add(look)
        assert type(await asyncio.wait_for(anext(aiter(changes)), 60)).__name__ == "ToolsListChanged"


async def test_hidden_tools_are_listed_once_they_were_found(era):
    async with offered(add, resize_picture) as offer:
        offer.registry.add(ToolSearch(offer.registry))
        async with connected(offer, era) as client:
            assert {one.name for one in (await client.list_tools()).tools} == {"add", "tool_search"}
            await client.call_tool("tool_search", {"query": "resize picture"})
            assert "resize_picture" in {one.name for one in (await client.list_tools()).tools}
            assert text(await client.call_tool("resize_picture", {})) == "small"


async def test_nothing_is_hidden_where_nothing_can_be_found(era):
    async with offered(resize_picture) as offer, connected(offer, era) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["resize_picture"]


async def test_one_broken_definition_does_not_take_the_others_along(era):
    def broken():
        raise RuntimeError("no schema today")

    async with offered(add, Tool.define("late", broken)) as offer, connected(offer, era) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["add"]
        assert text(await client.call_tool("add", {"a": 1}))


async def test_background_work_that_is_over_is_told_with_the_next_call(era):
    go = asyncio.Event()

    @tool
    async def brew(ctx: ToolContext) -> ToolResult:
        """Brew coffee."""

        async def work() -> str:
            await go.wait()
            return "coffee is ready"

        return ctx.background(work, "brewing")

    async with offered(brew, add) as offer, connected(offer, era) as client:
        assert text(await client.call_tool("brew", {})) == "brewing"
        go.set()
        await offer.executor.background.settled()
        assert "coffee is ready" in text(await client.call_tool("add", {"a": 1}))
        assert "coffee" not in text(await client.call_tool("add", {"a": 1}))


async def test_calls_from_nobody_are_asked_elsewhere():
    async def yes(request):
        from forge import Answer

        return Answer.ONCE

    from forge.core.messages import ToolCall

    for otherwise, is_error in (({"otherwise": yes}, False), ({}, True)):
        executor = standard_executor([deploy], approve=ElicitingApprover(**otherwise))
        result = await executor.execute(ToolCall("deploy", {"service": "shop"}), Scope())
        assert result.is_error is is_error


async def test_what_a_mounted_server_asks_reaches_the_client_as_its_own_form(era, monkeypatch):
    from forge.core.registry import mount_source
    from forge.mcp import mcp
    from tests.mcp.remote import Remote, definition

    remote = Remote(definition("ask")).install(monkeypatch)
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "title": "\x1b[31mName"}},
        "required": ["name"],
    }
    questions: asyncio.Queue = asyncio.Queue()

    async def listen():  # as the SDK does it: in a task that has nothing to do with the call
        while True:
            answered = await questions.get()
            answered.set_result(await remote.listener.elicit("Who?", schema, None))

    async def answer(name, arguments, key):
        answered = asyncio.get_running_loop().create_future()
        questions.put_nowait(answered)
        return {"content": [{"type": "text", "text": repr(await answered)}]}

    remote.answer = answer
    asked: list = []

    async def fill_in(ctx, params):
        asked.append(params)
        return ElicitResult(action="accept", content={"name": "Ada"})

    listening = asyncio.create_task(listen())
    async with offered(policy=rules("allow *")) as offer, mount_source(offer.registry, mcp("uvx mcp-server-git")):
        async with connected(offer, era, elicitation_callback=fill_in) as client:
            assert text(await client.call_tool("git__ask", {})) == "{'name': 'Ada'}"
        assert "The server git asks:" in asked[0].message
        assert asked[0].requested_schema["properties"] == {"name": {"type": "string", "title": "Name"}}
        declines = person(action="decline")
        async with connected(offer, era, elicitation_callback=declines) as client:
            assert text(await client.call_tool("git__ask", {})) == "None"
    listening.cancel()
