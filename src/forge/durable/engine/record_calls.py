"""Records calls: finished ones are not run again, and one that may have happened is settled by its tool, or unknown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge.agent.loop import find_waiting, may_run_again
from forge.agent.subagent import Order
from forge.core.activity import ActivityStream
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolCompleted, ToolReconciled
from forge.core.execution.chain import Next, Step, step_name
from forge.core.execution.deadline import is_cancelled_itself
from forge.core.execution.threads import in_thread
from forge.core.executor import ToolExecutor
from forge.core.messages import InnerCall, ToolCall, render_call
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.durable.engine.attempt import Attempt
from forge.durable.engine.children import delegate, run_call_remotely
from forge.durable.engine.reconcile import (
    ask_tool,
    describe_intent,
    explain_unknown,
    find_completed,
    has_same_arguments,
    note_open_call,
    unknown_result,
)
from forge.durable.engine.scripts import StoredJournals
from forge.durable.engine.spilled_files import keep_spilled
from forge.durable.engine.tasks import end_tasks
from forge.durable.store.encoding import result_from_json, result_to_json
from forge.durable.store.rows import SINGLE_CALL
from forge.durable.store.waits import Wait
from forge.permissions.gate import gate_of
from forge.pipeline.limit_calls import Isolate, LimitTime
from forge.tools.run_code.journal import KeepsJournal

log = logging.getLogger("forge.durable")

LONGEST_REASON = 300  # characters of what a tool says when it is asked about a call

PARTS_OF_A_CALL = (LimitTime.name, Isolate.name)
"""The steps of the pipeline that are part of the call itself. The others may refuse a call, or let it wait.

