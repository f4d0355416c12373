"""Exported tools in LangChain's own hands: its messages, its fake models, its callbacks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from base64 import b64decode
from typing import Any

import pytest

pytest.importorskip("langchain_core")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
    messages_to_dict,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from forge import Answer, Scope, ToolCall, ToolContext, ToolRegistry, ToolResult, register_all, rules, tool
from forge.core.result import Attachment, Failure
from forge.events import ActivityStream, ToolFinished
from forge.frameworks.langchain import ForgeTool, to_langchain
from forge.pipeline import standard_executor
from tests.frameworks.tools_for_export import PIXEL, TAKEN, USER, all_tools


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch):
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")


def named(tools, name: str) -> ForgeTool:
    return next(one for one in tools if one.name == name)


def asked(name: str, arguments: dict[str, Any], id: str = "call_1") -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": id, "type": "tool_call"}


class FakeModel(FakeMessagesListChatModel):
    """LangChain's fake model, which remembers the tools it was given."""

    seen: list[dict[str, Any]] = Field(default_factory=list)

    def bind_tools(self, tools, **options: Any):
        self.seen.extend(map(convert_to_openai_tool, tools))
        return self


def test_a_model_calls_them_in_a_loop_of_langchain():
    tools = to_langchain(all_tools())
    calls = [asked("add", {"a": 2, "b": 3}, "1"), asked("deploy", {"service": "web"}, "2")]
    model = FakeModel(responses=[AIMessage("", tool_calls=calls), AIMessage("Five, and not deployed.")])
    bound = model.bind_tools(tools)
    messages: list[BaseMessage] = [HumanMessage("Add and deploy")]
    while True:
        answer = bound.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            break
        messages += [named(tools, call["name"]).invoke(call) for call in answer.tool_calls]
    first, second = (message for message in messages if isinstance(message, ToolMessage))
    assert (first.content, first.status, first.tool_call_id, first.name) == ("5", "success", "1", "add")
    assert second.status == "error"
    assert "deploy" in second.content
    assert "no one to ask" in str(second.content).lower()
    assert messages[-1].content == "Five, and not deployed."
    assert model.seen[0]["function"]["parameters"]["properties"]["a"]["type"] == "integer"


async def test_they_are_structured_tools_with_our_schema():
    add = named(to_langchain(all_tools()), "add")
    assert isinstance(add, StructuredTool)
    assert add.description == "Add two numbers."
    assert add.args["b"]["default"] == 1
    assert (add.metadata or {})["permissions"] == []
    add.args.clear()
    assert named(to_langchain(all_tools()), "add").args  # the tool's own schema is untouched


async def test_the_message_holds_the_text_and_the_whole_result():
    message = await named(to_langchain(all_tools(), images=False), "draw").ainvoke(asked("draw", {}))
    assert message.content == "a pixel"
    assert isinstance(message.artifact, ToolResult)
    assert message.artifact.title == "Pixel"
    assert message.artifact.attachments[0].data == PIXEL


async def test_images_are_parts_of_the_message():
    message = await named(to_langchain(all_tools()), "draw").ainvoke(asked("draw", {}))
    text, image = message.content_blocks
    assert text["text"] == "a pixel"
    assert image["type"] == "image"
    assert image["mime_type"] == "image/png"
    assert b64decode(image["base64"]) == PIXEL
    assert message.artifact.attachments[0].data == PIXEL
    (sent,) = convert_to_openai_messages([message])
    assert sent["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")


async def test_images_of_a_failed_call_are_delivered_too():
    @tool
    def shoot() -> ToolResult:
        """Take a picture of what went wrong."""
        return ToolResult(
            for_llm="the page is broken",
            attachments=(Attachment("image/png", PIXEL),),
            failure=Failure("the page is broken"),
        )

    message = await named(to_langchain([shoot]), "shoot").ainvoke(asked("shoot", {}))
    assert message.status == "error"
    assert [one["type"] for one in message.content_blocks] == ["text", "image"]


async def test_objects_are_sent_as_json_and_no_parameter_name_is_taken():
    message = await named(to_langchain(all_tools()), "describe").ainvoke(asked("describe", TAKEN))
    assert json.loads(message.content) == TAKEN
    assert named(to_langchain(all_tools()), "describe").invoke(TAKEN) == message.content


async def test_arguments_are_checked_by_us_and_not_coerced_by_langchain():
    add = named(to_langchain(all_tools()), "add")
    refused = await add.ainvoke(asked("add", {"a": True}))
    assert refused.status == "error"
    assert "expected integer" in refused.content
    assert "Example: add" in refused.content
    repaired = await add.ainvoke(asked("add", {"A": "2"}))
    assert repaired.content == "3"
    assert repaired.artifact.data["repaired"]


