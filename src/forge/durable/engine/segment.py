"""Runs a segment of a run: loads it, drives it to its end, records it, and starts the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any
from uuid import uuid4

from dbos import DBOS

from forge.agent.agent import Agent
from forge.agent.conversation import Conversation
from forge.agent.labels import follow_labels
from forge.agent.limits import Limits, Spent, price_for
from forge.agent.loop import LoopSettings, find_waiting
from forge.agent.output import Structured
from forge.agent.result import RunResult, make_finished_event
from forge.core.activity import ActivityStream
from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.events import Event, MessageReceived, RunStarted
from forge.core.execution.threads import in_thread
from forge.core.messages import SENT, Message, Usage, unanswered_calls
from forge.core.plain_values import text_of
from forge.core.result import Failure
from forge.durable.engine.agents import find_agent
from forge.durable.engine.attempt import Attempt, LostSegment, Stopped, current_attempt
from forge.durable.engine.dbos_private import NoOutcome, list_recorded_steps
from forge.durable.engine.engine import running_engine
from forge.durable.engine.follow_up import follow_up
from forge.durable.engine.record_calls import RecordedExecutor
from forge.durable.engine.record_events import EventRecorder
from forge.durable.engine.record_turns import RecordedProvider
from forge.durable.engine.spilled_files import restore_spilled
from forge.durable.engine.start_segments import SEGMENT_WORKFLOW, workflow_id
from forge.durable.engine.tracing import segment_span
from forge.durable.engine.worker_context import WorkerContext
from forge.durable.store.attempts import Begun
from forge.durable.store.carried import CarriedState, RunUsage
from forge.durable.store.database import is_away
from forge.durable.store.encoding import result_of, result_to_json
from forge.durable.store.rows import MODEL, SINGLE_CALL, TASK, Ending, Outcome, RunInfo
from forge.durable.store.waits import Wait, find_times
from forge.workspace.history.tracking import SessionState, TrackedCall, track_call

log = logging.getLogger("forge.durable")


@DBOS.workflow(name=SEGMENT_WORKFLOW)
async def segment_workflow(run_id: str, number: int) -> str:
    """Runs a segment. A worker that takes the segment over runs it again, in another workflow."""
    engine = running_engine()
    try:
        return await engine.work_on(str(DBOS.workflow_id), perform(engine.context, run_id, number))
    except LostSegment as lost:
        log.warning("run %s, segment %d: its outcome is not stored, because another worker runs it", run_id, number)
        raise NoOutcome from lost  # the worker that took the segment over has cancelled this workflow
    except Exception as error:
        if not is_away(error):
            raise
        log.warning(
            "run %s, segment %d: postponed, because the database is unreachable: %s",
            run_id,
            number,
            text_of(error),
            extra={"run": run_id},
        )
        raise NoOutcome from error  # Engine.requeue_forgotten requeues the segment


async def perform(context: WorkerContext, run_id: str, number: int) -> str:
    """Works on a segment until it ends; returns the status of its run, or "over" if there was nothing to do.

    Raises `LostSegment` if another worker took the segment.
    """
    token, store = uuid4().hex, context.store
    begun: Begun | None = await in_thread(lambda: store.begin_attempt(run_id, number, context.worker, token))
    if begun is None:
        return "over"  # the run or the segment is over
    if begun.queued_seconds is not None:
        context.counters.add_wait(begun.run.queue, begun.queued_seconds)
    first = workflow_id(run_id, number)  # all recorded steps of the segment are under the id of its first workflow
    recorded = {} if begun.is_first else await in_thread(lambda: list_recorded_steps(store.database, first))
    attempt = Attempt(
        begun.run, context, token, recorded, begun.intents, begun.is_first, has_messages=begun.has_messages
    )
    context.attempts[run_id] = attempt
    current_attempt.set(attempt)
    try:
        with segment_span(attempt.run, context.worker) as record_outcome:
            outcome = await _drive(attempt)
            record_outcome(outcome)
        closed: RunInfo | None = await in_thread(lambda: store.close_attempt(run_id, number, outcome, token))
        if closed is None:
            raise LostSegment(f"segment {number} of run {run_id} is run by another attempt")
    finally:
        if context.attempts.get(run_id) is attempt:
            del context.attempts[run_id]
    context.counters.add_segment(attempt.run, outcome)
    await follow_up(context, closed)
    return closed.status


async def _drive(attempt: Attempt) -> Outcome:
    """Returns the segment's outcome; raises only if another worker took the segment, or the database is unreachable."""
    driven = None
    try:
        context, model = attempt.context, str(attempt.run.scope.get(MODEL, ""))
        agent = find_agent(context.agents, attempt.run.agent, model, context.models)
        history = await in_thread(lambda: attempt.store.messages(attempt.run.id, attempt.run.segment))
        scope = agent.scope
        if attempt.run.segment > 1 or not attempt.is_first:  # else there is no file yet
            await in_thread(lambda: restore_spilled(attempt, scope.workspace))
        await agent.registry.ready(scope)
        carried = CarriedState.read(attempt.run.spent)
        driven = DrivenSegment(attempt, agent, scope, history, carried)
        outcome = await driven.drive()
    except Exception as error:  # a run must end, even if Forge or the engine fails
        if is_away(error) or isinstance(error, LostSegment):
            raise
        failure = _failure(attempt.run, error)
        result = RunResult(text="", reason="error", turns=0, messages=[], error=failure)
        if driven is None:
            return Outcome(status="failed", messages=(), spent=attempt.run.spent, result=result_of(result))
        outcome = driven.make_outcome("failed", result=result_of(result))
    finally:
        if driven is not None:
            await driven.close()
    return replace(outcome, last_event=driven.recorder.last)


