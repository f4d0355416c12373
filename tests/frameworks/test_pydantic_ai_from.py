"""pydantic-ai's tools mounted here: their types, their exceptions, and everything that every call passes."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import ApprovalRequired, BinaryContent, ImageUrl, ModelRetry, RunContext, ToolReturn
from pydantic_ai import Tool as TheirTool
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models.test import TestModel

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
    ToolResult,
    rules,
)
from forge.frameworks.pydantic_ai import from_pydantic_ai
from forge.pipeline import standard_executor

ALLOWED = rules("allow *")


class Point(BaseModel):
    x: int
    y: int = 0


def move(point: Point, on: date) -> str:
    """Move something.

    Args:
        point: Where to.
        on: When.
    """
    assert isinstance(point, Point)
    return f"moved to {point.x}/{point.y} on {on:%d.%m.%Y}"


async def result_of(tool: Tool, arguments: dict[str, Any] | None = None, id: str = "call_1") -> ToolResult:
    executor = standard_executor([tool], policy=ALLOWED)
    return await executor.execute(ToolCall(tool.spec.name, arguments or {}, id), Scope())


async def test_an_agent_of_ours_uses_it():
    model = Scripted(ToolCall("move", {"point": {"x": 1}, "on": "2026-01-31"}), "Moved.")
    result = await Agent(model, tools=[from_pydantic_ai(move)], policy=ALLOWED).run("Move it")
    assert result.text == "Moved."
    assert [message.text for message in result.messages if message.role == "tool"] == ["moved to 1/0 on 31.01.2026"]


def test_it_is_what_pydantic_ai_says_it_is_and_distrusted():
    spec = from_pydantic_ai(move).spec
    assert spec.name == "move"
    assert "Move something." in spec.description
    assert spec.parameters["properties"]["on"]["description"] == "When."
    assert spec.permissions == {"execute", "network"}
    assert spec.category is Category.ADAPTER
    assert spec.origin == "pydantic_ai:move"


async def test_the_person_is_asked_unless_less_is_declared():
    asked: list[str] = []

    async def ask(request):
        asked.append(request.spec.name)
        return Answer.no("not now")

    call = ToolCall("move", {"point": {"x": 1}, "on": "2026-01-31"})
    for tool, answer in ((from_pydantic_ai(move), "not now"), (from_pydantic_ai(move, permissions=()), "moved")):
        executor = standard_executor([tool], policy=rules("ask execute", "ask network"), approve=ask)
        assert answer in (await executor.execute(call, Scope())).for_llm
    assert asked == ["move"]


async def test_wrong_arguments_are_explained():
    for arguments in ({"point": {"x": "far"}, "on": "2026-01-31"}, {"point": {"x": 1}, "on": "tomorrow"}):
        result = await result_of(from_pydantic_ai(move), arguments)
        assert result.failure is not None
        assert result.failure.kind is ErrorKind.VALIDATION


async def test_the_context_holds_what_it_was_given():
    def who(ctx: RunContext[str]) -> str:
        """Say who it is."""
        return f"{ctx.deps} {ctx.tool_call_id} {ctx.tool_name}"

    def think(ctx: RunContext[None]) -> str:
        """Think."""
        return ctx.model.model_name

    assert (await result_of(from_pydantic_ai(who, deps="ada"), id="call_7")).for_llm == "ada call_7 who"
    assert "ctx" not in from_pydantic_ai(who).spec.parameters["properties"]
    assert (await result_of(from_pydantic_ai(think, model=TestModel()))).for_llm == "test"
    assert "from_pydantic_ai(model=…)" in (await result_of(from_pydantic_ai(think))).for_llm


async def test_retries_and_failures_are_failures():
    def retry() -> str:
        """Ask for another try."""
        raise ModelRetry("use a longer name")

    def fail() -> str:
        """Fail."""
        raise ToolFailed("no ink")

    def crash() -> str:
        """Crash."""
        raise KeyError("gone")

    said = {}
    for function in (retry, fail, crash):
        result = await result_of(from_pydantic_ai(function))
        assert result.failure is not None
        said[function.__name__] = (result.failure.message, result.failure.kind)
    assert said["retry"] == ("use a longer name", ErrorKind.USER)
    assert said["fail"] == ("no ink", ErrorKind.USER)
    assert said["crash"][1] is ErrorKind.SYSTEM


async def test_its_own_check_of_the_arguments_is_run():
    def check(ctx: RunContext[Any], number: int) -> None:
        if number % 2:
            raise ModelRetry("only even ones")

    def half(number: int) -> int:
        """Halve a number."""
        return number // 2

    tool = from_pydantic_ai(TheirTool(half, args_validator=check))
    assert (await result_of(tool, {"number": 4})).for_llm == "2"
    assert "only even ones" in (await result_of(tool, {"number": 3})).for_llm


async def test_one_that_requires_approval_is_asked_about_even_where_it_is_allowed():
    def launch(ctx: RunContext[Any]) -> str:
        """Launch it."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "launched"

    asked: list[str] = []

    async def ask(request):
        asked.append(request.spec.name)
        return Answer.ONCE

    careful = from_pydantic_ai(TheirTool(launch, requires_approval=True))
    executor = standard_executor([careful], policy=ALLOWED, approve=ask)
    assert (await executor.execute(ToolCall("launch"), Scope())).for_llm == "launched"
    assert asked == ["launch"]
    refused = await result_of(from_pydantic_ai(launch))
    assert refused.failure is not None
    assert refused.failure.kind is ErrorKind.PERMISSION
    assert "confirm=True" in refused.for_llm