async def test_a_failure_can_be_stored_with_the_history():
    message = await named(to_langchain(all_tools()), "broken").ainvoke(asked("broken", {"reason": "no ink"}))
    assert message.status == "error"
    assert message.content == 'broken(reason="no ink"): no ink\nTry something else.'
    assert message.artifact.failure.message == "no ink"
    json.dumps(messages_to_dict([message]))
    message.model_dump_json()


async def test_without_a_call_the_text_alone_comes_back():
    tools = to_langchain(all_tools())
    assert await named(tools, "add").ainvoke({"a": 1}) == "2"
    assert "no ink" in await named(tools, "broken").ainvoke({"reason": "no ink"})
    assert "not valid JSON" in await named(tools, "add").ainvoke("one and two")


async def test_the_gate_asks_the_person_and_rules_decide():
    questions: list[str] = []

    async def ask(request):
        questions.append(request.target)
        return Answer.ONCE if request.target == "web" else Answer.no("not today")

    deploy = named(to_langchain(all_tools(), policy=rules("ask execute", "deny execute db"), approve=ask), "deploy")
    said = [(await deploy.ainvoke(asked("deploy", {"service": service}))) for service in ("web", "mail", "db")]
    assert [message.status for message in said] == ["success", "error", "error"]
    assert "not today" in said[1].content
    assert "denied" in said[2].content
    assert questions == ["web", "mail"]


async def test_every_result_is_told_and_the_last_ones_are_kept():
    told: list[tuple[ToolCall, ToolResult]] = []
    tools = to_langchain(all_tools(), on_tool_result=lambda call, result: told.append((call, result)))
    await named(tools, "add").ainvoke(asked("add", {"a": 1}, "first"))
    await named(tools, "add").ainvoke(asked("add", {"a": 2}, "second"))
    await named(tools, "broken").ainvoke(asked("broken", {"reason": "why"}, "third"))
    assert [(call.id, result.for_llm[:3]) for call, result in told] == [
        ("first", "2"),
        ("second", "3"),
        ("third", "bro"),
    ]
    assert tools.last_results["add"].for_llm == "3"
    assert tools.last_results["broken"].is_error


async def test_a_listener_may_be_async_and_cannot_harm_the_call(caplog):
    heard: list[str] = []

    async def listen(call: ToolCall, result: ToolResult) -> None:
        heard.append(result.for_llm)
        raise ValueError("the screen is gone")

    tools = to_langchain(all_tools(), on_tool_result=listen)
    assert await named(tools, "add").ainvoke({"a": 1}) == "2"
    assert heard == ["2"]
    assert "the screen is gone" in caplog.text


async def test_wrappers_of_two_contexts_know_nothing_of_each_other():
    executor = standard_executor(all_tools())
    ada, bob = (to_langchain(executor, scope=Scope(session_id=name)) for name in ("ada", "bob"))
    said = [json.loads(await named(tools, "where").ainvoke({}))["session"] for tools in (ada, bob)]
    assert said == ["ada", "bob"]
    assert ada.executor is bob.executor
    assert ada.last_results is not bob.last_results
    assert named(ada, "where") is not named(bob, "where")


async def test_a_scope_may_come_from_the_config_of_the_call():
    tools = to_langchain(all_tools(), scope=lambda config: Scope(session_id=config["configurable"]["thread_id"]))
    said = await named(tools, "where").ainvoke({}, {"configurable": {"thread_id": "thread 7"}})
    assert json.loads(said)["session"] == "thread 7"


async def test_threads_without_a_named_session_are_apart():
    tools = to_langchain(all_tools())

    async def session(*thread: str) -> str:
        config: RunnableConfig = {"configurable": {"thread_id": thread[0]}} if thread else {}
        return str(json.loads(await named(tools, "where").ainvoke({}, config))["session"])

    assert await session("ada") == await session("ada")
    assert len({await session("ada"), await session("bob"), await session()}) == 3
    others = to_langchain(all_tools())
    assert json.loads(await named(others, "where").ainvoke({}))["session"] != await session()


async def test_each_call_is_a_turn_of_its_own():
    reads: list[str] = []

    @tool(permissions={"read"}, repeatable=False)
    def look(path: str) -> str:
        """Look at a file."""
        reads.append(path)
        return path

    look_tool = to_langchain([look])[0]
    for id in ("1", "2"):
        assert (await look_tool.ainvoke(asked("look", {"path": "a"}, id))).content == "a"
    assert reads == ["a", "a"]


async def test_events_are_emitted_and_secrets_masked():
    ended: list[str] = []
    activity = ActivityStream()
    activity.subscribe(lambda event: ended.append(event.call.name), ToolFinished)
    tools = to_langchain(all_tools(), activity=activity, secrets=["hunter2hunter2"])
    assert "hunter2" not in await named(tools, "broken").ainvoke({"reason": "hunter2hunter2"})
    assert ended == ["broken"]


