"""Offers tools to MCP clients: lists them per session, runs calls, and announces changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, InputRequiredResult, PaginatedRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forge.core.arguments.checks import near
from forge.core.context import Scope
from forge.core.execution.deadline import Until
from forge.core.executor import ToolExecutor
from forge.core.plain_values import plain, text_of
from forge.core.registry import CONVERSATION
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from forge.exports.mcp_server import protocol_json as wire
from forge.exports.mcp_server.calls import ClientCalls, ClientSession
from forge.sources.untrusted import one_line

if TYPE_CHECKING:
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two checks for changed tools
LATE = 30.0  # seconds that a tool's definition may take to be ready
SEARCH = "tool_search"  # reveals hidden tools; without it, nothing is hidden
OURS = "forge"  # the key of our session in the state of a connection

ListVersion = tuple[int, int]  # the registry's version, and the number of tools


class Offer:
    """The tools of an executor, without conversation tools: an MCP client talks to its person itself.

    Hidden tools are listed once `tool_search` found them, while the connection lasts; all can be called by name. With
    `everything`, or without `tool_search`, they are listed from the start.
    """

    def __init__(
        self, executor: ToolExecutor, scope: Scope, *, name: str = "forge", version: str = "", everything: bool = False
    ) -> None:
        self.executor = executor
        self.registry = executor.registry
        self.name = name
        self.version = version
        self.everything = everything
        self.calls = ClientCalls(executor, scope)
        self._shared = _new_session()
        self._followers: dict[ClientSession, Follower] = {}
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus, max_subscriptions=100)
        self._follow(self._shared, lambda: self._bus.publish(ToolsListChanged()))
        self._definitions: WeakKeyDictionary[ToolSpec, dict[str, Any] | None] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    def serve_many(self) -> None:
        """Allows several clients: those without a connection cannot be distinguished."""
        self._shared.is_shared = True

    def server(self) -> Server[Any]:
        """Returns the SDK's server with our handlers."""
        server = _AnnouncingServer(
            self.name,
            version=self.version,
            instructions=_INSTRUCTIONS,
            on_subscriptions_listen=self._listening,
            get_tool_input_schema=self._input_schema,
        )
        server.add_request_handler("tools/list", PaginatedRequestParams, self.list_tools)
        server.add_request_handler("tools/call", CallToolRequestParams, self.call_tool)
        return server

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Announces changes while it is open; at the end cancels every call and ends every program."""
        self._followers[self._shared].listed = self._list_specs(self._shared)[0]
        self._spawn(self._watch())
        try:
            yield
        finally:
            self._listening.close()
            for session in list(self._followers):
                await self.end(session)
            for task in self._tasks:
                task.cancel()

    async def list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> dict[str, Any]:
        session = self.session(ctx)
        await self._prepare_tools()
        list_version, specs = self._list_specs(session)
        if session in self._followers:
            self._followers[session].listed = list_version
        return {
            "tools": list(filter(None, map(self._define, specs))),
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
        }

    async def call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> dict[str, Any] | InputRequiredResult:
        spec = self.registry.find(params.name).spec
        if spec.name in CONVERSATION or spec.name not in self.registry:
            raise MCPError(INVALID_PARAMS, self._unknown(params.name))
        session = self.session(ctx)
        answer = await self.calls.answer(ctx, params, session)
        if session in self._followers:
            self._notify_if_changed(session)
        return answer

    def session(self, ctx: ServerRequestContext[Any, Any]) -> ClientSession:
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self._shared
        connection = _connection(ctx)
        session = connection.state.get(OURS)
        if not isinstance(session, ClientSession):
            session = connection.state[OURS] = _new_session()
            self._follow(session, connection.send_tool_list_changed)
            connection.exit_stack.push_async_callback(self.end, session)
        return session

    async def end(self, session: ClientSession) -> None:
        """Ends everything that a closed connection started."""
        self._followers.pop(session, None)
        await self.calls.end(session)
        self.executor.end_work(session.id)
        self.executor.end_session(session.id)

    def _list_specs(self, session: ClientSession) -> tuple[ListVersion, list[ToolSpec]]:
        version = self.registry.version  # before the tools are read: a change meanwhile is announced later, not missed
        if self.everything or SEARCH not in self.registry:
            specs = [one.spec for one in self.registry.values()]
        else:
            specs = self.registry.specs(session.id)
        return (version, len(specs)), [spec for spec in specs if spec.name not in CONVERSATION]

    def _define(self, spec: ToolSpec) -> dict[str, Any] | None:
        """Returns a tool's definition, built once. A tool that cannot be described is left out; the others stay."""
        if spec not in self._definitions:
            try:
                self._definitions[spec] = wire.definition(spec)
            except Exception as error:
                log.error("%s is not offered: %s", spec.name, one_line(text_of(error), 500))
                self._definitions[spec] = None
        return self._definitions[spec]

    async def _prepare_tools(self) -> None:
        late = [one for one in self.registry.values() if not one.is_ready]
        if late:
            await asyncio.gather(*map(_await_ready, late))

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        found = self.registry.get(name)
        return plain(found.spec.parameters) if found is not None else None

    def _unknown(self, name: str) -> str:
        hint = near(name[:80], [known for known in self.registry if known not in CONVERSATION], 1)
        return f"Unknown tool: {one_line(name, 80)}" + (f"; did you mean {hint[0]}?" if hint else "")

    def _follow(self, session: ClientSession, notify: Callable[[], Awaitable[None]]) -> None:
        self._followers[session] = Follower(notify)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            for session in list(self._followers):
                self._notify_if_changed(session)

    def _notify_if_changed(self, session: ClientSession) -> None:
        follower = self._followers[session]
        list_version = self._list_specs(session)[0]
        if follower.listed not in (None, list_version) and not follower.is_being_notified:
            follower.listed = list_version
            follower.is_being_notified = True
            self._spawn(follower.send())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Follower:
    """A client that is notified when its list of tools is out of date."""

    def __init__(self, notify: Callable[[], Awaitable[None]]) -> None:
        self.notify = notify
        self.listed: ListVersion | None = None  # None: it never listed the tools
        self.is_being_notified = False

    async def send(self) -> None:
        try:
            await self.notify()
        except Exception as error:  # the client is gone
            log.debug("a client could not be told of changed tools: %s", text_of(error))
        finally:
            self.is_being_notified = False


class _AnnouncingServer(Server[Any]):
    """A server that declares in every handshake that the list of tools may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        announced = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(announced, experimental_capabilities, extensions)


_INSTRUCTIONS = (
    "The tools of a project. Some calls need a person's yes: they are asked where this client can ask, and refused "
    "otherwise; a refusal says which rule would allow the call."
)


def _new_session() -> ClientSession:
    return ClientSession(f"mcp-{uuid4().hex[:12]}")


def _connection(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """Returns the SDK's connection. It is private in the SDK, but holds the state of a connection."""
    return ctx.session._connection


async def _await_ready(tool: Tool) -> None:
    try:
        await Until(tool.ready(), LATE)
    except Exception as error:
        log.error("%s is not offered: it is not ready: %s", tool.spec.name, one_line(text_of(error), 500))
