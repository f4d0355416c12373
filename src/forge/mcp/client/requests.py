"""Requests to a server beyond its tools, and how they pass through the SDK: resources, prompts, completion, tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar, Protocol

import mcp_types as types
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage

from forge.core.errors import ErrorKind, ToolError
from forge.core.untrusted import one_line
from forge.mcp.bounds import LINE, MOST_ROUNDS
from forge.mcp.client.link import Wire, call_listener
from forge.pipeline.trace import find_telemetry, name_mcp_request

SOONEST, LATEST = 0.1, 30.0  # seconds between two looks at a task
EXPECTED = 1.0  # seconds, if the server suggests nothing
TASK_TTL = 60 * 60 * 1_000  # milliseconds that a server shall keep a task
CANCELLING = 2.0  # seconds to tell a server that its task is not needed

_LISTING: dict[str, Any] = {
    "tools/list": types.ListToolsRequest,
    "resources/list": types.ListResourcesRequest,
    "resources/templates/list": types.ListResourceTemplatesRequest,
    "prompts/list": types.ListPromptsRequest,
}


class OpenSession(Protocol):
    """The methods of a session that its requests need."""

    wire: Wire

    async def send(self, request: Any) -> dict[str, Any]: ...
    async def answer_questions(self, result: dict[str, Any]) -> dict[str, Any]: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class TaskRequest(types.Request[dict[str, Any], str]):
    """A request about a task: `tasks/get`, `tasks/result`, `tasks/update`, `tasks/cancel`."""

    name_param: ClassVar[str | None] = "taskId"


async def read_page(session: OpenSession, method: str, cursor: str | None) -> dict[str, Any]:
    """Returns one raw page of a list: one bad item must not affect the others."""
    params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
    answer = await session.send(_LISTING[method](params=params))
    page: dict[str, Any] = answer["_meta"][PAGE]
    return page


async def read_resource(session: OpenSession, uri: str) -> dict[str, Any]:
    return await _ask(session, types.ReadResourceRequest, types.ReadResourceRequestParams, {"uri": uri})


async def get_prompt(session: OpenSession, name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    said = {"name": name, "arguments": dict(arguments)}
    return await _ask(session, types.GetPromptRequest, types.GetPromptRequestParams, said)


async def complete(
    session: OpenSession, prompt: str, argument: str, value: str, known: Mapping[str, str]
) -> dict[str, Any]:
    """Asks which values an argument of a prompt may have."""
    said: dict[str, Any] = {
        "ref": {"type": "ref/prompt", "name": prompt},
        "argument": {"name": argument, "value": value},
    }
    said |= {"context": {"arguments": dict(known)}} if known else {}
    params = types.CompleteRequestParams.model_validate(said, by_name=False)
    return await session.send(types.CompleteRequest(params=params))


async def _ask(session: OpenSession, request: Any, params: Any, said: Mapping[str, Any]) -> dict[str, Any]:
    """Sends a request, and answers the questions of a newer server."""
    answers: dict[str, Any] = {}
    for _ in range(MOST_ROUNDS):
        result = await session.send(request(params=params.model_validate({**said, **answers}, by_name=False)))
        if result.get("resultType") != "input_required":
            return result
        answers = await session.answer_questions(result)
    raise too_many_rounds(session.wire.name)


def too_many_rounds(name: str) -> ToolError:
    return ToolError(
        f"{name} asked for more input {MOST_ROUNDS} times and did not answer",
        ErrorKind.SYSTEM,
        "This is the server's fault; continue without it.",
    )


class TaskFollower:
    """Follows the task that a server made of a call, to its result. If cancelled, cancels the task."""

    def __init__(self, session: OpenSession, started: Mapping[str, Any], key: object) -> None:
        self._session = session
        self._key = key
        described = started.get("task")
        self._is_modern = not isinstance(described, dict)
        self._state: Mapping[str, Any] = described if isinstance(described, dict) else started
        self._shown = ""

    async def await_result(self) -> dict[str, Any]:
        """Returns the result of the call. Raises `MCPError` or `ToolError`."""
        task = self._state.get("taskId")
        if not isinstance(task, str):
            raise self._error("started a task without an id")
        try:
            return await self._follow(task)
        except asyncio.CancelledError:
            self._session.spawn(self._cancel(task))  # not awaited here: a cancelled call ends at once
            raise

    async def _cancel(self, task: str) -> None:
        with contextlib.suppress(TimeoutError, MCPError):
            async with asyncio.timeout(CANCELLING):
                await self._send("tasks/cancel", taskId=task)

    async def _follow(self, task: str) -> dict[str, Any]:
        for _ in range(1_000_000):  # the time limit of the tool ends it
            status = self._state.get("status")
            self._report()
            if status == "completed" or (status == "input_required" and not self._is_modern):
                if not self._is_modern:  # waits for the end; questions come as requests of the server
                    return await self._send("tasks/result", taskId=task)
                result = self._state.get("result")
                if isinstance(result, dict):
                    return result
                raise self._error("completed a task without a result")
            if status == "failed":
                await self._raise_failure(task)
            if status == "cancelled":
                raise self._error("cancelled the task")
            if status == "input_required":
                answers = await self._session.answer_questions({"resultType": "input_required", **self._questions()})
                await self._send("tasks/update", taskId=task, inputResponses=answers["inputResponses"] or {})
            await asyncio.sleep(self._pause())
            self._state = await self._send("tasks/get", taskId=task)
        raise self._error("did not complete the task")

    def _questions(self) -> dict[str, Any]:
        found = self._state.get("inputRequests")
        return {"inputRequests": found if isinstance(found, dict) else {}}

    async def _raise_failure(self, task: str) -> None:
        error = self._state.get("error")
        if isinstance(error, dict):
            code, message = error.get("code"), one_line(error.get("message"), LINE)
            raise MCPError(code if isinstance(code, int) else types.INTERNAL_ERROR, message or "the task failed")
        if not self._is_modern:
            await self._send("tasks/result", taskId=task)  # it raises the error of the call
        raise self._error(one_line(self._state.get("statusMessage"), LINE) or "reported that the task failed")

    def _report(self) -> None:
        message = one_line(self._state.get("statusMessage"), LINE)
        if message and message != self._shown:
            self._shown = message
            call_listener(self._session.wire.listener.progress, self._key, float("nan"), None, message)

    def _pause(self) -> float:
        said = self._state.get("pollIntervalMs", self._state.get("pollInterval"))
        seconds = said / 1_000 if isinstance(said, int | float) and not isinstance(said, bool) else EXPECTED
        return min(LATEST, max(SOONEST, seconds))

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._session.send(TaskRequest(method=method, params=params))

    def _error(self, what: str) -> ToolError:
        return ToolError(
            f"the server {self._session.wire.name} {what}", ErrorKind.SYSTEM, "Try again, or continue without it."
        )


# --- Sends requests through the SDK: keeps lists and tasks as they are, and adds the headers of parameters to calls.


_COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
LISTS = {  # the method of a list, and the key of its items
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
TASK = "forge/task"  # in `_meta`: the task that a server started instead of an answer
PAGE = "forge/page"  # in `_meta`: a page of a list as the server sent it


class ServerDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's dispatcher below its session.

    The SDK refuses a whole list for one invalid definition, so its raw page is put into `_meta`, which the SDK does not
    check. The SDK does not know tasks: a call that became one has it in `_meta`, too.
    """

    def __init__(self, incoming: Any, outgoing: Any, wire: Wire) -> None:
        super().__init__(incoming, outgoing)
        self._wire = wire
        self._header_maps: dict[str, dict[tuple[str, ...], str]] = {}  # by tool

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **related: Any
    ) -> dict[str, Any]:
        if method == "tools/call" and params is not None and (known := self._header_maps.get(str(params["name"]))):
            headers = mcp_param_headers(known, params.get("arguments") or {})
            opts = CallOptions(**{**(opts or {}), "headers": {**((opts or {}).get("headers") or {}), **headers}})
        try:
            answer = await super().send_raw_request(method, params, opts, **related)
        except MCPError as error:
            text = self._wire.error_texts.pop(error.message, None)
            if text is None:
                raise
            raise MCPError(code=error.code, message=text, data=error.data) from None
        if method == "tools/call":
            is_task = answer.get("resultType") == "task" or isinstance(answer.get("task"), dict)
            return {"content": [], "resultType": "complete", "_meta": {TASK: answer}} if is_task else answer
        return {LISTS[method]: [], **_COMPLETE, "_meta": {PAGE: answer}} if method in LISTS else answer

    def keep_headers(self, page: Mapping[str, Any]) -> None:
        """Notes which parameters of these tools are sent as headers, too (revision 2026-07-28, over HTTP)."""
        tools = page.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                self._header_maps.pop(name, None)
                if found := x_mcp_header_map(tool.get("inputSchema")):
                    self._header_maps[name] = found


