"""One session with a server through the official SDK. Importing this imports the SDK, which takes a second."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import anyio
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter, ValidationError

from forge.core.errors import ErrorKind, ToolError
from forge.core.untrusted import clean, one_line
from forge.mcp.bounds import INSTRUCTIONS, LINE, MOST_ASKING, MOST_ROUNDS
from forge.mcp.client.handshake import describe_server, is_closed, is_lost, negotiate, probe_patience, unusable_error
from forge.mcp.client.http import over_http
from forge.mcp.client.link import (
    ServerListener,
    Stdio,
    Transport,
    Wire,
    call_listener,
    can_answer,
    current_call_key,
    log,
)
from forge.mcp.client.requests import (
    TASK,
    TASK_TTL,
    ServerDispatcher,
    TaskFollower,
    TracedMessages,
    note_answer,
    read_page,
    too_many_rounds,
)
from forge.mcp.client.stdio import over_stdio
from forge.mcp.oauth.login import Login
from forge.network.address import read_url

_DUMP = re.compile(r"\d+ validation errors? for ")  # the SDK's message for an unreadable answer
_WAYS = {
    ErrorKind.VALIDATION: "Check the tool's name and its arguments.",
    ErrorKind.SYSTEM: "This is the server's fault: try again later, or continue without it.",
}
EXTENSIONS: dict[str, dict[str, Any]] = {
    "io.modelcontextprotocol/tasks": {},
    "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]},  # shown by the console
}
SHORTEST = 10.0  # seconds that a list of tools stays valid at least, whatever the server says
_ANY: Any = TypeAdapter(dict[str, Any])  # raw; the SDK has checked it by then

for _name in ("mcp", "client"):  # the SDK's log has texts of servers: shown only if logging is set up
    logging.getLogger(_name).addHandler(logging.NullHandler())


@asynccontextmanager
async def open_session(
    name: str, transport: Transport, login: Login | None, listener: ServerListener, *, probe: bool = True
) -> AsyncIterator[ServerSession]:
    """Opens a session with its handshake. Raises `ToolError`, possibly inside an exception group.

    `probe` asks for revision 2026-07-28 first.
    """
    wire = Wire(name, listener)
    timeout = transport.connect_timeout
    streams: AbstractAsyncContextManager[Any] = (
        over_stdio(transport, wire) if isinstance(transport, Stdio) else over_http(transport, login, wire)
    )
    wire.attributes = _describe_transport(transport)
    async with streams as (incoming, outgoing):
        dispatcher = ServerDispatcher(RateLimitedMessages(incoming, wire), TracedMessages(outgoing, wire), wire)
        session = ServerSession(wire, dispatcher)
        async with session.client:
            await session.shake_hands(
                timeout, probe=min(timeout / 2, probe_patience(transport, login)) if probe else 0.0
            )
            session.changes.follow(session.client)
            try:
                yield session
            finally:
                session.changes.stop()


class ServerSession:
    """Sends requests to a server. Each request runs in its caller's task; there may be many at once."""

    def __init__(self, wire: Wire, dispatcher: ServerDispatcher) -> None:
        self.wire = wire
        self.changes = ListChanges(wire)
        self.fallen = asyncio.Event()  # set when the callers know that the session is lost
        self.calls: dict[object, None] = {}  # the keys of open calls
        self.list_expires_at = float("inf")  # on the loop's clock
        self._dispatcher = dispatcher
        self._asking = 0
        self._spawned: set[asyncio.Task[None]] = set()
        listener = wire.listener
        self.client = ClientSession(
            dispatcher=dispatcher,
            sampling_callback=self._sample if can_answer(listener, "sample") else None,
            elicitation_callback=self._elicit if can_answer(listener, "elicit") else None,
            logging_callback=self._log,
            message_handler=self._receive,
            client_info=types.Implementation(name="forge", version=_version()),
            log_level="info",
            extensions=EXTENSIONS,
        )

    @property
    def is_modern(self) -> bool:
        """True for revision 2026-07-28, which has no handshake and no sessions."""
        return self.client.discover_result is not None

    @property
    def info(self) -> dict[str, Any]:
        return describe_server(self.client)

    @property
    def instructions(self) -> str:
        return clean(self.client.instructions or "", INSTRUCTIONS)

    async def shake_hands(self, timeout: float, *, probe: float) -> None:
        """Agrees on a revision with the server."""
        name = self.wire.name
        try:
            async with asyncio.timeout(timeout):
                await negotiate(self.client, self.wire, probe=probe)
            if version := self.client.protocol_version:
                self.wire.attributes["mcp.protocol.version"] = one_line(version, 40)
        except TimeoutError:
            ending = self.wire.describe_end(f"no response to the handshake within {timeout:g} s")
            raise ToolError(
                f"the server {name} cannot be used: {ending}",
                ErrorKind.TIMEOUT,
                "Check that the command or the URL belongs to an MCP server.",
            ) from None
        except MCPError as error:
            raise await self._handshake_error(error) from None
        except ValidationError:
            raise unusable_error(name, "its handshake is not valid MCP") from None

    async def _handshake_error(self, error: MCPError) -> ToolError:
        """Returns the most specific error of a failed handshake."""
        wire = self.wire
        if (ours := self.wire.take_failure(error)) is not None:
            return ours
        if is_closed(error) and await is_lost(wire):
            if (why := wire.unstartable) is not None:
                hint = why.suggestion or "Check the command."
                return ToolError(f"the server {wire.name} cannot be started: {why.message}", ErrorKind.CONFIG, hint)
            reason = f"the server {wire.name} ended before it could be used ({wire.lost.result()})"
            return ToolError(reason, ErrorKind.CONFIG, wire.hint)
        if _DUMP.search(error.message):
            return unusable_error(wire.name, "its handshake is not valid MCP")
        return unusable_error(wire.name, f"it refused the handshake: {one_line(error.message, LINE)}")

    async def page(self, cursor: str | None) -> dict[str, Any]:
        """Returns one raw page of the server's tools: one bad definition must not affect the others."""
        page = await read_page(self, "tools/list", cursor)
        self.changes.was_read = True
        if self.is_modern:
            self._dispatcher.keep_headers(page)
            self._note_lifetime(page.get("ttlMs"), is_first=cursor is None)
        return page

    def _note_lifetime(self, milliseconds: Any, *, is_first: bool) -> None:
        """Notes how long the list is valid; the page with the shortest time counts. 0 says nothing."""
        if is_first:
            self.list_expires_at = float("inf")
        if isinstance(milliseconds, int) and milliseconds > 0:
            expires_at = asyncio.get_running_loop().time() + max(SHORTEST, milliseconds / 1000)
            self.list_expires_at = min(self.list_expires_at, expires_at)

    async def send(self, request: Any) -> dict[str, Any]:
        """Returns the raw answer to a request. Raises the SDK's errors."""
        answer: dict[str, Any] = await self.client.send_request(request, _ANY)
        return answer

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work that no call waits for."""
        task = asyncio.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    def offers(self, method: str) -> bool:
        """Returns whether the server declares a list or a method, such as `prompts/list`."""
        offered = self.client.server_capabilities
        field = {"completion": "completions"}.get(method, method.partition("/")[0])
        return offered is not None and getattr(offered, field, None) is not None

    @property
    def runs_tasks(self) -> bool:
        """True if calls of an older server can run as tasks. A newer one decides by itself."""
        offered = self.client.server_capabilities
        requests = offered.tasks.requests if offered is not None and offered.tasks is not None else None
        return requests is not None and requests.tools is not None and requests.tools.call is not None

    async def call(
        self, name: str, arguments: Mapping[str, Any], key: object, *, as_task: bool = False
    ) -> dict[str, Any]:
        """Returns the raw result of a call; follows the task if it becomes one. If cancelled, notifies the server."""
        listener = self.wire.listener

        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            if key in self.calls:
                call_listener(listener.progress, key, progress, total, one_line(message or "", LINE))

        self.calls[key] = None
        token = current_call_key.set(key)  # over HTTP, the server's questions carry our context
        try:
            answers: dict[str, Any] = {"task": {"ttl": TASK_TTL}} if as_task else {}
            for _ in range(MOST_ROUNDS):
                params = types.CallToolRequestParams.model_validate(
                    {"name": name, "arguments": dict(arguments), **answers}, by_name=False
                )
                request = types.CallToolRequest(params=params)
                result: dict[str, Any] = await self.client.send_request(
                    request, _ANY, progress_callback=report_progress
                )
                if isinstance(meta := result.get("_meta"), dict) and isinstance(task := meta.get(TASK), dict):
                    return await TaskFollower(self, task, key).await_result()
                if result.get("resultType") != "input_required":
                    return result
                answers = await self.answer_questions(result)
        finally:
            current_call_key.reset(token)
            self.calls.pop(key, None)
        raise too_many_rounds(self.wire.name)

    async def failure(self, error: Exception) -> ToolError | None:
        """Returns the error behind one of the SDK's; None if the session was lost: then its owner knows the reason."""
        name = self.wire.name
        if isinstance(error, MCPError):
            if (ours := self.wire.take_failure(error)) is not None:
                return ours
            if is_closed(error):
                if await is_lost(self.wire):
                    return None
                return ToolError(
                    f"the server {name} disconnected before it answered", ErrorKind.SYSTEM, "Try again in a moment."
                )
            if _DUMP.search(error.message) and error.code in (types.INTERNAL_ERROR, types.PARSE_ERROR):
                return _protocol_error(name)
            if error.code == types.HEADER_MISMATCH:  # the server did nothing
                self.changes.schedule()
                what = f"the server {name} has changed the definition of the tool"
                return ToolError(what, ErrorKind.SYSTEM, "Call it again: the list is being read.", passing=True)
            reported = clean(error.message, LINE) or "no reason was given"
            kind = ErrorKind.VALIDATION if error.code == types.INVALID_PARAMS else ErrorKind.USER
            if error.code in (types.INTERNAL_ERROR, types.PARSE_ERROR):
                kind = ErrorKind.SYSTEM
            hint = _WAYS.get(kind, "Change the arguments, or continue without this tool.")
            return ToolError(f"the server {name} says: {reported}", kind, hint)
        if isinstance(error, ValidationError):
            return _protocol_error(name)
        raise error

    async def answer_questions(self, result: dict[str, Any]) -> dict[str, Any]:
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
        url = params.url if isinstance(params, types.ElicitRequestURLParams) else None
        reason: dict[str, Any] | None = None
        self._asking += 1
        current_call_key.set(self._find_caller())  # every question has its own task
        try:
            answer = await self.wire.listener.elicit(params.message, schema, url)
        except ToolError as error:
            answer = None
            reason = {"reason": error.message} if error.kind is ErrorKind.VALIDATION else None
        finally:
            self._asking -= 1
        if answer is None or answer is False:
            return types.ElicitResult(action="decline" if answer is None else "cancel", _meta=reason)
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
            return types.ErrorData(code=types.INTERNAL_ERROR, message="the model's answer cannot be sent")
        finally:
            self._asking -= 1

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        data = params.data
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        current_call_key.set(self._find_caller())
        call_listener(self.wire.listener.log, params.level, one_line(params.logger or "", 60), clean(text, LINE))

    async def _receive(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.changes.schedule()


def _describe_transport(transport: Transport) -> dict[str, Any]:
    """Returns the attributes that every span of a request has."""
    if isinstance(transport, Stdio):
        return {"network.transport": "pipe"}
    url = read_url(transport.url)
    return {"network.transport": "tcp", "server.address": url.host, "server.port": url.port}


def _protocol_error(name: str) -> ToolError:
    what = f"the server {name} sent an invalid MCP response"
    return ToolError(what, ErrorKind.SYSTEM, "This is the server's fault; continue without it.")


def _version() -> str:
    try:
        return version("forge-tools")
    except PackageNotFoundError:
        return "0"


# --- Reports changes of a server's list of tools: a notification, or a subscription at newer servers.


OFTEN = 1.0  # seconds between two reports
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds before a lost subscription is opened again: doubled each time
_FINAL = (types.METHOD_NOT_FOUND, types.INVALID_PARAMS, types.INVALID_REQUEST)  # no later attempt can succeed


class ListChanges:
    """Reports changes of one session: at once, then once a second at most; the last change is always reported."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._reported_at = float("-inf")
        self._pending: asyncio.TimerHandle | None = None
        self._following: asyncio.Task[None] | None = None
        self.was_read = False  # set when the list was read

    def schedule(self) -> None:
        if self._pending is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._reported_at + OFTEN - loop.time()
        if wait > 0:
            self._pending = loop.call_later(wait, self._report)
        else:
            self._report()

    def follow(self, client: ClientSession) -> None:
        """Subscribes if the server needs that: before 2026-07-28, servers report changes without being asked."""
        offered = client.server_capabilities
        if client.discover_result is not None and offered is not None and offered.tools and offered.tools.list_changed:
            self._following = asyncio.create_task(self._keep_subscribed(client))

    def stop(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
        if self._following is not None:
            self._following.cancel()

    async def _keep_subscribed(self, client: ClientSession) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_BACKOFF
        while not self._wire.lost.done():
            began = loop.time()
            try:
                async with listen(client, tools_list_changed=True) as subscription:
                    if self.was_read:
                        self.schedule()  # a change may have come before the subscription
                    async for _ in subscription:
                        pass  # the session's handler of notifications reports it
            except MCPError as error:
                if error.code in _FINAL:
                    log.debug("%s: it takes no subscription: %s", self._wire.name, error.message)
                    return
            except (SubscriptionLost, TimeoutError):
                pass
            pause = FIRST_BACKOFF if loop.time() - began >= LONGEST_BACKOFF else min(LONGEST_BACKOFF, pause * 2)
            await asyncio.sleep(pause)

    def _report(self) -> None:
        self._pending = None
        self._reported_at = asyncio.get_running_loop().time()
        if not self._wire.lost.done():
            call_listener(self._wire.listener.tools_changed)


# --- Rate-limits a server's notifications.


class RateLimitedMessages:
    """The server's messages for the SDK, without excess notifications."""

    def __init__(self, incoming: Any, wire: Wire) -> None:
        self._incoming = incoming
        self._wire = wire
        self.last_context: Context | None = None

    async def receive(self) -> SessionMessage:
        while True:
            item = await self._incoming.receive()
            self.last_context = getattr(self._incoming, "last_context", None)
            if not isinstance(item, SessionMessage):
                self._wire.receive_line("warning", "transport", str(item)[:LINE])
                continue
            if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                return note_answer(item, self._wire)
            if self._wire.rate_limit.admits():
                return item
            await self._wire.rate_limit.pause()
            if isinstance(item.message, types.JSONRPCRequest):
                return item  # the server waits for an answer

    def __aiter__(self) -> RateLimitedMessages:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._incoming.aclose()

    async def __aenter__(self) -> RateLimitedMessages:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
