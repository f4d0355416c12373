"""One session with a server through the official SDK. Importing this imports the SDK, which takes a second."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from forge.core.errors import ErrorKind, ToolError
from forge.sources.mcp.bounds import INSTRUCTIONS, LINE, MOST_ASKING, MOST_ROUNDS
from forge.sources.mcp.http import OURS, over_http
from forge.sources.mcp.listener import Listener, can_answer, current_call_key
from forge.sources.mcp.rate_limited_messages import RateLimitedMessages
from forge.sources.mcp.server_link import Wire, call_listener
from forge.sources.mcp.stdio import over_stdio
from forge.sources.mcp.target import Target
from forge.sources.untrusted import clean, one_line

_DUMP = re.compile(r"\d+ validation errors? for ")  # the SDK's message for an unreadable answer
_WAYS = {
    ErrorKind.VALIDATION: "Check the tool's name and its arguments.",
    ErrorKind.SYSTEM: "The server is at fault: try again later, or do without it.",
}
_OFTEN = 1.0  # seconds between two reports of a changed list
_ANY: Any = TypeAdapter(dict[str, Any])  # raw; the SDK has checked it by then

for _name in ("mcp", "client"):  # the SDK's log has texts of servers: shown only if logging is set up
    logging.getLogger(_name).addHandler(logging.NullHandler())


@asynccontextmanager
async def open_session(name: str, target: Target, listener: Listener, timeout: float) -> AsyncIterator[ServerSession]:
    """Opens a session with its handshake. Raises `ToolError`, possibly inside an exception group."""
    wire = Wire(name, listener)
    way = over_http(target, wire) if target.url else over_stdio(target, wire)
    async with way as (incoming, outgoing):
        session = ServerSession(wire, JSONRPCDispatcher(RateLimitedMessages(incoming, wire), outgoing))
        async with session.client:
            await session.shake_hands(timeout)
            try:
                yield session
            finally:
                session.stop_reports()


class ServerSession:
    """Sends requests to a server. Each request runs in its caller's task; there may be many at once."""

    def __init__(self, wire: Wire, dispatcher: JSONRPCDispatcher[Any]) -> None:
        self.wire = wire
        self.fallen = asyncio.Event()  # set when the callers know that the session is lost
        self.calls: dict[object, None] = {}  # the keys of open calls
        self._dispatcher = dispatcher
        self._asking = 0
        self._reported_at = float("-inf")
        self._pending_report: asyncio.TimerHandle | None = None
        listener = wire.listener
        self.client = ClientSession(
            dispatcher=dispatcher,
            sampling_callback=self._sample if can_answer(listener, "sample") else None,
            elicitation_callback=self._elicit if can_answer(listener, "elicit") else None,
            logging_callback=self._log,
            message_handler=self._receive,
            client_info=types.Implementation(name="forge", version=_version()),
            log_level="info",
        )

    async def shake_hands(self, timeout: float) -> None:
        """Performs the handshake, first the one that all servers support."""
        name = self.wire.name
        try:
            async with asyncio.timeout(timeout):
                try:
                    await self.client.initialize()
                except MCPError as error:
                    if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                        raise
                    await self.client.discover()
        except TimeoutError:
            ending = self.wire.describe_end(f"no answer to its greeting within {timeout:g} s")
            raise ToolError(
                f"the server {name} cannot be used: {ending}",
                ErrorKind.TIMEOUT,
                "Check that the command or the URL is that of an MCP server.",
            ) from None
        except MCPError as error:
            raise await self._handshake_error(error) from None
        except ValidationError:
            raise _unusable_error(name, "its greeting is not what the protocol says") from None
        except RuntimeError as error:
            versions = ", ".join((*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS))
            raise _unusable_error(name, f"{one_line(str(error))}; spoken here: {versions}") from None

    async def _handshake_error(self, error: MCPError) -> ToolError:
        """Returns the most specific error of a failed handshake."""
        wire = self.wire
        if (ours := self._own_error(error)) is not None:
            return ours
        if _is_closed(error) and await _is_lost(wire):
            if (why := wire.unstartable) is not None:
                hint = why.suggestion or "Check the command."
                return ToolError(f"the server {wire.name} cannot be started: {why.message}", ErrorKind.CONFIG, hint)
            hint = "Run its command by hand to see what it lacks."
            return ToolError(
                f"the server {wire.name} ended before it could be used ({wire.lost.result()})", ErrorKind.CONFIG, hint
            )
        if _DUMP.search(error.message):
            return _unusable_error(wire.name, "its greeting is not what the protocol says")
        return _unusable_error(wire.name, f"it refused the greeting: {one_line(error.message, LINE)}")

    @property
    def info(self) -> dict[str, Any]:
        """The server's own name, version and title, cleaned."""
        reported = self.client.server_info
        if reported is None:
            return {}
        fields = {"name": reported.name, "version": reported.version, "title": reported.title}
        return {key: one_line(value) for key, value in fields.items() if value}

    @property
    def instructions(self) -> str:
        return clean(self.client.instructions or "", INSTRUCTIONS)

    async def page(self, cursor: str | None) -> dict[str, Any]:
        """Returns one raw page of the server's tools: one bad definition must not affect the others."""
        params = {"cursor": cursor} if cursor is not None else {}
        if self.client.initialize_result is None:  # the SDK adds what newer servers require with each request
            request = types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor))
            answer: dict[str, Any] = await self.client.send_request(request, _ANY)
            return answer
        return await self._dispatcher.send_raw_request("tools/list", params)

    async def call(self, name: str, arguments: Mapping[str, Any], key: object) -> dict[str, Any]:
        """Returns the raw result of a call. If cancelled, it notifies the server."""
        listener = self.wire.listener

        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            if key in self.calls:
                call_listener(listener.progress, key, progress, total, one_line(message or "", LINE))

        self.calls[key] = None
        token = current_call_key.set(key)  # over HTTP, the server's questions carry our context
        try:
            answers: dict[str, Any] = {}
            for _ in range(MOST_ROUNDS):
                params = types.CallToolRequestParams.model_validate(
                    {"name": name, "arguments": dict(arguments), **answers}, by_name=False
                )
                request = types.CallToolRequest(params=params)
                result: dict[str, Any] = await self.client.send_request(
                    request, _ANY, progress_callback=report_progress
                )
                if result.get("resultType") != "input_required":
                    return result
                answers = await self._answer_questions(result)
        finally:
            current_call_key.reset(token)
            self.calls.pop(key, None)
        raise ToolError(
            f"{self.wire.name} asked for more {MOST_ROUNDS} times and did not answer",
            ErrorKind.SYSTEM,
            "The server is at fault; do without it.",
        )

    async def failure(self, error: Exception) -> ToolError | None:
        """Returns the error behind one of the SDK's; None if the session was lost: then its owner knows the reason."""
        name = self.wire.name
        if isinstance(error, MCPError):
            if (ours := self._own_error(error)) is not None:
                return ours
            if _is_closed(error):
                if await _is_lost(self.wire):
                    return None
                return ToolError(
                    f"the server {name} broke off before it answered", ErrorKind.SYSTEM, "Try again in a moment."
                )
            if _DUMP.search(error.message) and error.code in (types.INTERNAL_ERROR, types.PARSE_ERROR):
                return _protocol_error(name)
            reported = clean(error.message, LINE) or "no reason was given"
            kind = ErrorKind.VALIDATION if error.code == types.INVALID_PARAMS else ErrorKind.USER
            if error.code in (types.INTERNAL_ERROR, types.PARSE_ERROR):
                kind = ErrorKind.SYSTEM
            hint = _WAYS.get(kind, "Change what you asked of it, or do without it.")
            return ToolError(f"the server {name} says: {reported}", kind, hint)
        if isinstance(error, ValidationError):
            return _protocol_error(name)
        raise error

    async def _answer_questions(self, result: dict[str, Any]) -> dict[str, Any]:
        """Answers a newer server's questions during a call. Returns the fields for the next attempt."""
        required = types.InputRequiredResult.model_validate(result, by_name=False)
        answers: dict[str, Any] = {}
        for key, request in (required.input_requests or {}).items():
            context = ClientRequestContext(session=self.client, request_id=key)
            answer = await self.client.dispatch_input_request(context, request)
            if isinstance(answer, types.ErrorData):
                raise MCPError.from_error_data(answer)
            answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        if not answers:
            await asyncio.sleep(0.2)  # the server only wants another attempt
        return {"inputResponses": answers or None, "requestState": required.request_state}

    def _own_error(self, error: MCPError) -> ToolError | None:
        number = error.data.get("forge") if error.code == OURS and isinstance(error.data, dict) else None
        return self.wire.failures.pop(number, None) if isinstance(number, int) else None

    def _find_caller(self) -> object | None:
        """Returns the call that a question belongs to; None if it is ambiguous."""
        inherited = current_call_key.get()
        if inherited in self.calls:
            return inherited
        return next(iter(self.calls)) if len(self.calls) == 1 else None

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        if self._asking >= MOST_ASKING:
            return types.ErrorData(code=types.INVALID_REQUEST, message="too many questions at once")
        is_url = isinstance(params, types.ElicitRequestURLParams)
        schema = None if isinstance(params, types.ElicitRequestURLParams) else dict(params.requested_schema)
        url = one_line(params.url, 2_000) if isinstance(params, types.ElicitRequestURLParams) else None
        self._asking += 1
        current_call_key.set(self._find_caller())  # every question has its own task
        try:
            answer = await self.wire.listener.elicit(clean(params.message), schema, url)
        except ToolError:
            answer = None
        finally:
            self._asking -= 1
        if answer is None or answer is False:
            return types.ElicitResult(action="decline" if answer is None else "cancel")
        try:
            return types.ElicitResult(action="accept", content=None if is_url else dict(answer))
        except ValidationError:
            return types.ElicitResult(action="decline")

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        if self._asking >= MOST_ASKING:
            return types.ErrorData(code=types.INVALID_REQUEST, message="too many questions at once")
        self._asking += 1
        current_call_key.set(self._find_caller())
        try:
            request = params.model_dump(by_alias=True, mode="json", exclude_none=True)
            answer = await self.wire.listener.sample(request)
            return types.CreateMessageResult.model_validate(dict(answer), by_name=False)
        except ToolError as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=error.message)
        except ValidationError:
            return types.ErrorData(code=types.INTERNAL_ERROR, message="the answer of the model cannot be sent")
        finally:
            self._asking -= 1

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        data = params.data
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        current_call_key.set(self._find_caller())
        call_listener(self.wire.listener.log, params.level, one_line(params.logger or "", 60), clean(text, LINE))

    async def _receive(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._schedule_report()

    def _schedule_report(self) -> None:
        """Reports a change at once, then once a second at most; the last change is always reported."""
        if self._pending_report is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._reported_at + _OFTEN - loop.time()
        if wait > 0:
            self._pending_report = loop.call_later(wait, self._report_change)
        else:
            self._report_change()

    def stop_reports(self) -> None:
        """Stops the reports."""
        if self._pending_report is not None:
            self._pending_report.cancel()

    def _report_change(self) -> None:
        self._pending_report = None
        self._reported_at = asyncio.get_running_loop().time()
        if not self.wire.lost.done():
            call_listener(self.wire.listener.tools_changed)


def _is_closed(error: MCPError) -> bool:
    """Recognises the SDK's own error by its message: servers use the same code for other errors."""
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"


async def _is_lost(wire: Wire) -> bool:
    """Waits a moment, since a closed stream may be noticed before the reason."""
    await asyncio.wait([wire.lost], timeout=0.1)
    return wire.lost.done()


def _protocol_error(name: str) -> ToolError:
    what = f"the answer of the server {name} is not what the protocol says"
    return ToolError(what, ErrorKind.SYSTEM, "The server is at fault; do without it.")


def _unusable_error(name: str, why: str) -> ToolError:
    return ToolError(
        f"the server {name} cannot be used: {why}",
        ErrorKind.CONFIG,
        "Check that the command or the URL is that of an MCP server, and its version.",
    )


def _version() -> str:
    try:
        return version("forge-tools")
    except PackageNotFoundError:
        return "0"
