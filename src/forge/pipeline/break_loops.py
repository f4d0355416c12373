"""Step: an agent that goes in circles is nudged, then the person is asked, then it is stopped."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind
from forge.core.executor import Next, Step
from forge.core.result import Failure, ToolResult
from forge.pipeline._step import having

NUDGE, ASK, STOP = 3, 5, 8  # times the same round was made
SAME_ERRORS = 5
LONGEST_ROUND = 5
MOST_AGENTS = 1_000
EXEMPT = frozenset({"bash_output"})  # polling is its job

Ask = Callable[[ToolContext, str], Awaitable[bool]]
"""Whether a person wants it to go on."""


@dataclass(slots=True)
class _Trail:
    """The latest calls of one agent. `runs[p]` counts how many calls in a row equal the one `p` calls before."""

    calls: deque[tuple[str, Any, str, str]] = field(default_factory=lambda: deque(maxlen=LONGEST_ROUND))
    answers: deque[str] = field(default_factory=lambda: deque(maxlen=LONGEST_ROUND))
    runs: list[int] = field(default_factory=lambda: [0] * (LONGEST_ROUND + 1))
    running: bool = False  # whether any of the runs is above 0
    error: tuple[str, str] = ("", "")
    errors: int = 0

    def rounds(self, name: str, arguments: Any, answer: str, turn: str) -> int:
        """How often the round that this call ends was made; calls of one turn count once."""
        calls, runs = self.calls, self.runs
        if answer not in self.answers:  # something new: no round ends here
            if self.running:
                self.runs, self.running = [0] * (LONGEST_ROUND + 1), False
            calls.append((name, arguments, answer, turn))
            self.answers.append(answer)
            return 1
        if calls and turn and calls[-1][3] == turn and calls[-1][:3] == (name, arguments, answer):
            return 1
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
        return most + 1

    def failed(self, name: str, failure: Failure | None) -> int:
        if failure is None:
            self.errors = 0
            return 0
        same = (name, failure.message)
        self.errors = self.errors + 1 if same == self.error else 1
        self.error = same
        return self.errors


def break_loops(ask: Ask | None = None) -> Step:
    """Without anyone to `ask`, the fifth round is the last. A stopped call says so in `data.stop`."""
    trails: OrderedDict[tuple[str, str], _Trail] = OrderedDict()

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        result = await proceed(ctx)
        scope = ctx.scope
        key = (scope.session_id, scope.agent)
        trail = trails.get(key)
        if trail is None:
            trail = trails[key] = _Trail()
            if len(trails) > MOST_AGENTS:
                trails.popitem(last=False)
        rounds = trail.rounds(ctx.call.name, ctx.arguments or ctx.call.arguments, result.for_llm, scope.message_id)
        errors = trail.failed(ctx.call.name, result.failure)
        if rounds < NUDGE and errors < SAME_ERRORS:
            return result
        return await _slow_down(ctx, result, rounds, errors, ask)

    def clear_state(session_id: str) -> None:
        for key in [key for key in trails if not session_id or key[0] == session_id]:
            del trails[key]

    return having(step, screens=True, applies=lambda spec: spec.name not in EXEMPT, clear_state=clear_state)


async def _slow_down(ctx: ToolContext, result: ToolResult, rounds: int, errors: int, ask: Ask | None) -> ToolResult:
    if errors >= SAME_ERRORS:
        return _stopped(result, f"the same error came {errors} times in a row")
    what = f"the same call with the same result was made {rounds} times"
    if rounds >= STOP:
        return _stopped(result, what)
    if rounds == ASK and not (ask is not None and await ask(ctx, f"{what}; go on?")):
        return _stopped(result, what)
    note = f"\n\n[Note: {what}. Repeating it will not help: try something else, or say what stands in the way.]"
    return replace(result, for_llm=result.for_llm + note).with_data(rounds=rounds)


def _stopped(result: ToolResult, why: str) -> ToolResult:
    failure = Failure(f"stopped: {why}", ErrorKind.USER, "Report what stands in the way instead of trying again.")
    text = f"{result.for_llm}\n\n{failure.text()}"
    return replace(result, for_llm=text, failure=failure).with_data(stop="loop")
