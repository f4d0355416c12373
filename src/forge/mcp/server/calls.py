"""Keeps the calls of MCP clients: bounds them, resumes those that wait for an answer, and makes tasks of long ones."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    InputRequiredResult,
    RequestParams,
)
from pydantic import Field

from forge.core.client import MissingCapability
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolOutput, ToolProgress
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import sendable
from forge.core.provider import Provider
from forge.core.result import ToolResult
from forge.mcp.server.client_call import GRACE, CallRequest, ClientCall, ClientSession
from forge.mcp.server.input_requests import declares, is_modern, required_capabilities
from forge.mcp.server.notifications import Reporter

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext


MOST_AT_ONCE = 256  # calls that run
MOST_WAITING = 5_000  # calls that run or are queued
MOST_QUESTIONS = 100  # calls that wait for the client to repeat its request


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
        self, ctx: ServerRequestContext[Any, Any], params: Any, session: ClientSession, job: CallRequest
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

    def _resume_call(self, state: str, session: ClientSession, job: CallRequest) -> ClientCall:
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


# --- Tasks: calls that outlive their request, of clients that declare the extension for tasks.


MOST_TASKS = 256  # tasks that are kept
KEPT = 60 * 60.0  # seconds that a task is kept
POLL = 1_000  # milliseconds between two looks of the client
LARGEST_RESULTS = 256 * 1024 * 1024  # bytes of all kept results; beyond, no task is started
OVER = ("completed", "failed", "cancelled")


class TaskParams(RequestParams):
    task_id: str


class UpdateTaskParams(TaskParams):
    input_responses: dict[str, Any] = Field(default_factory=dict)


class ClientTask:
    """A call as its client follows it."""

    def __init__(self, call: ClientCall) -> None:
        self.id = secrets.token_urlsafe(24)  # nobody can guess it: who knows it may see the task
        self.call = call
        self.result: ToolResult | None = None
        self.is_cancelled = False
        self.began = time.monotonic()
        self.created = self.updated = datetime.now(UTC)
        self._seen = "working"

    def status(self, executor: ToolExecutor) -> str:
        """Returns the protocol's word for the state of the call."""
        self._collect(executor)
        status = self._find_status()
        if status != self._seen:
            self._seen, self.updated = status, datetime.now(UTC)
        return status

    def _collect(self, executor: ToolExecutor) -> None:
        """Takes the result once there is one, also of background work."""
        if self.result is None and self.call.task.done():
            outcome = self.call.outcome()
            if outcome.pending:
                late = executor.background.take_call(self.call.session.id, self.call.call.id)
                self.result = late
            else:
                self.result = outcome

    def _find_status(self) -> str:
        if self.result is None:
            if self.is_cancelled:
                return "cancelled"
            return "input_required" if self.call.questions else "working"
        failure = self.result.failure
        if failure is not None and failure.kind is ErrorKind.CANCELLED:
            return "cancelled"
        return "failed" if self.error() is not None else "completed"

    def error(self) -> dict[str, Any] | None:
        """Returns an error of the protocol. An error that the tool itself reports is a result."""
        failure = self.result.failure if self.result is not None else None
        if failure is None or failure.cause is None:
            return None
        if isinstance(failure.cause, MissingCapability):
            needed = {"requiredCapabilities": required_capabilities(failure.cause.capability)}
            return {"code": MISSING_REQUIRED_CLIENT_CAPABILITY, "message": failure.message, "data": needed}
        if isinstance(failure.cause, ToolError) or failure.kind is not ErrorKind.SYSTEM:
            return None
        return {"code": INTERNAL_ERROR, "message": sendable(failure.message)}

    def describe(self, status: str) -> dict[str, Any]:
        return {
            "taskId": self.id,
            "status": status,
            "createdAt": self.created.isoformat(),
            "lastUpdatedAt": self.updated.isoformat(),
            "ttlMs": int(KEPT * 1_000),
            "pollIntervalMs": POLL,
        }

    @property
    def size(self) -> int:
        """Bytes of the stored result, about."""
        if self.result is None:
            return 0
        return len(self.result.for_llm) + sum(len(one.data) for one in self.result.attachments)

    @property
    def is_expired(self) -> bool:
        return time.monotonic() - self.began > KEPT


class ClientTasks:
    """The tasks of a server. They end after an hour; running ones are cancelled then."""

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor
        self._tasks: dict[str, ClientTask] = {}
        self._by_call: dict[str, ClientTask] = {}

    @property
    def has_room(self) -> bool:
        return len(self._tasks) < MOST_TASKS and sum(one.size for one in self._tasks.values()) < LARGEST_RESULTS

    def start(self, call: ClientCall) -> dict[str, Any]:
        """Makes a call a task. Returns the answer to its request."""
        task = ClientTask(call)
        call.is_task = True
        self._tasks[task.id] = self._by_call[call.call.id] = task
        return {"resultType": "task", **task.describe("working")}

    def complete(self, call_id: str, result: ToolResult) -> bool:
        """Stores the result of background work, if it belongs to a task."""
        if call_id in self._by_call:
            self._by_call[call_id].result = result
        return call_id in self._by_call

    def remove_expired(self) -> None:
        for task in [one for one in self._tasks.values() if one.is_expired]:
            self._stop(task)
            task.status(self._executor)  # takes a result that nobody fetched
            del self._tasks[task.id], self._by_call[task.call.call.id]

    async def get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        task = self._find(ctx, params)
        status = task.status(self._executor)
        answer = {"resultType": "complete", **task.describe(status)}
        if status == "input_required":
            answer["inputRequests"] = {
                key: request.model_dump(by_alias=True, mode="json", exclude_none=True)
                for key, request in task.call.questions.requests.items()
            }
        elif status == "completed" and task.result is not None:
            answer["result"] = task.call.convert(task.result)
        elif status == "failed":
            answer["error"] = task.error()
        return answer

    async def update(self, ctx: ServerRequestContext[Any, Any], params: UpdateTaskParams) -> dict[str, Any]:
        """Delivers answers to open questions; other keys are ignored."""
        self._find(ctx, params).call.questions.answer(params.input_responses)
        return {"resultType": "complete"}

    async def cancel(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        task = self._find(ctx, params)
        if task.status(self._executor) not in OVER:
            self._stop(task)
        return {"resultType": "complete"}

    def _stop(self, task: ClientTask) -> None:
        task.is_cancelled = True
        task.call.task.cancel()
        self._executor.background.cancel_call(task.call.session.id, task.call.call.id)

    def _find(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> ClientTask:
        """Returns the task of a request. Raises the protocol's errors."""
        if not is_modern(ctx):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not declares(ctx.session.client_capabilities, "tasks", ctx.protocol_version):
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                "Declare the extension for tasks.",
                {"requiredCapabilities": required_capabilities("tasks")},
            )
        _check_header(ctx, params.task_id)
        task = self._tasks.get(params.task_id)
        if task is None or task.is_expired:
            raise MCPError(INVALID_PARAMS, "There is no such task, or it has expired.")
        return task


def _check_header(ctx: ServerRequestContext[Any, Any], task_id: str) -> None:
    """Compares the header `Mcp-Name` with the task: proxies route by it."""
    headers: Mapping[str, str] | None = getattr(ctx.request, "headers", None)
    if headers is not None and decode_header_value(headers.get(MCP_NAME_HEADER, "")) != task_id:
        raise MCPError(HEADER_MISMATCH, "The header Mcp-Name must be the id of the task.")
