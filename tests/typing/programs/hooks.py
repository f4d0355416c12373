"""Hooks and the choice of tools are typed: their contexts have the agent's dependencies."""

from __future__ import annotations

from typing import assert_type

from forge import Agent, ToolContext, ToolResult
from forge.agent import HookDecision, TurnContext

agent = Agent(None, deps_type=str)


@agent.before_call
def refuse(ctx: ToolContext[str]) -> HookDecision | None:
    assert_type(ctx.deps, str)
    return HookDecision(block="no") if ctx.call.name == "bash" else None


@agent.before_call(match="write src/**", timeout=5)
async def change(ctx: ToolContext[str]) -> HookDecision:
    return HookDecision(arguments={**ctx.arguments, "path": "a"})


@agent.after_call
async def look(ctx: ToolContext[str], result: ToolResult) -> None:
    assert_type(result, ToolResult)


@agent.before_turn
def add(ctx: TurnContext[str]) -> HookDecision | None:
    return HookDecision(context=ctx.deps) if ctx.turn == 1 else None


@agent.on_end
def check(ctx: TurnContext[str]) -> HookDecision | None:
    return HookDecision(block=7) if ctx.answer else None  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@agent.before_turn  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def wrong(ctx: TurnContext[str]) -> str:
    return ctx.prompt


@agent.before_call  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def others(ctx: ToolContext[int]) -> None:
    return None


def choose(ctx: TurnContext[str]) -> list[str]:
    return [name for name in ctx.tools if name != ctx.deps]


chosen = Agent(None, deps_type=str, choose_tools=choose)
