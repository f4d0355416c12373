"""The users of a server that logs each of them in: a login, a connection and a session for each, bounded in number."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.secrets import Secrets
from forge.core.untrusted import one_line
from forge.mcp.client.link import Http
from forge.mcp.client.questions import CallListener, visit
from forge.mcp.oauth.login import Browser, Login, LoginNeeded, Redirect, listen_for_redirect, wait_for_redirect

if TYPE_CHECKING:
    from forge.mcp.client.connection import Connection

MOST_USERS = 100  # connections at the same time
IDLE = 300.0  # seconds until an unused connection closes

T = TypeVar("T")
Show = Callable[[str], Awaitable[None]]
Work = Callable[["Connection", CallListener], Awaitable[T]]


@dataclass(slots=True, eq=False)
class _User:
    """The login, the listener and the connection of one user."""

    name: str
    login: Login
    listener: CallListener
    connection: Connection | None = None
    requests: dict[Connection, int] = field(default_factory=dict)  # running, by their connection
    replaced: set[Connection] = field(default_factory=set)  # by a newer one; each closes after its last request
    calls: int = 0  # running
    logins: int = 0
    closing: asyncio.TimerHandle | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class UserConnections:
    """Runs the requests of each user over the user's own connection. `login` is the server's own; nobody uses it here.

    Connections are made in the context of whoever opened the server (`open`), not in that of a user's call.
    """

    def __init__(
        self, name: str, transport: Http, login: Login, make_listener: Callable[[Login], CallListener]
    ) -> None:
        self._name = name
        self._transport = transport
        self._login = login
        self._make_listener = make_listener
        self._context = copy_context()
        self._users: dict[str, _User] = {}  # the one that was used last comes last
        self._redirects: dict[str, tuple[str, asyncio.Future[str]]] = {}  # state of a login that waits -> its user
        self._ending: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._context = copy_context()

    async def run(self, ctx: ToolContext, work: Work[T]) -> T:
        """Runs a request of the call's user. Asks this user to log in where that is needed, if somebody can be asked.

        A server that wants a login did nothing, so the request is repeated after the login.
        """
        user = self._enter(ctx.scope.user)
        before = user.logins
        try:
            try:
                answer = await self._run(user, work)
            except LoginNeeded as needed:
                await self._ask_to_log_in(user, ctx, needed, before)
                answer = await self._run(user, work)
            return mask_tokens(answer, user.login.tokens)
        except ToolError as error:
            error.message = Secrets(user.login.tokens).mask(error.message)
            raise
        finally:
            self._leave(user)

    async def log_in(self, name: str, show: Show) -> bool:
        """Logs a user in anew: `show` gets the page to open. Returns False if the server asks for no login."""
        was_needed = await self._log_in(name, show)
        await self._drop(name)  # the next request connects with the new tokens
        return was_needed

    async def log_out(self, name: str) -> list[str]:
        """Revokes and removes the user's tokens, and closes the connection. Returns why some could not be revoked."""
        from forge.mcp.oauth.authorizer import revoke_login  # it imports the SDK

        login = self._login.for_user(name)
        try:
            return await revoke_login(login) if login.is_stored else []
        finally:
            login.store.clear()
            await self._drop(name)

    def take_redirect(self, url: str, name: str) -> None:
        """Hands over the URL that the user's browser was redirected to. Raises `ToolError` if no login waits for it.

        Any thread may call it: a web service often answers in another one than the login's.
        """
        state = _read_state(url)
        user, waiting = self._redirects.get(state, ("", None))
        if waiting is None or waiting.done() or user != name:
            raise ToolError(
                f"no login of {one_line(name, 80) or 'the service itself'} at {self._name} waits for this redirect",
                ErrorKind.PERMISSION,
                "Start the login again, and open its page as the same user."
                if name
                else "Pass the user whose login it is: take_redirect(url, user=…).",
            )
        self._redirects.pop(state, None)  # a second redirect is refused
        waiting.get_loop().call_soon_threadsafe(_settle, waiting, url)

    async def close(self) -> None:
        for name in list(self._users):
            await self._drop(name)
        if self._ending:
            await asyncio.wait(self._ending)

    def _enter(self, name: str) -> _User:
        if not name:
            raise ToolError(
                f"the server {self._name} has a login for each user, and this call has no user",
                ErrorKind.CONFIG,
                "Run the agent with the user: scope=Scope(user=…).",
            )
        found = self._users.pop(name, None)
        if found is None:
            self._make_room()
            login = self._login.for_user(name)
            found = _User(name, login, self._make_listener(login))
        self._users[name] = found
        found.calls += 1
        if found.closing is not None:
            found.closing.cancel()
        return found

    def _leave(self, user: _User) -> None:
        user.calls -= 1
        if user.calls:
            return
        if self._users.get(user.name) is not user:  # logged out meanwhile, or in anew
            self._end_later(user)
        else:
            user.closing = asyncio.get_running_loop().call_later(IDLE, self._end_later, user)

    def _make_room(self) -> None:
        if len(self._users) < MOST_USERS:
            return
        idle = next((one for one in self._users.values() if not one.calls), None)
        if idle is None:
            raise ToolError(
                f"{MOST_USERS} users are using the server {self._name} at this moment, which is the limit",
                ErrorKind.RATE_LIMITED,
                "Try again in a moment.",
                passing=True,
            )
        self._end_later(idle)

    def _end_later(self, user: _User) -> None:
        self._in_background(self._end(user))
        if self._users.get(user.name) is user:
            del self._users[user.name]

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._context.copy().run(asyncio.create_task, work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _drop(self, name: str) -> None:
        if (user := self._users.pop(name, None)) is not None:
            await self._end(user)

    async def _end(self, user: _User) -> None:
        if user.closing is not None:
            user.closing.cancel()
        connections = [*user.replaced, *([user.connection] if user.connection is not None else [])]
        user.connection = None
        user.replaced.clear()
        for connection in connections:
            await connection.close()

    async def _run(self, user: _User, work: Work[T]) -> T:
        async with user.opening:
            if user.connection is None:
                from forge.mcp.client.connection import Connection

                connection = Connection(self._name, self._transport, user.listener, login=user.login)
                await asyncio.get_running_loop().create_task(connection.open(), context=self._context.copy())
                user.connection = connection
            connection = user.connection
            user.requests[connection] = user.requests.get(connection, 0) + 1
        try:
            return await work(connection, user.listener)
        finally:
            user.requests[connection] -= 1
            if not user.requests[connection]:
                del user.requests[connection]
                if connection in user.replaced:
                    user.replaced.discard(connection)
                    self._in_background(connection.close())

    async def _ask_to_log_in(self, user: _User, ctx: ToolContext, needed: LoginNeeded, before: int) -> None:
        """Shows the page of the login to the person who is asked about the call. Raises `needed` if that fails."""
        async with user.asking:
            if user.logins != before:  # in a call that runs beside this one
                return

            async def show(url: str) -> None:
                message = f"Log in as {one_line(user.name, 80)}: the call of {ctx.spec.name} needs it."
                if not isinstance(await visit(self._name, ctx, message, url), Mapping):
                    raise needed  # nobody is there, or the person said no

            with ctx.pause_clock():
                await self._log_in(user.name, show)
            async with user.opening:  # a connection has the tokens that were stored when it was made
                old, user.connection = user.connection, None
                if old is not None and old in user.requests:  # the server may be at work on a request that came before
                    user.replaced.add(old)
                elif old is not None:
                    await old.close()
            user.logins += 1

    async def _log_in(self, name: str, show: Show) -> bool:
        from forge.mcp.oauth.authorizer import log_in  # it imports the SDK

        login = self._login.for_user(name)
        async with self._wait_for_redirect(login, show) as browser:
            return await log_in(login, browser)

    @asynccontextmanager
    async def _wait_for_redirect(self, login: Login, show: Show) -> AsyncIterator[Browser]:
        """Waits at the service's own URL, if the settings name one; else at a port of this machine."""
        settings = login.settings
        if settings.redirect_url:
            waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            async def show_page(url: str) -> None:
                self._redirects[_read_state(url)] = (login.user, waiting)
                await show(url)

            async def wait() -> Redirect:
                return await wait_for_redirect(waiting, "Start the login again.")

            try:
                yield Browser(settings.redirect_url, show_page, wait)
            finally:
                self._redirects = {state: one for state, one in list(self._redirects.items()) if one[1] is not waiting}
            return
        async with AsyncExitStack() as stack:
            port = settings.redirect_port or login.registered_port
            try:
                browser = await stack.enter_async_context(listen_for_redirect(port, show))
            except ToolError:
                if settings.redirect_port or not port:
                    raise
                browser = await stack.enter_async_context(listen_for_redirect(0, show))  # it is taken
            yield browser


def mask_tokens(answer: T, tokens: Sequence[str]) -> T:
    """Masks the tokens of a login in an answer: they change while a server is open."""
    if not tokens or not isinstance(answer, dict):
        return answer
    text = json.dumps(answer)
    masked = Secrets(tokens).mask(text)
    return answer if masked == text else json.loads(masked)


def _settle(waiting: asyncio.Future[str], url: str) -> None:
    if not waiting.done():  # the login ended meanwhile
        waiting.set_result(url)


def _read_state(url: str) -> str:
    """Returns the state of a login, a long random word, from the URL of its page or of its redirect."""
    return parse_qs(urlsplit(url).query).get("state", [""])[0]
