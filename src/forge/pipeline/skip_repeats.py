"""Step: answers the same read-only call in a turn without running it again."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass, field

from forge.core.context import ToolContext
from forge.core.executor import Next
from forge.core.messages import InnerCall
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec

MOST_CALLS = 500  # remembered a session
MOST_SESSIONS = 1_000


@dataclass(eq=False, repr=False)
class _Turns:
    """The calls of one session, with the turn of each."""

    latest: tuple[str, int] = ("", 0)  # the message of the latest turn, and how often turns were cleared before it
    number: int = 0
    calls: OrderedDict[str, int] = field(default_factory=OrderedDict)  # fingerprint -> the turn it last succeeded in
    running: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[None]] = field(default_factory=dict)


class SkipRepeats:
    """Counts only calls that succeeded, and forgets all of them once something was changed."""

    name = "skip_repeats"

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, _Turns] = OrderedDict()

    def applies(self, spec: ToolSpec) -> bool:
        return not spec.repeatable or bool(spec.permissions & {Permission.WRITE, Permission.EXECUTE})

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        turns = self._sessions.setdefault(ctx.scope.session_id, _Turns())
        self._sessions.move_to_end(ctx.scope.session_id)
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        turn = (ctx.scope.message_id, ctx.cleared_turns)
        if turn != turns.latest:
            turns.latest, turns.number = turn, turns.number + 1
        if ctx.spec.repeatable:  # it may change what the others read
            turns.calls.clear()
            return await proceed(ctx)
        if isinstance(ctx.call, InnerCall):  # a script needs the value, and did not see an earlier one
            return await proceed(ctx)
        return await _run_unless_repeated(turns, ctx, proceed)

    def forget(self, session_id: str) -> None:
        for name in [session_id] if session_id else list(self._sessions):
            self._sessions.pop(name, None)


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