async def test_hidden_tools_are_left_out_of_a_registry_and_taken_from_a_list():
    assert "secret_door" in [one.name for one in to_langchain(all_tools())]
    assert "secret_door" not in [one.name for one in to_langchain(ToolRegistry(all_tools()))]


async def test_conversation_tools_stay_at_home():
    registry = ToolRegistry()
    register_all(registry)
    names = [one.name for one in to_langchain(registry)]
    assert "bash" in names
    assert not {"task_completion", "ask_question", "converse", "tool_search"} & set(names)


async def test_a_tool_that_ends_the_turn_returns_directly():
    @tool(ends_turn=True)
    def hand_over(note: str) -> str:
        """Hand over to a person."""
        return note

    assert [one.return_direct for one in to_langchain([hand_over, *all_tools()])][:2] == [True, False]


def test_an_executor_brings_its_own_policy():
    executor = standard_executor(all_tools(), policy=rules("allow execute"))
    assert named(to_langchain(executor), "deploy").invoke({"service": "web"}) == "web is live"
    with pytest.raises(TypeError, match="its own policy"):
        to_langchain(executor, policy=rules("deny execute"))


async def test_callbacks_of_langchain_hear_of_a_call():
    heard: list[Any] = []

    class Listener(BaseCallbackHandler):
        def on_tool_start(self, serialized, input_str, **rest: Any) -> None:
            heard.append((serialized["name"], rest["inputs"]))

        def on_tool_end(self, output, **rest: Any) -> None:
            heard.append(output.content)

    await named(to_langchain(all_tools()), "add").ainvoke(asked("add", {"a": 1}), {"callbacks": [Listener()]})
    assert heard == [("add", {"a": 1}), "2"]


async def test_a_cancelled_call_is_cancelled_inside():
    started, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.ensure_future(to_langchain([wait])[0].ainvoke({}))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


def test_plain_callers_share_one_loop_and_their_context_goes_along():
    token = USER.set("ada")
    try:
        said = [json.loads(named(to_langchain(all_tools()), "where").invoke({})) for _ in range(2)]
    finally:
        USER.reset(token)
    assert said[0]["loop"] == said[1]["loop"]
    assert said[0]["user"] == "ada"


async def test_a_plain_call_on_a_running_loop_does_not_lock_up():
    said = json.loads(named(to_langchain(all_tools()), "where").invoke({}))
    assert said["loop"] != id(asyncio.get_running_loop())


async def test_a_plain_call_from_a_thread_runs_on_the_loop_of_the_export():
    where = named(to_langchain(all_tools()), "where")
    said = json.loads(await asyncio.to_thread(where.invoke, {}))
    assert said["loop"] == id(asyncio.get_running_loop())


def test_a_plain_call_inside_an_async_tool_is_refused_instead_of_hanging():
    add = named(to_langchain(all_tools()), "add")

    @tool
    async def nested() -> str:
        """Call another tool the wrong way."""
        return str(add.invoke({"a": 1}))

    @tool
    def threaded() -> str:
        """Call another tool from a thread."""
        return str(add.invoke({"a": 1}))

    assert "ainvoke" in to_langchain([nested])[0].invoke({})
    assert to_langchain([threaded])[0].invoke({}) == "2"


def test_what_a_plain_call_leaves_running_goes_on():
    done = threading.Event()

    @tool
    async def index(ctx: ToolContext) -> ToolResult:
        """Index the files."""

        async def work() -> str:
            done.set()
            return "indexed"

        return ctx.background(work, "started")

    assert to_langchain([index])[0].invoke({}) == "started"
    assert done.wait(60)


def test_a_program_that_only_calls_plainly_ends():
    program = (
        "from forge import tool\nfrom forge.frameworks.langchain import to_langchain\n"
        "@tool\ndef greet(name: str) -> str:\n    'Greet somebody.'\n    return f'Hello, {name}!'\n"
        "print(to_langchain([greet])[0].invoke({'name': 'Ada'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-W", "error::RuntimeWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.stdout, done.stderr) == ("Hello, Ada!\n", "")


@pytest.mark.slow
def test_ctrl_c_ends_the_call_that_is_waited_for():
    program = """
import asyncio, signal, threading
from forge import tool
from forge.frameworks.langchain import to_langchain

@tool
async def wait() -> None:
    "Wait for ever."
    try:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.Event().wait()
    finally:
        print("cancelled", flush=True)

try:
    to_langchain([wait])[0].invoke({})
except KeyboardInterrupt:
    pass
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr, done.returncode) == ("cancelled\n", "", 0)
