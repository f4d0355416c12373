"""Steps about repeated calls: an agent that goes in circles is stopped, and a repeated read is not run again."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from forge.core.context import ToolContext
from forge.core.execution.chain import Next, StepObject
from forge.core.messages import InnerCall
from forge.core.plain_values import brief
from forge.core.result import Failure, ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.pipeline.limit_output import size_of

NUDGE, ASK, STOP = 3, 5, 8  # times the same round was made
SAME_ERRORS = 5
LONGEST_ROUND = 5
MOST_AGENTS = 1_000
LONGEST_KEPT = 1_000  # characters of a result, or of arguments, that are kept as they are; of longer ones a digest is
EXEMPT = frozenset({"bash_output"})  # polling is its job

Ask = Callable[[ToolContext, str], Awaitable[bool]]
"""Asks a person whether the agent may continue."""


@dataclass(slots=True, eq=False, repr=False)
class _Trail:
    """The latest calls of one agent. `runs[p]` counts how many calls in a row equal the one `p` calls before."""

    calls: deque[tuple[str, Any, Any, str]] = field(default_factory=lambda: deque(maxlen=LONGEST_ROUND))
    answers: deque[Any] = field(default_factory=lambda: deque(maxlen=LONGEST_ROUND))
    runs: list[int] = field(default_factory=lambda: [0] * (LONGEST_ROUND + 1))
    running: bool = False  # whether any of the runs is above 0
    made: int = 1  # times the latest round was made
    may_go_on: bool | None = None  # what was decided about it
    error: tuple[str, Any] = ("", "")
    errors: int = 0

    def count_rounds(self, name: str, arguments: Any, answer: Any, turn: str) -> int:
        """Returns how often the round that this call ends was made; calls of one turn count once."""
        calls, runs = self.calls, self.runs
        if calls and turn and calls[-1][3] == turn and calls[-1][:3] == (name, arguments, answer):
            return self.made
        known = len(calls)
        most = 0
        for period in range(1, LONGEST_ROUND + 1):
            if period <= known:
                before = calls[-period]
                if before[0] == name and before[2] == answer and before[1] == arguments:
                    runs[period] += 1
                    most = max(most, runs[period] // period)
                    continue
            runs[period] = 0
        calls.append((name, arguments, answer, turn))
        self.answers.append(answer)
        self.running = True
        self.made = most + 1
        if self.made < NUDGE:
            self.may_go_on = None
        return self.made

    def end_rounds(self) -> None:
        """Notes that something new was answered."""
        self.runs, self.running = [0] * (LONGEST_ROUND + 1), False
        self.made, self.may_go_on = 1, None

    def count_error(self, name: str, failure: Failure | None) -> int:
        if failure is None:
            self.errors = 0
            return 0
        message = failure.message
        same = (name, message if len(message) <= LONGEST_KEPT else _fingerprint(message))
        self.errors = self.errors + 1 if same == self.error else 1
        self.error = same
        return self.errors


class BreakLoops(StepObject):
    """Stops an agent after the fifth equal round, unless a person who is asked allows more.

    A stopped call keeps its own result, with the stop in `data.stop` and `data.stop_reason`. It stays stopped while the
    round is repeated.
    """

    name = "break_loops"

    def __init__(self, ask: Ask | None = None) -> None:
        self._ask = ask
        self._trails: OrderedDict[tuple[str, str], _Trail] = OrderedDict()

    def applies(self, spec: ToolSpec) -> bool:
        return spec.name not in EXEMPT

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult | Coroutine[Any, Any, ToolResult]:
        call, scope = ctx.call, ctx.scope
        if type(call) is InnerCall:  # a script may loop; the call that runs it is counted
            return result
        key = (scope.session_id, scope.agent)
        trail = self._trails.get(key)
        if trail is None:
            trail = self._trails[key] = _Trail()
            if len(self._trails) > MOST_AGENTS:
                self._trails.popitem(last=False)
        answer = result.for_llm
        arguments: Any = call.arguments
        if type(arguments) is str and len(arguments) <= LONGEST_KEPT:
            arguments = ctx.arguments or arguments
        else:
            arguments = (
                _fingerprint(arguments)
                if size_of(arguments, LONGEST_KEPT) > LONGEST_KEPT
                else ctx.arguments or arguments
            )
        if len(answer) > LONGEST_KEPT:
            answer = _fingerprint(answer)
        if answer in trail.answers:
            rounds = trail.count_rounds(call.name, arguments, answer, scope.message_id)
        else:  # something new: no round ends here
            rounds = 1
            if trail.running:
                trail.end_rounds()
            trail.calls.append((call.name, arguments, answer, scope.message_id))
            trail.answers.append(answer)
        errors = trail.count_error(call.name, result.failure) if result.failure is not None or trail.errors else 0
        if rounds < NUDGE and errors < SAME_ERRORS:
            return result
        return _slow_down(ctx, result, trail, self._ask)

    def forget(self, session_id: str) -> None:
        for key in [key for key in self._trails if not session_id or key[0] == session_id]:
            del self._trails[key]


async def _slow_down(ctx: ToolContext, result: ToolResult, trail: _Trail, ask: Ask | None) -> ToolResult:
    if trail.errors >= SAME_ERRORS:
        return _mark_stopped(result, f"the same error occurred {trail.errors} times in a row")
    rounds = trail.made
    what = f"the same call with the same result was made {rounds} times"
    if rounds >= ASK and trail.may_go_on is None:
        trail.may_go_on = False  # unless a person says yes; calls that come meanwhile do not ask again
        trail.may_go_on = ask is not None and await ask(ctx, f"{what}; continue?")
    if rounds >= STOP or trail.may_go_on is False:
        return _mark_stopped(result, what)
    note = f"\n\n[Note: {what}. Repeating it will not help: try something else, or say what blocks you.]"
    return replace(result, for_llm=result.for_llm + note).with_data(rounds=rounds)


def _mark_stopped(result: ToolResult, why: str) -> ToolResult:
    """Marks a result as stopped. The output stays as it is; the loop reads the data."""
    note = f"\n\n[Stopped: {why}. Report what blocks you instead of trying again.]"
    return replace(result, for_llm=result.for_llm + note).with_data(stop="loop", stop_reason=f"stopped: {why}")


def _fingerprint(value: Any) -> Any:
    """Returns a short text itself, otherwise its length and hash, since whole results would fill the memory."""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, sort_keys=True, default=str)
        except Exception:  # cyclic, too deep, keys that have no order, a custom object
            value = brief(value)
    return value if len(value) <= LONGEST_KEPT else (len(value), hash(value))


# The same read-only call in a turn is answered without running it again.


MOST_CALLS = 500  # remembered a session
MOST_SESSIONS = 1_000


@dataclass(eq=False, repr=False)
class _Turns:
    """The calls of one session, with the turn of each."""

    latest: tuple[str, int] = ("", 0)  # the message of the latest turn, and how often turns were cleared before it
    number: int = 0
    calls: OrderedDict[str, int] = field(default_factory=OrderedDict)  # fingerprint -> the turn it last succeeded in
    running: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[None]] = field(default_factory=dict)


class SkipRepeats(StepObject):
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
