"""Adds the attributes to a step that the executor reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forge.core.context import ToolContext
from forge.core.executor import Chain, Look, Next, Step
from forge.core.result import ToolResult


def add_attributes(step: Step, **attributes: Any) -> Step:
    """Sets `applies`, `screens`, `egress`, `clear_turn`, `clear_state` or `end_session` on a step."""
    for name, value in attributes.items():
        setattr(step, name, value)
    return step


def make_surround_step(surround: Callable[[Chain], Chain], **attributes: Any) -> Step:
    """Makes a step of a function that returns a part of the chain: the executor needs no coroutine for it."""

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        result = surround(proceed)(ctx)
        return result if isinstance(result, ToolResult) else await result

    step.__module__ = surround.__module__  # a step is known by its module
    return add_attributes(step, surround=surround, **attributes)


def make_look_step(look: Look, **attributes: Any) -> Step:
    """Makes a step that only looks at the result: the executor calls such steps without a coroutine each."""

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        looked = look(ctx, await proceed(ctx))
        return looked if isinstance(looked, ToolResult) else await looked

    step.__module__ = look.__module__  # a step is known by its module
    return add_attributes(step, look=look, **attributes)
