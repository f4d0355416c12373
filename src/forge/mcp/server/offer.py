"""Offers tools, resources and prompts to MCP clients: lists them per session, runs calls, and announces changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    InputRequiredResult,
    PaginatedRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from forge.core.arguments.names import near
from forge.core.context import Scope
from forge.core.execution.deadline import Deadline
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.plain_values import plain, text_of
from forge.core.provider import Provider
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from forge.core.untrusted import one_line
from forge.mcp.prompts import Prompt
from forge.mcp.resources import Resource
from forge.mcp.sdk_parts import connection_of
from forge.mcp.server import protocol_json
from forge.mcp.server.calls import ClientCalls
from forge.mcp.server.client_call import CallRequest, ClientSession
from forge.mcp.server.input_requests import is_modern
from forge.mcp.server.notifications import KINDS, Follower, Kind
from forge.mcp.server.offered_content import OfferedPrompts, OfferedResources
from forge.mcp.server.workspace_files import WorkspaceFiles
from forge.skills.active import ActiveSkills

if TYPE_CHECKING:
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext


log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two checks for changes
LOADING = 15.0  # seconds that a list waits for sources that are still being opened
LATE = 30.0  # seconds that a tool's definition may take to be ready
SEARCH = "tool_search"  # reveals hidden tools; without it, nothing is hidden
MOST_USERS = 1_000  # sessions of users without a connection
OURS = "forge"  # the key of our session in the state of a connection
MOST_WATCHED = 100  # resources that one client watches
FRESH = {"ttlMs": 0, "cacheScope": "private"}  # lists depend on the client and may change at any time


class Offer:
    """The tools of an executor, without conversation tools: an MCP client talks to its person itself.

    Hidden tools are listed once `tool_search` found them, while the connection lasts; all can be called by name. With
    `everything`, or without `tool_search`, they are listed from the start.
    """

    def __init__(
        self,
        executor: ToolExecutor,
        scope: Scope,
        *,
        name: str = "forge",
        version: str = "",
        everything: bool = False,
        resources: Collection[Resource] | ToolRegistry = (),
        prompts: Collection[Prompt] | ToolRegistry = (),
        files: bool = False,
        skills: Callable[[], ActiveSkills] | None = None,
        model: Callable[[], Provider] | None = None,
        loading: asyncio.Future[None] | None = None,
    ) -> None:
        """`loading` is done when the sources of the executor's tools are open."""
        self.executor = executor
        self.registry = executor.registry
        self.name = name
        self.version = version
        self.everything = everything
        self._loading = loading
        self.scope = scope
        self.calls = ClientCalls(executor, scope, model)
        self.resources = OfferedResources(executor, resources, scope)
        self.prompts = OfferedPrompts(executor, prompts, skills)
        if files:
            self.resources.add_files(WorkspaceFiles(executor, scope))
        self._shared = _new_session()
        self._by_user: dict[TokenUser, ClientSession] = {}  # the last one was used last
        self._followers: dict[ClientSession, Follower] = {}
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus, max_subscriptions=100)
        self._followers[self._shared] = Follower(self._publish, lambda uri: self._bus.publish(ResourceUpdated(uri)))
        self._definitions: WeakKeyDictionary[ToolSpec, dict[str, Any] | None] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    def serve_many(self) -> None:
        """Allows several clients: those without a connection cannot be distinguished."""
        self._shared.is_shared = True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Announces changes while it is open; at the end cancels every call and ends every program."""
        self._followers[self._shared].listed = self._versions(self._shared)
        self._spawn(self._watch())
        try:
            yield
        finally:
            self._listening.close()
            for session in (*self._followers, *self._by_user.values()):
                await self.end(session)
            for task in self._tasks:
                task.cancel()

    async def list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> dict[str, Any]:
        session = self.session(ctx)
        await self._await_sources()
        await self._prepare_tools()
        version, specs = self._list_specs(session)
        self.note_listed(session, "tools", version)
        return {"tools": list(filter(None, map(self._define, specs))), "resultType": "complete", **FRESH}

    async def call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> dict[str, Any] | InputRequiredResult:
        if params.name not in self.registry:
            await self._await_sources()
        spec = self.registry.find(params.name).spec
        if spec.only_talks or spec.name not in self.registry:
            raise MCPError(INVALID_PARAMS, self._unknown(params.name))
        session = self.session(ctx)
        job = CallRequest(
            "tools/call", self.executor, ToolCall(params.name, params.arguments or {}), self._convert(params.name)
        )
        answer = await self.calls.answer(ctx, params, session, job)
        if session in self._followers:
            self._notify_if_changed(session)
        return answer

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serves a stream of changes, and watches the resources that it names meanwhile."""
        follower = self._followers[self._shared]
        new = [
            uri
            for uri in (params.notifications.resource_subscriptions or ())[:MOST_WATCHED]
            if uri not in follower.watched and self.resources.revision(uri) is not None
        ]
        for uri in new:
            follower.watched[uri] = self.resources.revision(uri)
        try:
            return await self._listening(ctx, params)
        finally:
            for uri in new:
                follower.watched.pop(uri, None)

    def watch(self, session: ClientSession, uri: str) -> bool:
        """Watches a resource for a client with a connection. False if there is no such resource, or are too many."""
        follower, revision = self._followers[session], self.resources.revision(uri)
        if revision is None or len(follower.watched) >= MOST_WATCHED:
            return False
        follower.watched[uri] = revision
        return True

    def unwatch(self, session: ClientSession, uri: str) -> None:
        self._followers[session].watched.pop(uri, None)

    def session(self, ctx: ServerRequestContext[Any, Any]) -> ClientSession:
        user = user_of(ctx)
        if is_modern(ctx):
            return self._shared if user is None else self._session_of(user)
        connection = connection_of(ctx)
        session = connection.state.get(OURS)
        if not isinstance(session, ClientSession):
            session = connection.state[OURS] = _new_session(user)
            self._followers[session] = Follower(_notifier(connection), connection.send_resource_updated)
            connection.exit_stack.push_async_callback(self.end, session)
        return session

    def _session_of(self, user: TokenUser) -> ClientSession:
        """Returns the session of a user without a connection; users must not see each other's work."""
        session = self._by_user.pop(user, None) or _new_session(user)
        session.is_shared = True  # by the clients of this user
        self._by_user[user] = session
        if len(self._by_user) > MOST_USERS:
            self._spawn(self.end(self._by_user.pop(next(iter(self._by_user)))))
        return session

    def note_listed(self, session: ClientSession, kind: Kind, version: object) -> None:
        """Remembers the version of a list that a client has read."""
        if session in self._followers:
            self._followers[session].listed[kind] = version

    async def end(self, session: ClientSession) -> None:
        """Ends everything that a closed connection started."""
        self._followers.pop(session, None)
        await self.calls.end(session)
        self.executor.end_work(session.id)
        self.executor.end_session(session.id)

    def _list_specs(self, session: ClientSession) -> tuple[object, list[ToolSpec]]:
        version = self.registry.version  # before the tools are read: a change meanwhile is announced later, not missed
        if self.everything or SEARCH not in self.registry:
            specs = [one.spec for one in self.registry.values()]
        else:
            specs = self.registry.specs(session.id)
        return (version, len(specs)), [spec for spec in specs if not spec.only_talks]

    def _versions(self, session: ClientSession) -> dict[Kind, object]:
        return {
            "tools": self._list_specs(session)[0],
            "resources": self.resources.registry.version,
            "prompts": self.prompts.registry.version,
        }

    def _define(self, spec: ToolSpec) -> dict[str, Any] | None:
        """Returns a tool's definition, built once. A tool that cannot be described is left out; the others stay."""
        if spec not in self._definitions:
            try:
                self._definitions[spec] = protocol_json.definition(spec)
            except Exception as error:
                log.error("%s is not offered: %s", spec.name, one_line(text_of(error), 500))
                self._definitions[spec] = None
        return self._definitions[spec]

    def _convert(self, name: str) -> Callable[[ToolResult, str], dict[str, Any]]:
        return lambda outcome, call_id: protocol_json.result(outcome, call_id, self.registry.find(name).spec)

    async def _await_sources(self) -> None:
        """Waits for sources that are still being opened. A client hears later of tools that come too late."""
        if self._loading is not None and not self._loading.done():
            await asyncio.wait({self._loading}, timeout=LOADING)

    async def _prepare_tools(self) -> None:
        late = [one for one in self.registry.values() if not one.is_ready]
        for one in late:
            one.take_scope(self.scope)
        if late:
            await asyncio.gather(*map(_await_ready, late))

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        found = self.registry.get(name)
        return plain(found.spec.parameters) if found is not None else None

    def _unknown(self, name: str) -> str:
        hint = near(name[:80], [known for known, one in self.registry.items() if not one.spec.only_talks], 1)
        return f"Unknown tool: {one_line(name, 80)}" + (f"; did you mean {hint[0]}?" if hint else "")

    async def _publish(self, kind: Kind) -> None:
        events: dict[Kind, ServerEvent] = {
            "tools": ToolsListChanged(),
            "resources": ResourcesListChanged(),
            "prompts": PromptsListChanged(),
        }
        await self._bus.publish(events[kind])

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.calls.tasks.remove_expired()
            for session in list(self._followers):
                self._notify_if_changed(session)

    def _notify_if_changed(self, session: ClientSession) -> None:
        follower = self._followers[session]
        if not follower.is_being_notified:
            kinds = follower.take_changes(self._versions(session))
            uris = follower.take_updates(self.resources.revision) if follower.watched else []
            if kinds or uris:
                follower.is_being_notified = True
                self._spawn(follower.send(kinds, uris))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _notifier(connection: Connection) -> Callable[[Kind], Coroutine[Any, Any, None]]:
    senders = dict(
        zip(
            KINDS,
            (
                connection.send_tool_list_changed,
                connection.send_resource_list_changed,
                connection.send_prompt_list_changed,
            ),
            strict=True,
        )
    )
    return lambda kind: senders[kind]()


def _new_session(user: TokenUser | None = None) -> ClientSession:
    return ClientSession(f"mcp-{uuid4().hex[:12]}", user=user.name if user is not None else "")


async def _await_ready(tool: Tool) -> None:
    try:
        await Deadline(tool.ready(), LATE)
    except Exception as error:
        log.error("%s is not offered: it is not ready: %s", tool.spec.name, one_line(text_of(error), 500))


# --- The user of a request whose access token was checked.


class TokenUser(NamedTuple):
    """The person and the client that a token was issued to."""

    subject: str
    client: str

    @property
    def name(self) -> str:
        """The name for rules and logs: the person, or the client where no person is involved."""
        return self.subject or self.client


def user_of(ctx: ServerRequestContext[Any, Any]) -> TokenUser | None:
    """Returns the user of a request; None over stdio and with the fixed token."""
    scope = getattr(ctx.request, "scope", None)
    user = scope.get("user") if isinstance(scope, dict) else None
    if not isinstance(user, AuthenticatedUser):
        return None
    return TokenUser(user.access_token.subject or "", user.access_token.client_id)
