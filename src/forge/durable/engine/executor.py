"""Records calls: finished ones are not run again, and one that may have happened is settled by its tool, or unknown."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from forge.agent.loop import find_waiting, may_run_again
from forge.agent.subagent import Order, Task
from forge.core.activity import ActivityStream
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.events import ToolCompleted, ToolReconciled
from forge.core.execution.deadline import Deadline, DeadlinePassed
from forge.core.execution.threads import in_thread
from forge.core.executor import Next, Step, ToolExecutor, render_call, step_name
from forge.core.messages import InnerCall, ToolCall
from forge.core.plain_values import plain, text_of
from forge.core.registry import ToolRegistry
from forge.core.result import Reconciled, ToolResult
from forge.core.secrets import Secrets
from forge.core.tool import Tool
from forge.durable.engine.attempt import Attempt, end_tasks, is_cancelled_itself
from forge.durable.engine.background import find_completed, unknown_result
from forge.durable.engine.children import SINGLE_CALL, delegate, run_call_remotely
from forge.durable.engine.scripts import StoredJournals, is_spilled
from forge.durable.store.encoding import result_from_json, result_to_json
from forge.durable.store.heartbeats import has_ended, mark_process
from forge.durable.store.rows import Wait
from forge.durable.store.steps import Detail
from forge.network.egress import use_egress
from forge.pipeline.authorize import GuardEgress
from forge.tools.run_code.journal import KeepsJournal

log = logging.getLogger("forge.durable")

Done = Callable[[ToolCall, ToolResult], None]


_PARTS_OF_CALLS = ("limit_time", "isolate")  # steps that are part of the call itself


def _insert_before_call(steps: Sequence[Step], step: Step) -> list[Step]:
    """Inserts a step inside all steps that may refuse a call, or let it wait."""
    place = next((index for index, one in enumerate(steps) if step_name(one) in _PARTS_OF_CALLS), len(steps))
    return [*steps[:place], step, *steps[place:]]


class RecordedExecutor(ToolExecutor):
    """Makes every call a step. Just before a call that must not be repeated begins, its intent is stored."""

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
        self._begun: set[str] = set()  # calls whose intent is stored, and what they call
        self._scripts: set[str] = set()  # running scripts, whose calls are steps
        self._one_inner_call = asyncio.Lock()
        self._script_error: BaseException | None = None  # why a script could not go on, if it is not the script's fault

    async def execute_all(self, calls: Sequence[ToolCall], scope: Scope, done: Done | None = None) -> list[ToolResult]:
        results: dict[str, ToolResult] = {}

        def note(call: ToolCall, result: ToolResult) -> None:
            results[call.id] = result
            if done is not None:
                done(call, result)

        for batch in self.list_batches(calls):
            await self._run_batch([calls[index] for index in batch], scope, note)
        return [results[call.id] for call in calls]

    async def _run_batch(self, calls: Sequence[ToolCall], scope: Scope, done: Done) -> None:
        """Starts calls in order, so that every attempt numbers their steps alike. If one cannot be recorded, all
        stop.
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
        """A step: records that a call that must not be repeated is about to begin. It is inside the gate, so that a
        call that waits for a person has not begun.
        """
        call = ctx.call
        if isinstance(ctx.tool, KeepsJournal) or self._may_be_repeated(call):
            return await proceed(ctx)
        with track_call(self.attempt, ctx) as tracked:
            is_part = isinstance(call, InnerCall) and call.parent in self._begun  # of a call whose intent is stored
            if call.id not in self._begun and not is_part and not await self._store_intent(ctx):
                return tracked.end(unknown_result(call, "ran"))
            self._begun.add(call.id)
            return tracked.end(await proceed(ctx))

    async def _store_intent(self, ctx: ToolContext) -> bool:
        """Returns False if an earlier attempt was about to run the call, or to run it with other arguments."""
        call, detail, earlier = ctx.call.id, await describe_intent(ctx), self.attempt.intents.get(ctx.call.id)
        if earlier is None or call not in self._cleared:
            return await self.attempt.record_intent(call, detail)
        same = has_same_arguments(detail, earlier.detail)
        return same and await self.attempt.record_intent(call, detail, earlier.attempt)

    async def execute_inner(self, call: InnerCall, scope: Scope) -> ToolResult:
        """Makes the calls of a script steps of their own, one after the other, so that every attempt numbers them
        alike. Calls of other tools are part of their step.
        """
        if call.parent not in self._scripts:
            return await super().execute_inner(call, scope)
        if refused := self.refuse_beyond_budget(call, scope):
            return refused
        async with self._one_inner_call:
            try:
                return await self._run_recorded(call, scope)
            except BaseException as error:
                self._script_error = error
                raise

    def find_journals(self, call_id: str) -> StoredJournals | None:
        """Returns where the journal of a script is kept; None for a script that is part of another step."""
        return StoredJournals(self.attempt) if call_id in self._scripts else None

    async def delegate(self, ctx: ToolContext, order: Order) -> ToolResult:
        """Runs a sub-agent's task as a run of its own."""
        return await delegate(self.attempt, ctx, order)

    async def _run_script(self, call: ToolCall, scope: Scope) -> ToolResult:
        """Runs a script outside of any step. It is run again by another attempt, with the recorded results."""
        self._scripts.add(call.id)
        self._script_error = None
        try:
            result = await self.execute(call, scope)
        finally:
            self._scripts.discard(call.id)
        if self._script_error is not None:
            raise self._script_error
        return result

    async def _run_recorded(self, call: ToolCall, scope: Scope) -> ToolResult:
        """Runs a call as a step."""
        if isinstance(self.registry.find(call.name), KeepsJournal):
            return await self._run_script(call, scope)
        is_replayed = True

        async def perform() -> Mapping[str, Any]:
            nonlocal is_replayed
            is_replayed = False
            self.attempt.context.counters.calls += 1
            if call.id in self.attempt.intents and not self._may_be_repeated(call):
                settled = await self._settle(call, scope)
                if settled is not None:
                    return await self._encode_result(settled, scope)
            began = time.monotonic()
            performed = await self._perform_in_task(call, scope)
            if "waiting" not in performed:  # it has not run yet
                self.attempt.context.counters.call_seconds.add(time.monotonic() - began)
            if self.attempt.broken is not None:  # its intent could not be stored, so it did not run
                raise self.attempt.broken
            return performed

        # a form that databases accept
        name = call.name[:64].encode("ascii", "backslashreplace").decode().replace("\0", "\\0")
        recorded = await self.attempt.step(f"call {name}", perform)
        if "waiting" in recorded:
            what = dict(recorded["waiting"])
            self.waits.append(Wait(kind=what.pop("kind", ""), call=call.id, detail=what))
            return ToolResult.failed(Waiting(recorded["message"], **recorded["waiting"]), during=render_call(call))
        result = result_from_json(recorded)
        if result.pending and is_replayed:
            await self._complete_lost(call, scope)
        return result

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
            await asyncio.to_thread(self._keep_spilled, Path(str(path)), scope.workspace)
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
        has_run_of_its_own = isinstance(tool, Task) or (bool(tool.spec.runs_on) and not self._is_remote_call)
        return has_run_of_its_own or tool.deduplicates_by_key or may_run_again(tool.spec)

    async def _settle(self, call: ToolCall, scope: Scope) -> ToolResult | None:
        """Returns the result of a call that another attempt was about to run: the recorded one if its tool finds it,
        else that its state is unknown. None: it took no effect, and it may run.
        """
        ctx = ToolContext(call, self.registry.find(call.name), {}, scope, self.activity, self.background)
        counters, reason = self.attempt.context.counters, ""
        if self.registry.find(call.name).reconciles:
            answer = await ask_guarded(self.attempt, ctx, self.steps)
            reason = self.secrets.mask_all(answer.reason)[:LONGEST_REASON]
            counters.reconciled[answer.state] += 1
            ctx.emit(ToolReconciled(call, answer.state, reason))
            if answer.state == "not_done":
                self._cleared.add(call.id)
                return None
            if answer.state == "done":
                assert answer.result is not None
                result = await self.pass_after(ctx, answer.result)
                self.refuse(call, scope, result)
                return result
        counters.unknown += 1
        result = explain_unknown(unknown_result(call, "ran"), reason)
        self.refuse(call, scope, result)
        return result

    async def _complete_lost(self, call: ToolCall, scope: Scope) -> None:
        """Completes background work that another attempt began in a process that lost this segment."""
        run = self.attempt.run
        result = await asyncio.to_thread(find_completed, self.attempt.store, run.id, run.segment, call)
        ctx = ToolContext(call, self.registry.find(call.name), {}, scope, self.activity, self.background)

        def tell() -> None:
            self.background.keep_completed(ctx, result)
            ctx.emit(ToolCompleted(call, result))

        self.attempt.when_replayed(tell)

    def _keep_spilled(self, path: Path, workspace: Path) -> None:
        """Stores the file of a long result, so that other workers and the client have it too."""
        if not is_spilled(path, workspace):
            return
        try:
            self.attempt.store.put_file(self.attempt.run.id, path.name, path.read_bytes())
        except (OSError, ToolError) as error:  # the call itself succeeded
            log.warning("run %s: %s is stored on this worker only: %s", self.attempt.run.id, path.name, error)


