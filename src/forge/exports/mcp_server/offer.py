"""What a server offers its clients: which tools, to which session, and that they changed."""

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
from forge.exports.mcp_server import wire
from forge.exports.mcp_server.calls import Calls, Session
from forge.sources.untrusted import one_line

if TYPE_CHECKING:
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext
    from mcp.server.models import InitializationOptions

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two looks at whether the tools changed
LATE = 30.0  # seconds that a tool's definition may take to be ready
SEARCH = "tool_search"  # reveals hidden tools; where there is none, nothing is hidden
OURS = "forge"  # the key of our session in the state of a connection

Told = tuple[int, int]  # the registry's version, and how many tools there were


class Offer:
    """The tools of an executor, without those that hand over to the person: an MCP client talks to its own.

    Hidden tools are listed once `tool_search` found them, for as long as the connection lasts; all can be called by
    name. With `everything`, or where there is no `tool_search`, they are listed from the start.
    """

    def __init__(
        self, executor: ToolExecutor, scope: Scope, *, name: str = "forge", version: str = "", everything: bool = False
    ) -> None:
        self.executor = executor
        self.registry = executor.registry
        self.name = name
        self.version = version
        self.everything = everything
        self.calls = Calls(executor, scope)
        self._shared = _new_session()
        self._followers: dict[Session, Follower] = {}
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus, max_subscriptions=100)
        self._follow(self._shared, lambda: self._bus.publish(ToolsListChanged()))
        self._definitions: WeakKeyDictionary[ToolSpec, dict[str, Any] | None] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    def serve_many(self) -> None:
        """Several clients come in: those whose requests know no connection are not told apart."""
        self._shared.is_shared = True

    def server(self) -> Server[Any]:
        """The SDK's server with our answers."""
        server = _Announcing(
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
        """While this is open clients hear of changes; at the end every call is cancelled and every program ended."""
        self._followers[self._shared].told = self._listed(self._shared)[0]
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
        await self._get_ready()
        told, specs = self._listed(session)
        if session in self._followers:
            self._followers[session].told = told
        return {
            "tools": list(filter(None, map(self._defined, specs))),
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
            self._tell_if_changed(session)
        return answer

    def session(self, ctx: ServerRequestContext[Any, Any]) -> Session:
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self._shared
        connection = _connection(ctx)
        session = connection.state.get(OURS)
        if not isinstance(session, Session):
            session = connection.state[OURS] = _new_session()
            self._follow(session, connection.send_tool_list_changed)
            connection.exit_stack.push_async_callback(self.end, session)
        return session

    async def end(self, session: Session) -> None:
        """A connection is over: so is all that it started."""
        self._followers.pop(session, None)
        await self.calls.end(session)
        self.executor.end_work(session.id)
        self.executor.end_session(session.id)

    def _listed(self, session: Session) -> tuple[Told, list[ToolSpec]]:
        version = self.registry.version  # before the tools are read: a change meanwhile is told later, not missed
        if self.everything or SEARCH not in self.registry:
            specs = [one.spec for one in self.registry.values()]
        else:
            specs = self.registry.specs(session.id)
        return (version, len(specs)), [spec for spec in specs if spec.name not in CONVERSATION]

    def _defined(self, spec: ToolSpec) -> dict[str, Any] | None:
        """Built once. One tool that cannot be described must not take the others along."""
        if spec not in self._definitions:
            try:
                self._definitions[spec] = wire.definition(spec)
            except Exception as error:
                log.error("%s is not offered: %s", spec.name, one_line(text_of(error), 500))
                self._definitions[spec] = None
        return self._definitions[spec]

    async def _get_ready(self) -> None:
        late = [one for one in self.registry.values() if not one.is_ready]
        if late:
            await asyncio.gather(*map(_ready, late))

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        found = self.registry.get(name)
        return plain(found.spec.parameters) if found is not None else None

    def _unknown(self, name: str) -> str:
        hint = near(name[:80], [known for known in self.registry if known not in CONVERSATION], 1)
        return f"Unknown tool: {one_line(name, 80)}" + (f"; did you mean {hint[0]}?" if hint else "")

    def _follow(self, session: Session, tell: Callable[[], Awaitable[None]]) -> None:
        self._followers[session] = Follower(tell)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            for session in list(self._followers):
                self._tell_if_changed(session)

    def _tell_if_changed(self, session: Session) -> None:
        follower = self._followers[session]
        told = self._listed(session)[0]
        if follower.told not in (None, told) and not follower.is_being_told:
            follower.told = told
            follower.is_being_told = True
            self._spawn(follower.hear())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Follower:
    """A client that hears when the tools are others than it was told."""

    def __init__(self, tell: Callable[[], Awaitable[None]]) -> None:
        self.tell = tell
        self.told: Told | None = None  # it never asked what there is
        self.is_being_told = False

    async def hear(self) -> None:
        try:
            await self.tell()
        except Exception as error:  # it is gone, or going
            log.debug("a client could not be told of changed tools: %s", text_of(error))
        finally:
            self.is_being_told = False


class _Announcing(Server[Any]):
    """Says in every handshake that the list of tools may change."""

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


def _new_session() -> Session:
    return Session(f"mcp-{uuid4().hex[:12]}")


def _connection(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """The SDK shows it to its high-level server alone, and yet it is where a connection's own things belong."""
    return ctx.session._connection


async def _ready(tool: Tool) -> None:
    try:
        await Until(tool.ready(), LATE)
    except Exception as error:
        log.error("%s is not offered: it is not ready: %s", tool.spec.name, one_line(text_of(error), 500))
