"""Keeps the calls of MCP clients: bounds them, resumes the ones that wait for an answer, and reports progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, InputRequiredResult

from forge.core.client import LogLevel
from forge.core.context import Scope
from forge.core.errors import ErrorKind
from forge.core.events import ToolOutput, ToolProgress
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.provider import Provider
from forge.core.result import ToolResult
from forge.exports.mcp_server.client_call import GRACE, ClientCall, Job
from forge.exports.mcp_server.log_messages import DEFAULT
from forge.exports.mcp_server.progress import Reporter
from forge.exports.mcp_server.tasks import ClientTasks

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

MOST_AT_ONCE = 256  # calls that run
MOST_WAITING = 5_000  # calls that run or are queued
MOST_QUESTIONS = 100  # calls that wait for the client to repeat its request


@dataclass(eq=False, slots=True)
class ClientSession:
    """One client's connection. All clients of 2026-07-28 share one session, since their requests have no connection."""

    id: str
    user: str = ""  # of its access token
    is_shared: bool = False  # by clients that cannot be distinguished: an answer of one must not count for another
    calls: set[Any] = field(default_factory=set)
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)  # for tools that must not run in parallel
    log_level: LogLevel = DEFAULT


class ClientCalls:
    """All calls of a server. `model` is the server's own model, for clients that have none."""

    def __init__(self, executor: ToolExecutor, scope: Scope, model: Callable[[], Provider] | None = None) -> None:
        self.executor = executor
        self.scope = scope
        self.model = model
        self.tasks = ClientTasks(executor)
        self.slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._questions: dict[str, ClientCall] = {}  # by request state
        self._count = 0
        self._discarding: set[asyncio.Task[ToolResult]] = set()
        self._reporters: dict[str, Reporter] = {}  # by call
        self._unsubscribe: Callable[[], None] | None = None

    async def answer(
        self, ctx: ServerRequestContext[Any, Any], params: Any, session: ClientSession, job: Job
    ) -> dict[str, Any] | InputRequiredResult:
        """Runs a job. Returns its result, a task, or questions that the client answers by repeating its request."""
        responses: Mapping[str, object] = params.input_responses or {}
        if params.request_state is None:
            if self._count >= MOST_WAITING:
                busy = ToolResult.error(
                    f"{MOST_WAITING:,} calls are already waiting", ErrorKind.RATE_LIMITED, "Try again later."
                )
                return job.convert(busy, job.call.id)
            call = ClientCall(self, session, job, responses)
        else:
            call = self._resume_call(params.request_state, session, job)
            call.questions.answer(responses)
        return await call.await_answer(ctx)

    async def end(self, session: ClientSession) -> None:
        """Cancels the running calls of a session."""
        tasks = {call.task for call in session.calls}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        if session.is_shared:
            for task in self._discarding:
                task.cancel()

    def _resume_call(self, state: str, session: ClientSession, job: Job) -> ClientCall:
        call = self._questions.get(state)
        if call is None or call.session is not session or not call.job.is_like(job):
            raise MCPError(INVALID_PARAMS, "The question is no longer open: make the call without requestState.")
        del self._questions[state]
        return call

    @property
    def takes_questions(self) -> bool:
        return len(self._questions) < MOST_QUESTIONS

    def add(self, call: ClientCall) -> None:
        self._count += 1
        call.session.calls.add(call)

    def remove(self, call: ClientCall) -> None:
        self._count -= 1
        call.session.calls.discard(call)
        self.close_questions(call)

    def open_questions(self, call: ClientCall) -> None:
        self._questions[call.state] = call

    def close_questions(self, call: ClientCall) -> None:
        self._questions.pop(call.state, None)

    def discard(self, work: Coroutine[Any, Any, ToolResult]) -> None:
        """Drops the result of cancelled background work when it comes."""
        task = asyncio.create_task(work)
        self._discarding.add(task)
        task.add_done_callback(self._discarding.discard)

    def report(self, call: ToolCall, reporter: Reporter) -> None:
        """Starts progress reports of a call. Events cost time, so we subscribe only while a client wants them."""
        self._reporters[call.id] = reporter
        if self._unsubscribe is None:
            loop = asyncio.get_running_loop()

            def receive(event: ToolOutput | ToolProgress) -> None:
                if event.call.id in self._reporters:  # the listener may run in another thread
                    loop.call_soon_threadsafe(self._receive, event)

            self._unsubscribe = self.executor.activity.subscribe(receive, ToolOutput, ToolProgress)

    async def stop_reporting(self, call: ToolCall) -> None:
        await asyncio.sleep(0)  # lets the last events arrive
        if reporter := self.silence(call):
            await reporter.close()

    def silence(self, call: ToolCall) -> Reporter | None:
        reporter = self._reporters.pop(call.id, None)
        if not self._reporters and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        return reporter

    def _receive(self, event: ToolOutput | ToolProgress) -> None:
        if reporter := self._reporters.get(event.call.id):
            reporter.receive(event)