# Asks a tool whether a call of a lost worker took effect, before anybody learns that its state is unknown.


SECONDS = 30.0  # that a tool has for its answer
LARGEST = 64 * 1024  # characters that a tool may note with an intent
LONGEST_REASON = 300  # characters
STATES = ("done", "not_done", "unknown")


async def describe_intent(ctx: ToolContext) -> Detail:
    """Returns what is stored with the intent of a call whose tool can reconcile; None: it cannot."""
    tool = cast(Tool, ctx.tool)
    if not tool.reconciles:
        return None
    detail: dict[str, Any] = {"process": mark_process(), "arguments": _digest(ctx.arguments)}
    if _digest(tool.parse(ctx.call.arguments)) != detail["arguments"]:  # a person changed them
        detail["given"] = plain(ctx.arguments)
    if type(tool).note_intent is Tool.note_intent:
        return detail
    try:
        noted = plain(dict(await in_thread(lambda: tool.note_intent(ctx.arguments, ctx))))
    except Exception as error:  # the call itself may still work
        log.warning("%s: nothing is noted for reconciling: %s", ctx.spec.name, text_of(error))
        return detail
    if noted and len(json.dumps(noted)) <= LARGEST:
        detail["noted"] = noted
    return detail


def has_same_arguments(one: Detail, other: Detail) -> bool:
    return one is not None and other is not None and one.get("arguments") == other.get("arguments")