def _failure(run: RunInfo, error: Exception) -> Failure:
    again = f"forge runs resume {run.id} tries again."
    if isinstance(error, ToolError):  # such as an unknown agent or model
        return Failure(
            f"the run could not continue: {error.message}", error.kind, f"{error.suggestion} {again}".strip()
        )
    log.debug("run %s, segment %d", run.id, run.segment, exc_info=error)  # `follow_up` logs the reason
    return Failure(f"the run could not continue: {text_of(error)}", suggestion=again)


class DrivenSegment:
    """A segment that an attempt drives: its conversation, its loop, its usage."""

    def __init__(
        self, attempt: Attempt, agent: Agent, scope: Scope, history: list[Message], carried: CarriedState
    ) -> None:
        self.attempt, self.agent, self.run = attempt, agent, attempt.run
        self.known = len(history)  # messages that are stored already
        self.conversation = Conversation(history)
        self.recorder = EventRecorder((self.run.id, self.run.segment), attempt.context.events)
        self.activity = ActivityStream(agent.secrets)
        self.activity.subscribe(self.recorder.take)
        self.held = ""  # this worker, once it holds background work of the segment
        watch = attempt.context.watch
        self._stop_watching = watch(self.activity) if watch is not None else None
        self.structured: Structured | None = None  # made when the run has its dependencies
        self.carried = carried
        self.meta = dict(carried.meta)
        self.spent = Spent(
            turns=carried.used.turns,
            calls=carried.used.calls,
            usage=carried.used.usage,
            priced=carried.used.priced,
            priced_cost=carried.used.priced_cost,
            started=time.monotonic() - carried.used.seconds,
        )
        given = self.run.scope
        self.scope = replace(
            scope,
            session_id=self.run.session or self.run.id,
            agent=agent.name,
            channel=str(given.get("channel", scope.channel)),
            chat_id=str(given.get("chat_id", scope.chat_id)),
            user=str(given.get("user", scope.user)),
            task=str(given.get(TASK, "")),
        )
        attempt.context.programs.note_run(self.run, self.scope.session_id)

    async def drive(self) -> Outcome:
        """Drives the segment to its end; returns its outcome."""
        self.scope = await self.agent.with_deps(self.scope)
        self.structured = self.agent.structure(self.scope, by_tool=True)
        executor = self._executor()
        if self.run.segment == 1:
            self._emit(RunStarted(self.run.prompt))
        for message in self.conversation.messages[self.known - self._count_sent() :]:
            self._emit(MessageReceived(message.text))
        try:
            if self.run.scope.get(SINGLE_CALL):
                return await self.attempt.run_until_stopped(self._one_call(executor))
            result = await self.attempt.run_until_stopped(self._loop(executor))
            self.attempt.raise_if_broken()
        except Stopped:
            executor.background.cancel(self.scope.session_id)
            result = self._cancelled_result()
        except BaseException:  # the segment is lost or failed: background work has no receiver
            executor.background.cancel(self.scope.session_id)
            raise
        outcome = self._outcome_of(result, executor)
        if outcome.status not in ("waiting", "continue"):
            self._emit(make_finished_event(result, self.run.id))
        return outcome

    def make_outcome(
        self, status: Ending, waits: list[Wait] | tuple[Wait, ...] = (), result: Mapping[str, Any] | None = None
    ) -> Outcome:
        carried = replace(
            self.carried,
            used=RunUsage(
                turns=self.spent.turns,
                calls=self.spent.calls,
                usage=self.spent.usage.plus(self.conversation.paid),
                priced=self.spent.priced,
                priced_cost=self.spent.priced_cost,
                seconds=round(self.spent.seconds, 3),
            ),
            cost=self.spent.cost(price_for(self.agent.limits, self.agent.provider), self.conversation.paid),
            model=self.agent.model,
            meta=self.meta,
            waited=find_times(waits),
        )
        said, spent = tuple(self.conversation.messages[self.known :]), carried.to_json()
        return Outcome(status=status, messages=said, spent=spent, waits=tuple(waits), result=result, held=self.held)

    async def close(self) -> None:
        try:
            await self.activity.drain()
        finally:
            if self._stop_watching is not None:
                self._stop_watching()
        await self.recorder.close()

    def _count_sent(self) -> int:
        """Counts the messages at the end of the history that a person has sent during the run."""
        last = takewhile(lambda message: message.extra.get(SENT), reversed(self.conversation.messages))
        return sum(1 for _ in last)

    async def _loop(self, executor: RecordedExecutor) -> RunResult:
        agent = self.agent
        provider = RecordedProvider(agent.model_for(self.scope.session_id), self.attempt, self.conversation.messages)
        shortening = agent.make_shortening(self.scope, provider, self.meta)
        shortening.recall(self.conversation)
        settings = LoopSettings(
            id=self.run.id,
            options=agent.options,
            prepare=shortening,
            not_started=[call.id for call in unanswered_calls(self.conversation.messages)],  # calls that waited
            pause=self.attempt.should_pause,
            announce=False,
            record=self.attempt.record,
            spent=self.spent,
        )
        # changes of a sub-agent belong to the call of its parent
        with track_call(TrackedCall(SessionState(), self.scope.session_id, call_id=self.run.parent_call)):
            return await agent.drive(
                executor,
                self.conversation,
                self.scope,
                settings,
                provider=provider,
                limits=self._limits(),
                structured=self.structured,
            )

    def _limits(self) -> Limits:
        """Returns the limits, counted from the last resume: a new message grants the full limits again."""
        limits, before = self.agent.limits, self.carried.before
        earlier = Spent(usage=before.usage, priced=before.priced, priced_cost=before.priced_cost)
        price = earlier.cost(price_for(limits, self.agent.provider), Usage()) or 0.0
        return replace(
            limits,
            turns=limits.turns + before.turns,
            calls=limits.calls and limits.calls + before.calls,
            tokens=limits.tokens and limits.tokens + before.usage.total,
            cost=limits.cost and limits.cost + price,
            seconds=limits.seconds and limits.seconds + before.seconds,
        )

    async def _one_call(self, executor: RecordedExecutor) -> Outcome:
        """Runs only the delegated call; its result is the run's."""
        call = unanswered_calls(self.conversation.messages)[0]
        scope = self.scope.in_turn(str(self.run.scope.get("message_id", "")))
        with follow_labels(executor, self.conversation.messages) as labels:
            if labels is not None:
                labels.follow(self.conversation.messages)  # what the run has read that makes the call
            (result,) = await executor.execute_all([call], scope)
            if result.pending:  # nothing resumes this run, so it ends with the work itself
                result = await executor.background.await_call(scope.session_id, call.id)
        if find_waiting(result) is not None:
            return self.make_outcome("waiting", executor.waits)
        ended = RunResult(text=result.for_llm, reason="answer", turns=0, calls=1, messages=[])
        return self.make_outcome("finished", result={**result_of(ended), "call": result_to_json(result)})

    def _executor(self) -> RecordedExecutor:
        registry = self.attempt.context.tools_of(self.agent)
        if self.structured is not None:
            registry = self.structured.offer(registry)
        return RecordedExecutor(self.attempt, registry, self.agent.steps, self.activity, self.agent.secrets)

    def _outcome_of(self, result: RunResult, executor: RecordedExecutor) -> Outcome:
        has_background = executor.background.is_open(self.scope.session_id)
        if has_background:
            self.attempt.context.held.hold(self.run, executor.background, self.scope.session_id)
            self.held = self.attempt.context.worker
        if result.reason == "waiting":
            under_way = [Wait.for_background(self.attempt.context.worker)] if has_background else []
            waits = executor.waits or ([] if self.attempt.should_pause() else under_way)
            return self.make_outcome("waiting" if waits else "continue", waits)
        if result.reason == "question":
            return self.make_outcome("waiting", [Wait.for_words(result.text)])
        if self.structured is not None and self.structured.is_found:
            result.output_or_none, result.has_output = self.structured.found, True
        failed = result.is_error or result.reason == "loop"
        status: Ending = "cancelled" if result.reason == "cancelled" else "failed" if failed else "finished"
        outcome = self.make_outcome(status, result=result_of(result))
        # if a person spoke meanwhile, the model answers that, too
        return replace(outcome, answers_messages=result.reason == "answer" and not has_background)

    def _cancelled_result(self) -> RunResult:
        spent, messages = self.spent, self.conversation.messages
        texts = (one.text for one in reversed(messages[self.known :]) if one.role == "assistant" and one.text)
        return RunResult(
            text=next(texts, ""),
            reason="cancelled",
            turns=spent.turns,
            calls=spent.calls,
            usage=spent.usage.plus(self.conversation.paid),
            cost=spent.cost(price_for(self.agent.limits, self.agent.provider), self.conversation.paid),
            messages=messages,
            estimated=spent.estimated,
        )

    def _emit(self, event: Event) -> None:
        scope = self.scope
        event.session, event.agent, event.task = scope.session_id, scope.agent, scope.task
        self.activity.emit(event)