async def test_one_that_is_not_prepared_is_not_available():
    async def prepare(ctx: RunContext[int], definition: Any) -> Any:
        return definition if ctx.deps else None

    tool = TheirTool(move, prepare=prepare)
    arguments = {"point": {"x": 1}, "on": "2026-01-31"}
    assert "moved" in (await result_of(from_pydantic_ai(tool, deps=1), arguments)).for_llm
    assert "unavailable" in (await result_of(from_pydantic_ai(tool, deps=0), arguments)).for_llm


async def test_files_links_and_metadata_find_their_places():
    async def draw() -> ToolReturn:
        """Draw."""
        image = BinaryContent(b"\x89PNG", media_type="image/png")
        link = ImageUrl("https://example.com/b.png")
        return ToolReturn("two pictures", content=["here:", image, link], metadata={"width": 1})

    result = await result_of(from_pydantic_ai(draw))
    assert result.for_llm.startswith("two pictures\nhere:\n[image/png, 4 bytes]")
    assert result.for_llm.endswith("[https://example.com/b.png]")
    assert [(one.media_type, one.data) for one in result.attachments] == [("image/png", b"\x89PNG")]
    assert result.data == {"metadata": {"width": 1}}


async def test_objects_are_json():
    def where() -> Point:
        """Say where it is."""
        return Point(x=1)

    def all_of_them() -> list[Point]:
        """Say where they are."""
        return [Point(x=1)]

    result = await result_of(from_pydantic_ai(where))
    assert result.for_llm == '{"x":1,"y":0}'
    assert result.data == {"x": 1, "y": 0}
    assert (await result_of(from_pydantic_ai(all_of_them))).for_llm == '[{"x":1,"y":0}]'


async def test_time_is_up_for_it_too():
    ended = asyncio.Event()

    async def wait() -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    result = await result_of(from_pydantic_ai(wait, timeout=0.05))
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.TIMEOUT
    assert ended.is_set()


def test_what_it_says_of_itself_is_kept_and_the_person_decides():
    their = TheirTool(move, sequential=True, timeout=7, name="go")
    spec = from_pydantic_ai(their).spec
    assert (spec.name, spec.parallel, spec.timeout) == ("go", False, 7)
    spec = from_pydantic_ai(their, name="walk", parallel=True, permissions={"read"}, timeout=None).spec
    assert (spec.name, spec.parallel, spec.timeout) == ("walk", True, None)
    assert spec.permissions == {"read"}


def test_a_process_of_its_own_is_refused():
    with pytest.raises(DefinitionError, match="isolate"):
        from_pydantic_ai(move, isolate=True)