async def ask_guarded(attempt: Attempt, ctx: ToolContext, steps: Iterable[Step]) -> Reconciled:
    """Asks the tool as `ask_tool` does. The project's egress judges its requests, like those of a call."""
    egress = next((step.egress for step in steps if isinstance(step, GuardEgress)), None)
    with nullcontext() if egress is None else use_egress(egress):
        return await ask_tool(attempt, ctx)


async def ask_tool(attempt: Attempt, ctx: ToolContext) -> Reconciled:
    """Asks the tool of a call that an earlier attempt was about to run. Never raises: what is not sure is unknown."""
    tool, intent = cast(Tool, ctx.tool), attempt.intents.get(ctx.call.id)
    detail = intent.detail if intent is not None else {}
    try:
        given = detail.get("given")
        ctx.arguments = tool.parse(ctx.call.arguments if given is None else given)
        if detail and _digest(ctx.arguments) != detail.get("arguments"):
            return Reconciled.unknown("the tool reads the arguments of the call in another way now")
        ctx.noted = detail.get("noted", {})
        answer = _check_answer(await Deadline(tool.reconcile(ctx.key, ctx.arguments, ctx), SECONDS))
    except DeadlinePassed:
        return Reconciled.unknown(f"reconcile gave no answer within {SECONDS:g} s")
    except asyncio.CancelledError:
        if is_cancelled_itself():
            raise
        return Reconciled.unknown("reconcile cancelled itself")
    except Exception as error:
        return Reconciled.unknown(f"reconcile failed: {text_of(error)}")
    if answer.state == "not_done" and not answer.final and not _is_over(attempt, ctx, detail):
        return Reconciled.unknown("it had not taken effect, but the worker that began it may still be running it")
    return answer