# --- Requests in traces: the SDK makes their spans, which are named here; the text of an error stays out of them.


MOST_SPANS = 1_000  # of requests that wait for an answer


class TracedMessages:
    """Our messages for the server, each request noted with its span."""

    def __init__(self, outgoing: Any, wire: Wire) -> None:
        self._outgoing = outgoing
        self._wire = wire

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            span = name_mcp_request(message.method, message.params or {}, self._wire.attributes)
            if span is not None:
                spans = self._wire.spans
                spans[str(message.id)] = span
                if len(spans) > MOST_SPANS:
                    del spans[next(iter(spans))]
        await self._outgoing.send(item)

    async def aclose(self) -> None:
        await self._outgoing.aclose()

    async def __aenter__(self) -> TracedMessages:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def note_answer(item: SessionMessage, wire: Wire) -> SessionMessage:
    """Marks the span of a failed request. Returns the answer; the SDK would write the text of an error into the span,
    so a word stands for it until `ServerDispatcher` puts it back."""
    message = item.message
    if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
        return item
    span = wire.spans.pop(str(message.id), None)
    if span is None:
        return item
    if isinstance(message, types.JSONRPCResponse):
        if message.result.get("isError") is True:
            telemetry = find_telemetry()
            span.set_attribute("error.type", "tool_error")
            span.set_status(telemetry.Status(telemetry.StatusCode.ERROR, "tool_error"))
        return item
    word = f"error {message.error.code} of request {message.id}"
    wire.error_texts[word] = message.error.message
    hidden = message.model_copy(update={"error": message.error.model_copy(update={"message": word})})
    return SessionMessage(message=hidden, metadata=item.metadata)
