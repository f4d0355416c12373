"""Tasks: calls that outlive their request, of clients that declare the extension for tasks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
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
    RequestParams,
)
from pydantic import Field

from forge.core.client import MissingCapability
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import ToolExecutor
from forge.core.plain_values import sendable
from forge.core.result import ToolResult
from forge.exports.mcp_server.client_call import ClientCall
from forge.exports.mcp_server.input_requests import declares, is_modern, required_capabilities

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

MOST = 256  # tasks that are kept
KEPT = 60 * 60.0  # seconds that a task is kept
POLL = 1_000  # milliseconds between two looks of the client
LARGEST = 256 * 1024 * 1024  # bytes of all kept results; beyond, no task is started
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
        return len(self._tasks) < MOST and sum(one.size for one in self._tasks.values()) < LARGEST

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