def _is_over(attempt: Attempt, ctx: ToolContext, detail: Mapping[str, Any]) -> bool:
    """Returns whether the earlier attempt can certainly not run the call any more."""
    mark = str(detail.get("process", ""))
    if ctx.spec.isolate or not mark:  # its own process may have survived the worker
        return False
    if mark == mark_process():
        return not is_open(attempt, ctx)
    return has_ended(mark)


def _check_answer(answer: Any) -> Reconciled:
    if not isinstance(answer, Reconciled):
        return Reconciled.unknown(f"reconcile returned {type(answer).__name__} instead of Reconciled")
    if answer.state not in STATES:
        return Reconciled.unknown(f"reconcile returned the state {answer.state!r}, which does not exist")
    if answer.state != "done":
        return answer
    result = ToolResult.of(answer.result)
    if result.pending:
        return Reconciled.unknown("reconcile returned work that is still under way")
    return answer._replace(result=result)


def explain_unknown(result: ToolResult, reason: str) -> ToolResult:
    """Adds the tool's reason to the result of a call whose state is unknown."""
    if not reason:
        return result
    message = f"{result.for_llm}\nThe tool was asked: {reason}."
    return replace(result, for_llm=message).with_data(reconciled=reason)


def _digest(arguments: Mapping[str, Any]) -> str:
    wire = json.dumps(plain(dict(arguments)), sort_keys=True, ensure_ascii=True)
    return sha256(wire.encode()).hexdigest()[:32]


# Tracks the calls that may still run in this process, after their attempts were given up, too.


CallKey = tuple[str, int, str]
"""A run, a segment, and the id of a call."""

_open_calls: dict[CallKey, set[str]] = {}
"""Calls that may still run in this process, with the attempts that run them. One whose task was cancelled stays: its
thread cannot be stopped.
"""


def is_open(attempt: Attempt, ctx: ToolContext) -> bool:
    """Returns whether an attempt of this process may still run the call."""
    return (attempt.run.id, attempt.run.segment, ctx.call.id) in _open_calls


@contextmanager
def track_call(attempt: Attempt, ctx: ToolContext) -> Iterator[OpenCall]:
    """Notes as long as a call may run in this process, also after its attempt was given up."""
    tracked = OpenCall((attempt.run.id, attempt.run.segment, ctx.call.id), attempt.token)
    if not cast(Tool, ctx.tool).reconciles:
        yield tracked
        return
    calls = _open_calls.setdefault(tracked.key, set())
    calls.add(tracked.token)  # before its intent is stored: another attempt may see the intent at once
    yield tracked  # an exception from outside leaves it open
    if tracked.has_ended:
        calls.discard(tracked.token)
        if not calls and _open_calls.get(tracked.key) is calls:
            del _open_calls[tracked.key]


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call in this process. `token` is the attempt that runs it."""

    key: CallKey
    token: str
    has_ended: bool = False

    def end(self, result: ToolResult) -> ToolResult:
        """Returns the result. A call that ran out of time, or continues in the background, has not ended with it."""
        is_late = result.failure is not None and result.failure.kind in (ErrorKind.TIMEOUT, ErrorKind.CANCELLED)
        self.has_ended = not is_late and not result.pending
        return result
