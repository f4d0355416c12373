"""Step: answers the same read-only call in a turn without running it again."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass, field

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.messages import InnerCall
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.pipeline._step import add_attributes

MOST_CALLS = 500  # remembered a session
MOST_SESSIONS = 1_000


@dataclass(eq=False, repr=False)
class _Turns:
    """The calls of one session, with the turn of each."""

    message_id: str = ""
    number: int = 0
    calls: OrderedDict[str, int] = field(default_factory=OrderedDict)  # fingerprint -> the turn it last succeeded in
    running: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[None]] = field(default_factory=dict)


def skip_repeats() -> Step:
    """Counts only calls that succeeded, and forgets all of them once something was changed."""
    sessions: OrderedDict[str, _Turns] = OrderedDict()

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        turns = sessions.setdefault(ctx.scope.session_id, _Turns())
        sessions.move_to_end(ctx.scope.session_id)
        if len(sessions) > MOST_SESSIONS:
            sessions.popitem(last=False)
        if ctx.scope.message_id != turns.message_id:
            turns.message_id, turns.number = ctx.scope.message_id, turns.number + 1
        if ctx.spec.repeatable:  # it may change what the others read
            turns.calls.clear()
            return await proceed(ctx)
        if isinstance(ctx.call, InnerCall):  # a script needs the value, and did not see an earlier one
            return await proceed(ctx)
        return await _run_unless_repeated(turns, ctx, proceed)

    def clear_turn(session_id: str) -> None:
        for name in [session_id] if session_id else list(sessions):
            if name in sessions:
                sessions[name].number += 1

    def clear_state(session_id: str) -> None:
        for name in [session_id] if session_id else list(sessions):
            sessions.pop(name, None)

    return add_attributes(step, applies=_matters, clear_turn=clear_turn, clear_state=clear_state)


def _matters(spec: ToolSpec) -> bool:
    return not spec.repeatable or bool(spec.permissions & {Permission.WRITE, Permission.EXECUTE})


async def _run_unless_repeated(turns: _Turns, ctx: ToolContext, proceed: Next) -> ToolResult:
    key = f"{ctx.spec.name} {json.dumps(ctx.arguments, sort_keys=True, default=str)}"
    loop = asyncio.get_running_loop()
    while (running := turns.running.get((loop, key))) is not None:  # the same call side by side: wait for the first
        await asyncio.shield(running)
    before = turns.calls.get(key)
    if before == turns.number:
        note = f"This is the same {ctx.spec.name} call as before in this turn; its result is above and still valid."
        return ToolResult.quiet(note).with_data(repeated=True)
    done = turns.running[loop, key] = loop.create_future()
    try:
        result = await proceed(ctx)
    finally:
        del turns.running[loop, key]
        done.set_result(None)
    if result.failure is None:
        turns.calls.pop(key, None)  # the latest is the last; another thread may have cleared them meanwhile
        turns.calls[key] = turns.number
        if len(turns.calls) > MOST_CALLS:
            turns.calls.popitem(last=False)
    if before is None:
        return result
    ago = turns.number - before
    return result.with_data(warning=f"same call {ago} turn{'s' if ago > 1 else ''} ago")
