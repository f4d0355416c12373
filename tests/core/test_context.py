"""What a tool knows about the call it serves."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

from forge.core.context import Root, Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolOutput, ToolProgress
from forge.core.messages import ToolCall
from forge.core.spec import Permission
from forge.core.tool import tool
from tests.core.calling import Heard, call, executor


@tool
def shows(x: int, ctx: ToolContext) -> str:
    """Show."""
    return str(x)


def test_a_tool_sees_the_call_its_spec_its_arguments_and_the_scope():
    seen = []

    @tool(permissions={"read"})
    def looks(x: int, ctx: ToolContext, y: int = 2) -> str:
        """Look."""
        seen.append(ctx)
        return ""

    scope = Scope(session_id="s", message_id="m", agent="a", channel="c", chat_id="7", user="u")
    call(looks, {"x": "1"}, scope=scope)
    (ctx,) = seen
    assert ctx.call.arguments == {"x": "1"}, "what was sent"
    assert ctx.arguments == {"x": 1, "y": 2}, "what was understood"
    assert ctx.spec is looks.spec
    assert ctx.scope is scope
    assert ctx.cancelled is False


def test_the_key_of_a_call_is_the_same_when_it_is_run_again():
    keys = []

    async def step(ctx, proceed):
        keys.append(ctx.key)
        return await proceed(ctx)

    runs = executor(shows, steps=[step])
    for session, call_id in [("s", "c"), ("s", "c"), ("s", "d"), ("t", "c")]:
        asyncio.run(runs.execute(ToolCall("shows", {"x": 1}, call_id), Scope(session_id=session, message_id="m")))
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_step_may_pass_a_changed_context_on():
    seen = []

    async def outer(ctx, proceed):
        result = await proceed(ctx)
        seen.append(dict(ctx.arguments))
        return result

    async def inner(ctx, proceed):
        return await proceed(ctx.replace(arguments={"x": 2}))

    assert call(shows, {"x": 1}, steps=[outer, inner]).for_llm == "2"
    assert seen == [{"x": 1}]


def test_output_and_progress_are_events_of_the_call():
    @tool
    def talks(ctx: ToolContext) -> str:
        """Talk."""
        ctx.output("one")
        ctx.progress("half", percent=50)
        return "done"

    heard = Heard()
    call(talks, heard=heard, scope=Scope(session_id="s", agent="a"))
    (output,) = heard.of(ToolOutput)
    (progress,) = heard.of(ToolProgress)
    assert (output.text, output.call.name, output.session, output.agent) == ("one", "talks", "s", "a")
    assert (progress.title, progress.data) == ("half", {"percent": 50})


def test_nothing_is_permitted_without_a_gate():
    @tool
    async def asks(ctx: ToolContext) -> str:
        """Ask."""
        await ctx.require("write", "a.txt")
        return "written"

    result = call(asks)
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.PERMISSION
    assert "write a.txt" in result.for_llm


def test_a_gate_is_asked_and_may_allow():
    asked = []

    class Opens:
        async def require(self, ctx, permission, target):
            asked.append((ctx.call.name, permission, target))

    class Refuses:
        async def require(self, ctx, permission, target):
            raise ToolError("not today", ErrorKind.PERMISSION)

    @tool
    async def asks(ctx: ToolContext) -> str:
        """Ask."""
        await ctx.require("write", "a.txt")
        return "written"

    async def opened(ctx, proceed):
        return await proceed(ctx.replace(gate=Opens()))

    async def refused(ctx, proceed):
        return await proceed(ctx.replace(gate=Refuses()))

    assert call(asks, steps=[opened]).for_llm == "written"
    assert asked == [("asks", Permission.WRITE, "a.txt")]
    assert "not today" in call(asks, steps=[refused]).for_llm


def test_there_are_four_permissions_and_no_others():
    @tool
    async def asks(permission: str, ctx: ToolContext) -> str:
        """Ask."""
        await ctx.require(permission)  # type: ignore[arg-type]
        return ""

    assert "fly" in call(asks, {"permission": "fly"}).for_llm


def test_a_scope_of_another_turn_differs_in_its_turn_alone_and_holds_the_same_directories(tmp_path):
    scope = Scope(session_id="s", message_id="1", workspace=tmp_path, roots=(Root(tmp_path, writable=True),), user="u")
    later = scope.in_turn("2")
    assert later == replace(scope, message_id="2")
    assert (scope.message_id, later._held) == ("1", scope._held)


def test_a_scope_that_came_from_another_process_holds_its_directories_with_its_next_turn(tmp_path):
    sent = pickle.loads(pickle.dumps(Scope(workspace=tmp_path)))
    later = sent.in_turn("2")
    assert (later.workspace, later.message_id, [one.path for one in later._held]) == (tmp_path, "2", [tmp_path])