The intent is stored between these and the others. Further out, a call that only waits would have an intent, and so
might have happened. Further in, the call of an isolated tool would have none: `isolate` runs the tool in another
process, and no step that is inside of it.
"""

Done = Callable[[ToolCall, ToolResult], None]


class RecordedExecutor(ToolExecutor):
    """Makes every call a recorded step. Just before a call that must not be repeated begins, its intent is stored."""

    def __init__(
        self,
        attempt: Attempt,
        registry: ToolRegistry,
        steps: Sequence[Step],
        activity: ActivityStream | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(registry, _insert_before_call(steps, self._record_intent), activity, secrets)
        self.attempt = attempt
        self.waits: list[Wait] = []  # what calls of this segment wait for
        self._cleared: set[str] = set()  # calls of an earlier attempt that took no effect, as their tools say
        self._begun: set[str] = set()  # calls whose intent is stored, and the calls that they make
        self._scripts: set[str] = set()  # running scripts, whose calls are recorded steps
        self._one_inner_call = asyncio.Lock()

    async def execute_all(self, calls: Sequence[ToolCall], scope: Scope, done: Done | None = None) -> list[ToolResult]:
        results: dict[str, ToolResult] = {}

        def note(call: ToolCall, result: ToolResult) -> None:
            results[call.id] = result
            if done is not None:
                done(call, result)

        for batch in self.list_batches(calls):
            await self._run_batch([calls[index] for index in batch], scope, note)
        return [results[call.id] for call in calls]

    async def execute_inner(self, call: InnerCall, scope: Scope) -> ToolResult:
        """Makes the calls of a script recorded steps of their own, one after the other, so that every attempt numbers
        them alike. A call that another tool makes is part of that tool's recorded step.
        """
        if call.parent not in self._scripts:
            return await super().execute_inner(call, scope)
        if refused := self.refuse_beyond_budget(call, scope):
            return refused
        async with self._one_inner_call:
            try:
                return await self._run_recorded(call, scope)
            except BaseException as error:  # also that it was cancelled: the script is run again by another attempt
                self.attempt.note_broken(error)
                raise

    def find_journals(self, call_id: str) -> StoredJournals | None:
        """Returns where the journal of a script is kept; None for a script that is part of another call."""
        return StoredJournals(self.attempt) if call_id in self._scripts else None

    async def delegate(self, ctx: ToolContext, order: Order) -> ToolResult:
        """Runs a sub-agent's task as a run of its own."""
        return await delegate(self.attempt, ctx, order)

    async def _run_batch(self, calls: Sequence[ToolCall], scope: Scope, done: Done) -> None:
        """Starts calls in order, so that every attempt numbers their recorded steps alike. If one cannot be
        recorded, all stop.
        """

        async def run(call: ToolCall) -> None:
            done(call, await self._run_recorded(call, scope))

        tasks = [asyncio.ensure_future(run(call)) for call in calls]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await end_tasks(tasks)
            raise

    async def _record_intent(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        """A step of the pipeline: stores the intent of a call that must not be repeated, just before it begins
        (`PARTS_OF_A_CALL` says where).
        """
        call = ctx.call
        if isinstance(ctx.tool, KeepsJournal) or self._may_be_repeated(call) or gate_of(ctx).trial is not None:
            return await proceed(ctx)  # a trial changes nothing; `begin_call` stores the intent to apply its effects
        with note_open_call(self.attempt, ctx) as noted:
            is_part = isinstance(call, InnerCall) and call.parent in self._begun  # of a call whose intent is stored
            if call.id not in self._begun and not is_part and not await self._store_intent(ctx):
                return unknown_result(call)
            self._begun.add(call.id)
            noted.begin()
            return noted.end(await proceed(ctx))

    async def begin_call(self, ctx: ToolContext) -> bool:
        """Stores that the effects of a trial run are about to be applied. Returns False if an earlier attempt did."""
        if self._may_be_repeated(ctx.call) or ctx.call.id in self._begun:
            return True
        if not await self._store_intent(ctx):
            return False
        self._begun.add(ctx.call.id)
        return True

    async def _store_intent(self, ctx: ToolContext) -> bool:
        """Returns False if an earlier attempt was about to run the call, unless that took no effect and had the same
        arguments.
        """
        call, detail, earlier = ctx.call.id, await describe_intent(ctx), self.attempt.intents.get(ctx.call.id)
        if earlier is None or call not in self._cleared:
            return await self.attempt.record_intent(call, detail)
        same = has_same_arguments(detail, earlier.detail)
        return same and await self.attempt.record_intent(call, detail, earlier.attempt)

    async def _run_script(self, call: ToolCall, scope: Scope) -> ToolResult:
        """Runs a script outside of any recorded step. It is run again by another attempt, with the recorded results."""
        self._scripts.add(call.id)
        try:
            result = await self.execute(call, scope)
        finally:
            self._scripts.discard(call.id)
        self.attempt.raise_if_broken()
        return result

    async def _run_recorded(self, call: ToolCall, scope: Scope) -> ToolResult:
        """Runs a call as a recorded step."""
        if isinstance(self.registry.find(call.name), KeepsJournal):
            return await self._run_script(call, scope)
        is_replayed = self.attempt.replays_next
        # a form that databases accept
        name = call.name[:64].encode("ascii", "backslashreplace").decode().replace("\0", "\\0")
        recorded = await self.attempt.record(f"call {name}", lambda: self._make_call(call, scope))
        if "waiting" in recorded:
            wait = Wait.of_call(call.id, recorded["waiting"])
            self.waits.append(wait)
            return ToolResult.failed(wait.as_error(recorded["message"]), during=render_call(call))
        result = result_from_json(recorded)
        if result.pending and is_replayed:
            await self._complete_lost(call, scope)
        return result

    async def _make_call(self, call: ToolCall, scope: Scope) -> Mapping[str, Any]:
        """Makes a call and counts it; one that another attempt was about to run is settled instead."""
        counters = self.attempt.context.counters
        counters.calls += 1
        if (settled := await self._settle(call, scope)) is not None:
            return await self._encode_result(settled, scope)
        began = time.monotonic()
        performed = await self._perform_in_task(call, scope)
        if "waiting" not in performed:  # a call that waits has not run
            counters.call_seconds.add(time.monotonic() - began)
        self.attempt.raise_if_broken()  # such as if its intent could not be stored: then it did not run
        return performed

    async def _perform_in_task(self, call: ToolCall, scope: Scope) -> Mapping[str, Any]:
        """Performs a call in its own task: a tool that cancels its task fails, and the segment continues."""
        try:
            return await asyncio.create_task(self._perform_call(call, scope))
        except asyncio.CancelledError:
            if is_cancelled_itself():
                raise
            error = ToolError("it cancelled itself", ErrorKind.CANCELLED)
            return result_to_json(ToolResult.failed(error, during=render_call(call)))

    async def _perform_call(self, call: ToolCall, scope: Scope) -> Mapping[str, Any]:
        offer = self.registry.find(call.name).spec.runs_on
        if offer and not self._is_remote_call:
            result = await self._run_remotely(call, scope, offer)
        else:
            result = await self.execute(call, scope)
        waits = find_waiting(result)
        if waits is not None:
            return {"waiting": waits.what, "message": waits.message}
        return await self._encode_result(result, scope)

    async def _encode_result(self, result: ToolResult, scope: Scope) -> Mapping[str, Any]:
        if path := result.data.get("spilled"):
            await in_thread(lambda: keep_spilled(self.attempt, Path(str(path)), scope.workspace))
        return result_to_json(result)

    async def _run_remotely(self, call: ToolCall, scope: Scope, offer: str) -> ToolResult:
        try:
            return await run_call_remotely(self.attempt, call, scope, offer)
        except ToolError as error:
            return ToolResult.failed(error, during=render_call(call))

    @property
    def _is_remote_call(self) -> bool:
        """True for the run of one call that needs an offer. Other runs always delegate such calls, since the next
        attempt may be on a worker without that offer.
        """
        return bool(self.attempt.run.scope.get(SINGLE_CALL))

    def _may_be_repeated(self, call: ToolCall) -> bool:
        tool = self.registry.find(call.name)
        has_run_of_its_own = bool(tool.spec.runs_on) and not self._is_remote_call
        return has_run_of_its_own or tool.deduplicates_by_key or may_run_again(tool.spec)

    async def _settle(self, call: ToolCall, scope: Scope) -> ToolResult | None:
        """Returns the result of a call that another attempt was about to run: the recorded one if its tool finds it,
        else that its state is unknown. None: no attempt was, or it took no effect or may be repeated, so it runs.
        """
        if call.id not in self.attempt.intents or self._may_be_repeated(call):
            return None
        ctx = ToolContext(call, self.registry.find(call.name), {}, scope, self.activity, self.background)
        counters, reason = self.attempt.context.counters, ""
        if self.registry.find(call.name).reconciles:
            answer = await ask_tool(self.attempt, ctx, self.steps)
            reason = self.secrets.mask_all(answer.reason)[:LONGEST_REASON]
            counters.reconciled[answer.state] += 1
            ctx.emit(ToolReconciled(call, answer.state, reason))
            if answer.state == "not_done":
                self._cleared.add(call.id)
                return None
            if answer.state == "done":
                assert answer.result is not None
                result = await self.pass_after(ctx, answer.result)
                self.emit_not_run(call, scope, result)
                return result
        counters.unknown += 1
        result = explain_unknown(unknown_result(call), reason)
        self.emit_not_run(call, scope, result)
        return result

    async def _complete_lost(self, call: ToolCall, scope: Scope) -> None:
        """Completes background work that another attempt began in a process that lost this segment."""
        run = self.attempt.run
        result = await in_thread(lambda: find_completed(self.attempt.store, run.id, run.segment, call))
        ctx = ToolContext(call, self.registry.find(call.name), {}, scope, self.activity, self.background)

        def announce() -> None:
            self.background.keep_completed(ctx, result)
            ctx.emit(ToolCompleted(call, result))

        self.attempt.when_replayed(announce)


def _insert_before_call(steps: Sequence[Step], step: Step) -> list[Step]:
    """Inserts a step of the pipeline just outside those that belong to the call itself."""
    place = next((index for index, one in enumerate(steps) if step_name(one) in PARTS_OF_A_CALL), len(steps))
    return [*steps[:place], step, *steps[place:]]
