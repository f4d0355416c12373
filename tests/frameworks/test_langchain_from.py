"""LangChain's tools mounted here: their results, their failures, and everything that every call passes."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest

pytest.importorskip("langchain_core")

from langchain_core.messages import ToolMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import Tool as TextTool
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel, Field, field_validator

from forge import (
    Agent,
    Answer,
    Category,
    DefinitionError,
    ErrorKind,
    Scope,
    Scripted,
    Tool,
    ToolCall,
    ToolRegistry,
    ToolResult,
    rules,
)
from forge.frameworks.langchain import from_langchain, to_langchain
from forge.pipeline import standard_executor

ALLOWED = rules("allow *")


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch):
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")


@langchain_tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def result_of(tool: Tool, arguments: dict[str, Any], id: str = "call_1") -> ToolResult:
    executor = standard_executor([tool], policy=ALLOWED)
    return await executor.execute(ToolCall(tool.spec.name, arguments, id), Scope())


async def test_an_agent_of_ours_uses_it():
    model = Scripted(ToolCall("add", {"a": 2, "b": 3}), "Five.")
    result = await Agent(model, tools=[from_langchain(add)], policy=ALLOWED).run("Add them")
    assert result.text == "Five."
    assert [message.text for message in result.messages if message.role == "tool"] == ["5"]


def test_it_is_what_langchain_says_it_is_and_distrusted():
    spec = from_langchain(add).spec
    assert spec.name == "add"
    assert spec.description == "Add two numbers."
    assert spec.parameters["properties"]["b"]["default"] == 1
    assert "title" not in spec.parameters
    assert spec.permissions == {"execute", "network"}
    assert spec.category is Category.ADAPTER
    assert spec.origin == "langchain:add"


async def test_the_person_is_asked_unless_less_is_declared():
    asked: list[str] = []

    async def ask(request):
        asked.append(request.spec.name)
        return Answer.no("not now")

    call = ToolCall("add", {"a": 1})
    for tool, answer in ((from_langchain(add), "not now"), (from_langchain(add, permissions=()), "2")):
        executor = standard_executor([tool], policy=rules("ask execute", "ask network"), approve=ask)
        assert answer in (await executor.execute(call, Scope())).for_llm
    assert asked == ["add"]


async def test_arguments_are_checked_before_langchain_sees_them():
    refused = await result_of(from_langchain(add), {"a": True})
    assert refused.failure is not None
    assert refused.failure.kind is ErrorKind.VALIDATION
    assert "Example: add" in refused.for_llm
    assert (await result_of(from_langchain(add), {"a": "2"})).for_llm == "3"


async def test_what_its_own_model_refuses_is_explained():
    class Even(BaseModel):
        number: int = Field(description="An even one.")

        @field_validator("number")
        @classmethod
        def is_even(cls, number: int) -> int:
            if number % 2:
                raise ValueError("odd")
            return number

    half = StructuredTool.from_function(lambda number: number // 2, name="half", description="Halve.", args_schema=Even)
    assert (await result_of(from_langchain(half), {"number": 4})).for_llm == "2"
    refused = await result_of(from_langchain(half), {"number": 3})
    assert refused.failure is not None
    assert refused.failure.kind is ErrorKind.VALIDATION
    assert refused.failure.message == "number: Value error, odd"


async def test_async_tools_run_on_the_loop_and_plain_ones_beside_it():
    @langchain_tool
    async def loop() -> str:
        """Name the thread of the loop."""
        return threading.current_thread().name

    @langchain_tool
    def thread() -> str:
        """Name the thread."""
        return threading.current_thread().name

    assert (await result_of(from_langchain(loop), {})).for_llm == threading.current_thread().name
    assert (await result_of(from_langchain(thread), {})).for_llm == "forge-tool"


async def test_old_tools_that_take_one_text():
    shout = TextTool("Shout it!", lambda text: text.upper(), "Say it louder.")
    tool = from_langchain(shout)
    assert tool.spec.name == "Shout_it"
    assert tool.spec.origin == "langchain:Shout it!"
    assert (await result_of(tool, {"tool_input": "hello"})).for_llm == "HELLO"


async def test_tools_that_are_classes():
    class Greet(BaseTool):
        name: str = "greet"
        description: str = "Greet somebody."

        def _run(self, who: str) -> str:
            return f"Hello, {who}!"

    assert (await result_of(from_langchain(Greet()), {"who": "Ada"})).for_llm == "Hello, Ada!"


async def test_text_images_and_artifacts_find_their_places():
    @langchain_tool(response_format="content_and_artifact")
    def draw() -> tuple[list[Any], dict[str, int]]:
        """Draw."""
        image = {"type": "image", "base64": "iVBORw==", "mime_type": "image/png"}
        link = {"type": "image", "url": "https://example.com/b.png"}
        return [{"type": "text", "text": "two pictures"}, image, link], {"width": 1}

    result = await result_of(from_langchain(draw), {})
    assert result.for_llm == "two pictures\n[image: https://example.com/b.png]"
    assert [(one.media_type, one.data) for one in result.attachments] == [("image/png", b"\x89PNG")]
    assert result.data == {"artifact": {"width": 1}}


async def test_objects_are_json_and_nothing_is_done():
    @langchain_tool
    def look(what: str) -> Any:
        """Look something up."""
        return {"found": what} if what else ""

    assert (await result_of(from_langchain(look), {"what": "x"})).for_llm == '{"found": "x"}'
    assert (await result_of(from_langchain(look), {"what": ""})).for_llm == "Done."


async def test_failures_are_failures_however_they_are_said():
    def fail(handled: bool) -> str:
        raise ToolException("\x1b[31mno ink\x1b[0m")

    raised = StructuredTool.from_function(fail, name="fail", description="Fail.")
    handled = StructuredTool.from_function(fail, name="fail", description="Fail.", handle_tool_error=True)
    for tool in (raised, handled):
        result = await result_of(from_langchain(tool), {"handled": True})
        assert result.failure is not None
        assert result.failure.kind is ErrorKind.USER
        assert "no ink" in result.for_llm
    assert "\x1b" not in (await result_of(from_langchain(raised), {"handled": True})).for_llm


async def test_an_unexpected_exception_is_one():
    @langchain_tool
    def crash() -> str:
        """Crash."""
        raise KeyError("gone")

    result = await result_of(from_langchain(crash), {})
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.SYSTEM
    assert "KeyError" in result.for_llm


async def test_the_id_of_the_call_is_injected_and_other_things_are_refused():
    @langchain_tool
    def whose(call: Annotated[str, InjectedToolCallId], note: Annotated[str, InjectedToolArg] = "") -> str:
        """Say whose call it is."""
        return call

    @langchain_tool
    def needy(state: Annotated[dict[str, Any], InjectedToolArg]) -> str:
        """Look at the state."""
        return ""

    assert from_langchain(whose).spec.parameters["properties"] == {}
    assert (await result_of(from_langchain(whose), {}, "call_7")).for_llm == "call_7"
    with pytest.raises(DefinitionError, match="'state' is injected"):
        from_langchain(needy)


async def test_an_answer_for_langgraph_alone_is_said_to_be_one():
    class Command(ToolOutputMixin):
        pass

    @langchain_tool
    def go() -> Any:
        """Go elsewhere."""
        return Command()

    result = await result_of(from_langchain(go), {})
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.CONFIG


async def test_a_message_of_its_own_is_taken_as_it_is():
    @langchain_tool
    def answer() -> Any:
        """Answer with a message."""
        return ToolMessage("refused", tool_call_id="1", status="error")

    result = await result_of(from_langchain(answer), {})
    assert result.is_error
    assert "refused" in result.for_llm


async def test_there_and_back_again_loses_nothing():
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult(for_llm="a pixel", title="Pixel", data={"width": 1})

    (there,) = to_langchain(ToolRegistry([draw]))
    result = await result_of(from_langchain(there), {})
    assert (result.for_llm, result.title, result.data) == ("a pixel", "Pixel", {"width": 1})


async def test_time_is_up_for_it_too():
    ended = asyncio.Event()

    @langchain_tool
    async def wait() -> str:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    result = await result_of(from_langchain(wait, timeout=0.05), {})
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.TIMEOUT
    assert ended.is_set()


def test_a_direct_return_ends_the_turn_and_traits_are_the_persons():
    @langchain_tool(return_direct=True)
    def last() -> str:
        """Say the last word."""
        return ""

    assert from_langchain(last).spec.ends_turn
    spec = from_langchain(last, name="final", ends_turn=False, permissions={"read"}, timeout=5).spec
    assert (spec.name, spec.ends_turn, spec.timeout) == ("final", False, 5)
    assert spec.permissions == {"read"}


def test_hostile_descriptions_are_cleaned_and_bounded():
    @langchain_tool(description="\x1b[31mred\x1b[0m" + "x" * 5_000)
    def long(a: Annotated[str, "a\u202eb"]) -> str:
        return a

    spec = from_langchain(long).spec
    assert spec.description.startswith("redxxx")
    assert len(spec.description) <= 2_000


def test_a_process_of_its_own_is_refused():
    with pytest.raises(DefinitionError, match="isolate"):
        from_langchain(add, isolate=True)
