"""An MCP server as a source of tools: selects and names its tools, compares them with approvals, follows changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from forge.core.check_definition import NameFilter
from forge.core.context import ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.extras import check_extra
from forge.core.registry import SourceSettings, check_source
from forge.core.secrets import SHORTEST, Secrets
from forge.core.secrets.live_text import LiveText
from forge.core.spec import Permission
from forge.core.tool import Tool
from forge.core.untrusted import one_line
from forge.mcp.client.contents import ServerContents
from forge.mcp.client.link import Http, Stdio
from forge.mcp.client.names import (
    SECRET_NAMES,
    SEPARATOR,
    display_target,
    is_url,
    origin_of,
    read_command,
    safe_prefix,
    server_name,
    tool_names,
)
from forge.mcp.client.questions import CallListener
from forge.mcp.client.tools import (
    TIMEOUT,
    CalledTool,
    McpTool,
    ToolOffer,
    ToolSettings,
    check_definition,
    default_permissions,
)
from forge.mcp.client.users import UserConnections, mask_tokens
from forge.mcp.oauth.login import Login, LoginNeeded
from forge.mcp.pins import Pins, digest, pins_of, state_of

if TYPE_CHECKING:
    from forge.core.provider import Provider
    from forge.mcp.client.connection import Connection
    from forge.permissions.questions import OpeningQuestions

T = TypeVar("T")
MANY = 40  # tools of one server; more are hidden behind `tool_search`
PAUSE = 0.1  # seconds in which changes of a list are merged
LONGEST_NAME = 200  # characters of a tool's name at its server

log = logging.getLogger(__name__)


class McpSource(ServerContents):
    """The tools of an MCP server, named `prefix__tool`. Opening it with `async with` starts or connects the server.

    It follows its server's list, and may be opened several times: there is one connection. `tools` are the current
    ones, `left_out` has the reasons for the others. Raises `DefinitionError` or `ToolError` for an invalid server.

    Args:
        where: a command line, its words, or a URL; `Stdio(…)` or `Http(…)` of `forge.mcp` with further settings.
        rename: maps the server's names of tools to others.
        pins: the file of approved definitions; without one, the server's first list counts as approved while this
            process lives.
        sampling: a model that the server may ask, each time after a yes.
        name: the server's name; by default taken from `where`.
        prefix: put before each tool's name; by default the name.
        include: patterns of the server's own names.
        exclude: patterns of names to leave out.
        timeout: the seconds that a call may take.
        hidden: whether a model sees the tools only after `tool_search` finds them; by default if there are more than
            40.
        permissions: declare less than the default: programs need `execute` and `network`, servers at a URL `network`.

    Example:
        >>> agent = Agent(Scripted("Hello!"), tools=[mcp("uvx mcp-server-git")])  # use it inside `async with agent:`
    """

    def __init__(
        self,
        where: str | Sequence[str] | Stdio | Http,
        *,
        rename: Mapping[str, str] | None = None,
        pins: Pins | Path | str | None = None,
        sampling: Provider | None = None,
        **settings: Unpack[SourceSettings],
    ) -> None:
        check_source("mcp", settings)
        self.transport = _read_transport(where)
        self.name = safe_prefix(settings.get("name", "")) or server_name(self.url or self.command)
        self.prefix = safe_prefix(settings.get("prefix") or "") or self.name
        self.pins = pins_of(pins)
        self.left_out: dict[str, str] = {}  # name -> why
        self._chosen = NameFilter(tuple(settings.get("include", ())), tuple(settings.get("exclude", ())))
        self._unmatched: list[str] = []  # patterns of it that match no tool of the latest list
        self._rename = dict(rename or {})
        self._hidden = settings.get("hidden")
        self._sampling = sampling
        self.login = _make_login(self.name, self.transport)
        self._settings = ToolSettings(
            f"mcp:{self.name}",
            default_permissions(settings.get("permissions"), is_program=bool(self.command)),
            origin_of(self.url) if self.url else "",
            TIMEOUT if (timeout := settings.get("timeout")) is None else timeout,
        )
        self._tools: dict[str, McpTool] = {}  # by remote name
        self._listed: list[Any] = []  # the server's latest list
        self._followers: list[Callable[[Sequence[Tool]], None]] = []
        self._connection: Connection | None = None
        self._listener: CallListener | None = None
        self._user_connections: UserConnections | None = None  # where each user has a login
        if self.login is not None and self.login.settings.per_user and isinstance(self.transport, Http):
            self._user_connections = UserConnections(self.name, self.transport, self.login, self._make_listener)
        self._users = 0
        self._questions: OpeningQuestions | None = None  # of the next opening
        self._stale = False
        self._refreshing: asyncio.Task[None] | None = None
        self._locks: tuple[asyncio.AbstractEventLoop, asyncio.Lock, asyncio.Lock] | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """The program and its arguments; () of a server at a URL."""
        return self.transport.command_line if isinstance(self.transport, Stdio) else ()

    @property
    def url(self) -> str:
        return self.transport.url if isinstance(self.transport, Http) else ""

    @property
    def tools(self) -> list[McpTool]:
        return list(self._tools.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems for the person: why approvals are unknown, and patterns that match no tool."""
        return (*([self.pins.problem] if self.pins.problem else []), *self._unmatched)

    @property
    def is_open(self) -> bool:
        return self._listener is not None

    @property
    def target(self) -> str:
        """The command or URL, for people and for pins, without secrets."""
        return display_target(self.command, self.url, self.secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secret values: of headers, and of variables with telling names."""
        tokens = self.login.secrets if self.login is not None else ()
        if isinstance(self.transport, Stdio):
            said = [value for key, value in self.transport.env.items() if SECRET_NAMES.search(key)]
        else:
            headers = self.transport.headers.values()
            values = [one.latest() if isinstance(one, LiveText) else one for one in headers]
            said = [word for value in values for word in (value, value.rpartition(" ")[2])]
        return tuple(dict.fromkeys(value for value in (*said, *tokens) if len(value) >= SHORTEST))

    @property
    def instructions(self) -> str:
        """The server's instructions, while it is open."""
        return self._connection.instructions if self._connection is not None else ""

    def required_permissions(self) -> list[tuple[Permission | None, str]]:
        """Returns the permissions that any tool of the server needs."""
        return self._settings.required_permissions(self._settings.permissions)

    def foresee_tool(self, name: str) -> McpTool:
        """Returns a tool of the closed server by its approved definition; a tool that nobody approved counts as new.

        Raises `ToolError` for a tool that the filters leave out. Reads the approvals: do not call it on the event loop.
        """
        pins, target = self.pins.of(self.name), self.target
        names = tool_names(self.prefix, filter(self._chosen.selects, pins), self._rename, pins)
        remote = name if name in names else next((one for one, local in names.items() if local == name), "")
        if pin := pins.get(remote):
            state = state_of(pin, target, pin.sha256)
            return McpTool(
                ToolOffer(names[remote], remote, pin.definition, pin.sha256, target, state, pin), self._settings, self
            )
        remote = name.removeprefix(f"{self.prefix}{SEPARATOR}")
        if not remote.strip() or len(remote) > LONGEST_NAME or not self._chosen.selects(remote):
            raise ToolError(
                f"the server {self.name} offers no tool {_display_name(remote)!r} here",
                ErrorKind.NOT_FOUND,
                f"`forge mcp list` shows the tools of {self.name}.",
            )
        local = tool_names(self.prefix, [remote], self._rename)[remote]
        state = state_of(None, target, "", lost=remote in self.pins.find_lost(self.name))
        return McpTool(ToolOffer(local, remote, {}, digest({}), target, state, None), self._settings, self)

    def ask_while_opening(self, questions: OpeningQuestions | None) -> None:
        """Sets where a person is asked, in the next opening, whether the program may start without a sandbox."""
        self._questions = questions

    async def __aenter__(self) -> Sequence[Tool]:
        questions, self._questions = self._questions, None
        async with self._lock(0):
            if not self._users:
                check_extra("mcp", f"the MCP server {self.name} cannot be opened")
                await self._open(questions)
            self._users += 1
        return self.tools

    async def __aexit__(self, *_: object) -> None:
        async with self._lock(0):
            self._users -= 1
            if not self._users:
                await self._close()

    def follow(self, changed: Callable[[Sequence[Tool]], None]) -> None:
        """Calls `changed` with all tools whenever they change, until the server is closed."""
        self._followers.append(changed)

    def find_current(self, tool: McpTool) -> McpTool:
        """Returns the tool of that name as it is offered now; the tool itself where there is none."""
        return self._tools.get(tool.remote, tool)

    def check_current(self, tool: McpTool) -> None:
        """Raises `ToolError` if the tool was removed, or its definition is no longer the approved one."""
        current = self._tools.get(tool.remote)
        if current is None and self.is_open:
            raise ToolError(
                f"the server {self.name} no longer offers this tool", ErrorKind.NOT_FOUND, "Use another tool."
            )
        if current is not None and current.offer.sha256 != tool.offer.sha256:
            raise ToolError(
                f"the server {self.name} just changed the definition of this tool",
                ErrorKind.PERMISSION,
                "Call it again: a person must review the change first.",
            )

    async def approve(self, *tools: McpTool, by: str) -> None:
        """Stores the current definitions of these tools as approved."""
        definitions = {tool.remote: tool.offer.definition for tool in tools}
        target = self.target
        try:
            await in_thread(lambda: self.pins.record(self.name, target, definitions, by))
        except ToolError as error:
            log.warning("%s: the approval could not be stored: %s", self.name, error.message)
            return
        await self._update_tools(self._listed)

    async def call(self, tool: McpTool, arguments: Mapping[str, Any], ctx: ToolContext) -> CalledTool:
        if self._connection is not None:
            await self._await_current_list(self._connection)
        self.check_current(tool)
        as_task = _runs_as_task_only(tool.offer.definition)

        hosts: list[dict[str, Any]] = []

        async def work(connection: Connection, listener: CallListener) -> Mapping[str, Any]:
            with listener.track_call(ctx) as key:
                answer, hosts[:] = await connection.call_and_watch(tool.remote, dict(arguments), key, as_task=as_task)
                return answer

        answer = await self._run(work, ctx)
        return CalledTool(answer, hosts)

    async def log_in(self, user: str, show: Callable[[str], Awaitable[None]]) -> bool:
        """Logs a user in anew at a server with `OAuth(per_user=True)`; "" is the login that lists its tools.

        `show` gets the URL of the page that the user must open. Returns when the browser came back, at the latest
        after 300 s; False if the server asks for no login. Raises `ToolError`.
        """
        return await self._require_users().log_in(user, show)

    async def log_out(self, user: str) -> list[str]:
        """Revokes and removes the tokens of a user, and closes the user's connection. Returns what was not revoked."""
        return await self._require_users().log_out(user)

    def take_redirect(self, url: str, *, user: str) -> None:
        """Hands a login the URL that the browser requested at `OAuth(redirect_url=…)`.

        `user` is who sits at this browser, as your own session says: a page that was opened by another user than the
        one who began the login raises `ToolError`, so nobody's account ends up with somebody else.
        """
        self._require_users().take_redirect(url, user)

    def _require_users(self) -> UserConnections:
        if self._user_connections is None:
            raise ToolError(
                f"the server {self.name} has no logins of users",
                ErrorKind.CONFIG,
                "Give it some: mcp(Http(url, auth=OAuth(per_user=True))).",
            )
        return self._user_connections

    async def _run(self, work: Callable[[Connection, CallListener], Awaitable[T]], ctx: ToolContext | None = None) -> T:
        """Runs a request over the connection of the call's user if each user has one, else over the only one."""
        if self._listener is None:
            raise ToolError(f"the server {self.name} is not open", ErrorKind.SYSTEM, "Use it only inside `async with`.")
        if self._user_connections is None:
            assert self._connection is not None
            answer = await work(self._connection, self._listener)
            return mask_tokens(answer, self.login.tokens if self.login is not None else ())
        if ctx is None:
            raise ToolError(
                f"the server {self.name} has a login for each user, and nobody's call asks it",
                ErrorKind.CONFIG,
                "Only tools of a run with a user can ask it.",
            )
        return await self._user_connections.run(ctx, work)

    async def _request(self, work: Callable[[Connection], Awaitable[T]], ctx: ToolContext | None = None) -> T:
        return await self._run(lambda connection, _: work(connection), ctx)

    def _make_listener(self, login: Login | None) -> CallListener:
        masks = Secrets((*self.secrets, *(login.secrets if login is not None else ())))
        for text in self.transport.headers.values() if isinstance(self.transport, Http) else ():
            if isinstance(text, LiveText):
                text.mask_in(masks)
        return CallListener(self.name, masks, self._mark_stale, self._sampling)

    async def _open(self, questions: OpeningQuestions | None) -> None:
        from forge.mcp.client.connection import Connection

        listener = self._make_listener(None)
        listener.opening = questions
        connection: Connection | None = Connection(self.name, self.transport, listener, login=self.login)
        assert connection is not None
        try:
            await connection.open()
            listed = await connection.list_tools()
        except LoginNeeded as needed:
            await connection.close()
            if self._user_connections is None:
                raise
            if not (listed := await in_thread(self._list_approved)):
                raise _explain_listing(needed) from None
            connection = None
        except BaseException:
            await connection.close()
            raise
        self._connection, self._listener = connection, listener
        try:
            if self._user_connections is not None:
                self._user_connections.open()
            await self._update_tools(listed)
        except BaseException:
            await self._close()
            raise

    def _list_approved(self) -> list[Any]:
        return [{**pin.definition, "name": remote} for remote, pin in self.pins.of(self.name).items()]

    async def _close(self) -> None:
        connection, refreshing = self._connection, self._refreshing
        self._connection = self._listener = self._refreshing = None
        self._stale = False
        self._followers.clear()
        self._tools = {}
        if refreshing is not None:
            refreshing.cancel()
            await asyncio.wait([refreshing])
        if self._user_connections is not None:
            await self._user_connections.close()
        if connection is not None:
            await connection.close()

    def _mark_stale(self) -> None:
        """Reads the list again after a change; changes in the meantime are merged."""
        if self._connection is None:
            return  # the list is that of the approvals
        self._stale = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _await_current_list(self, connection: Connection) -> None:
        """Waits for the current list before a call: a restarted server may offer other tools."""
        if not connection.is_up:
            self._mark_stale()
        if self._refreshing is not None and not self._refreshing.done():
            await asyncio.wait([self._refreshing])
        elif connection.is_list_expired:
            self._mark_stale()  # this call does not wait for it

    async def _refresh(self) -> None:
        while self._stale and (connection := self._connection) is not None:
            self._stale = False
            await asyncio.sleep(PAUSE)
            try:
                await self._update_tools(await connection.list_tools())
            except ToolError as error:
                level = logging.WARNING if connection.is_up else logging.INFO  # its failure was logged already
                log.log(level, "the tools of %s could not be listed again: %s", self.name, error.message)

    async def _update_tools(self, listed: list[Any]) -> None:
        """Makes tools of definitions, and notifies followers if the tools changed."""
        async with self._lock(1):
            before = self._tools
            made, left_out = await in_thread(lambda: self._make_tools(listed, before))
            if not self.is_open:
                return
            for name, why in left_out.items():
                if self.left_out.get(name) != why:
                    log.warning("%s of %s is left out: %s", name, self.name, why)
            self._listed, self._tools, self.left_out = listed, made, left_out
        if list(made.values()) != list(before.values()):
            for changed in list(self._followers):
                changed(self.tools)

    def _make_tools(
        self, listed: list[Any], before: Mapping[str, McpTool]
    ) -> tuple[dict[str, McpTool], dict[str, str]]:
        """Makes the tools. Runs in a thread: there may be thousands, and pins are read from a file."""
        left_out: dict[str, str] = {}
        chosen = self._select_definitions(listed, left_out)
        digests = {remote: digest(definition) for remote, definition in chosen.items()}
        target = self.target
        if self.pins.trusts_first and self.name not in self.pins.servers():
            self.pins.record(self.name, target, chosen, "the person who mounted it")
        pins, lost = self.pins.of(self.name), self.pins.find_lost(self.name)
        hidden = len(chosen) > MANY if self._hidden is None else self._hidden
        settings = self._settings._replace(hidden=hidden)
        made: dict[str, McpTool] = {}
        for remote, name in tool_names(self.prefix, chosen, self._rename, pins).items():
            pin = pins.get(remote)
            state = state_of(pin, target, digests[remote], lost=remote in lost)
            offer = ToolOffer(name, remote, chosen[remote], digests[remote], target, state, pin)
            known = before.get(remote)
            try:
                made[remote] = known if known and known.is_same(offer, settings) else McpTool(offer, settings, self)
            except DefinitionError as error:
                left_out[_display_name(remote)] = one_line(str(error), 300)
        return made, left_out

    def _select_definitions(self, listed: list[Any], left_out: dict[str, str]) -> dict[str, Mapping[str, Any]]:
        """Returns the usable and selected definitions by remote name."""
        chosen: dict[str, Mapping[str, Any]] = {}
        seen: set[str] = set()
        for number, definition in enumerate(listed, 1):
            remote = definition.get("name") if isinstance(definition, Mapping) else None
            if not isinstance(remote, str) or not remote.strip() or len(remote) > LONGEST_NAME:
                left_out[f"tool {number}"] = "its name is missing or too long"
                continue
            seen.add(remote)
            if not self._chosen.selects(remote):
                continue
            if remote in chosen:
                left_out[_display_name(remote)] = "it is listed twice; the first entry is used"
                continue
            if _runs_as_task_only(definition) and not (self._connection and self._connection.runs_tasks):
                left_out[_display_name(remote)] = "it can only run as a task, which its server does not offer"
                continue
            try:
                check_definition(definition)
                self._check_headers(definition)
                chosen[remote] = definition
            except ValueError as error:
                left_out[_display_name(remote)] = str(error)
        self._unmatched = self._chosen.find_problems(seen)
        for pattern in self._chosen.find_unmatched(seen):
            where = "include" if pattern in self._chosen.include else "exclude"
            left_out[pattern] = f"it is in `{where}`, but the server has no such tool"
        return chosen

    def _check_headers(self, definition: Mapping[str, Any]) -> None:
        """Raises `ValueError` if parameters are to be sent as invalid headers (revision 2026-07-28, over HTTP)."""
        if not self.url or self._connection is None or not self._connection.is_modern:
            return
        from mcp.shared.inbound import find_invalid_x_mcp_header  # the SDK is loaded by now

        if reason := find_invalid_x_mcp_header(definition.get("inputSchema")):
            raise ValueError(one_line(reason, 300))

    def _lock(self, which: int) -> asyncio.Lock:
        """Returns a lock of the running loop: 0 for opening and closing, 1 for the list. A server may be opened on
        several loops, one after another."""
        loop = asyncio.get_running_loop()
        if self._locks is None or self._locks[0] is not loop:
            if self._users:
                raise RuntimeError(f"the server {self.name} is open on another event loop")
            self._locks = (loop, asyncio.Lock(), asyncio.Lock())
        return self._locks[1 + which]  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<McpSource {self.name}: {len(self._tools)} tools{'' if self.is_open else ', closed'}>"


mcp = McpSource


def _read_transport(where: str | Sequence[str] | Stdio | Http) -> Stdio | Http:
    if isinstance(where, Stdio | Http):
        return where
    if isinstance(where, str) and is_url(where):
        return Http(where.strip())
    program, *args = read_command(where)
    return Stdio(program, args)


def _make_login(name: str, transport: Stdio | Http) -> Login | None:
    """Returns the login at a URL; None if there is none, or a header authorizes the requests."""
    if isinstance(transport, Stdio) or transport.auth is None or transport.is_authorized:
        return None
    return Login(name, transport.url, transport.auth, transport.egress)


def _explain_listing(needed: LoginNeeded) -> LoginNeeded:
    """Returns the error of a server with logins of users, whose tools nobody can list."""
    hint = (
        f"{needed.suggestion} This login only lists the tools, and no user's call uses it. Or name the approved "
        "definitions with pins=."
    )
    return LoginNeeded(needed.message, needed.kind, hint)


def _runs_as_task_only(definition: Mapping[str, Any]) -> bool:
    execution = definition.get("execution")
    return isinstance(execution, Mapping) and execution.get("taskSupport") == "required"


def _display_name(remote: str) -> str:
    return one_line(remote, 80) or "a tool without a visible name"
