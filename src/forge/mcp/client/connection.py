"""A lasting connection to an MCP server: restarts one that fails, ends its calls with clear errors, reads its lists."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.mcp.bounds import LISTING, MIB, MOST_LISTED, MOST_PAGES, MOST_TOOLS
from forge.mcp.client.link import ServerListener, SilentListener, Transport, call_listener, current_call_key, log

if TYPE_CHECKING:
    from forge.mcp.client.session import ServerSession
    from forge.mcp.oauth.login import Login


__all__ = ["Connection", "ServerListener", "SilentListener", "current_call_key"]

T = TypeVar("T")

FIRST_BACKOFF, LONGEST_BACKOFF = (
    1.0,
    60.0,
)  # seconds before a restart: doubled each time, until the server stays up
STEADY = 60.0  # seconds up, after which the backoff is reset
IMMINENT = 1.0  # seconds that a call waits for a restart; if it takes longer, the call fails at once
CLOSING = 2.6  # seconds to end by itself; then it is cancelled


class Connection:
    """One server. The SDK's session lives in its own task; calls come from anywhere in the same event loop."""

    def __init__(
        self, name: str, transport: Transport, listener: ServerListener, *, login: Login | None = None
    ) -> None:
        self.name = name
        self.transport = transport
        self.server_info: dict[str, Any] = {}  # name, version and title, as the server reports them
        self.instructions = ""
        self._listener = listener
        self._login = login
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._up_event = asyncio.Event()
        self._session: ServerSession | None = None
        self._restarts = 0
        self._reason = "it was not opened"
        self._back_at = 0.0
        self._probes = True  # ask for revision 2026-07-28 first; False once the server is known to be older

    @property
    def is_up(self) -> bool:
        return self._session is not None

    @property
    def is_modern(self) -> bool:
        """True while a session of revision 2026-07-28 is up."""
        return self._session is not None and self._session.is_modern

    @property
    def is_list_expired(self) -> bool:
        """True if the server said how long its list of tools is valid, and that time is over."""
        return self._session is not None and asyncio.get_running_loop().time() > self._session.list_expires_at

    async def open(self) -> None:
        """Connects, or raises `ToolError`; its kind says if the configuration, a timeout or the server is the cause."""
        if self._task is not None and not self._task.done():
            raise RuntimeError("the connection is already open")
        self._closing.clear()
        self._restarts = 0
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run_sessions(opened), name=f"mcp {self.name}")
        self._task.add_done_callback(lambda _: None if opened.done() else opened.set_exception(self._down_error()))
        try:
            await asyncio.shield(opened)
        except asyncio.CancelledError:
            if not opened.cancel() and not opened.cancelled():
                opened.exception()  # marks the exception as retrieved
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the session, the program and its child processes within three seconds. Never raises."""
        self._closing.set()
        task, self._task = self._task, None
        if task is None:
            return
        if self._session is None:
            task.cancel()  # during a handshake, or between two
        try:
            await asyncio.wait([task], timeout=CLOSING)
        finally:
            task.cancel()
        await asyncio.wait([task], timeout=3.0 - CLOSING)

    async def list_tools(self) -> list[dict[str, Any]]:
        """Returns the raw definitions of the server's tools, bounded; [] if it has no tools."""

        return await self._request(lambda session: list_all(self.name, session.page))

    @property
    def runs_tasks(self) -> bool:
        """True if calls of an older server can run as tasks."""
        return self._session is not None and self._session.runs_tasks

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], key: object, *, as_task: bool = False
    ) -> dict[str, Any]:
        """Returns the raw result: `content`, and maybe `structuredContent` and `isError`.

        The progress of this call carries `key`. If cancelled, it notifies the server.
        """
        answer, _ = await self.call_and_watch(name, arguments, key, as_task=as_task)
        return answer

    async def call_and_watch(
        self, name: str, arguments: Mapping[str, Any], key: object, *, as_task: bool = False
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Returns the raw result as `call_tool` does, and the hosts that the server's program tried meanwhile."""

        async def work(session: ServerSession) -> tuple[dict[str, Any], list[dict[str, Any]]]:
            reached = session.wire.reached
            before, answer = reached.begin(), None
            try:
                answer = await session.call(name, arguments, key, as_task=as_task)
            finally:
                hosts = reached.end(before, has_result=answer is not None)
            return answer, hosts

        return await self._request(work)

    async def list_items(self, method: str) -> list[dict[str, Any]]:
        """Returns the raw items of a list, such as `resources/list`, bounded; [] if the server does not have it."""
        from forge.mcp.client.requests import (
            LISTS,  # it imports the SDK, which is loaded by now
            read_page,
        )

        async def read(session: ServerSession) -> list[dict[str, Any]]:
            if not session.offers(method):
                return []
            return await list_all(self.name, lambda cursor: read_page(session, method, cursor), LISTS[method])

        return await self._request(read)

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """Returns the raw contents of a resource."""
        from forge.mcp.client.requests import read_resource

        return await self._request(lambda session: read_resource(session, uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Returns the raw messages of a prompt."""
        from forge.mcp.client.requests import get_prompt

        return await self._request(lambda session: get_prompt(session, name, arguments))

    async def complete(self, prompt: str, argument: str, value: str, known: Mapping[str, str]) -> dict[str, Any]:
        """Returns the raw suggestions for an argument of a prompt; {} if the server has none."""
        from forge.mcp.client.requests import complete

        async def ask(session: ServerSession) -> dict[str, Any]:
            return await complete(session, prompt, argument, value, known) if session.offers("completion") else {}

        return await self._request(ask)

    async def _request(self, work: Callable[[ServerSession], Awaitable[T]]) -> T:
        from forge.mcp.client.http import ExpiredSession  # it imports the SDK, which is loaded by now

        session = await self._await_session(IMMINENT)
        try:
            return await self._run_request(session, work)
        except ExpiredSession:  # the server did nothing
            await _wait_for(session.fallen, 1.0)
            return await self._run_request(await self._await_session(self.transport.connect_timeout), work)

    async def _run_request(self, session: ServerSession, work: Callable[[ServerSession], Awaitable[T]]) -> T:
        try:
            return await work(session)
        except (ToolError, TimeoutError):
            raise
        except Exception as error:
            problem = await session.failure(error)
        if problem is None:
            await _wait_for(session.fallen, 1.0)
            problem = self._down_error()
        raise problem

    async def _await_session(self, patience: float) -> ServerSession:
        """Returns the session; waits for an imminent restart."""
        is_coming = self._task is not None and not self._closing.is_set()
        if self._session is None and is_coming and self._back_at - asyncio.get_running_loop().time() < patience:
            await _wait_for(self._up_event, patience)
        if self._session is None:
            problem = self._down_error()
            problem.passing = True  # nothing was sent
            raise problem
        return self._session

    def _down_error(self) -> ToolError:
        if self._closing.is_set() or self._task is None:
            what, hint = f"the connection to the server {self.name} is closed", "Use another tool."
            return ToolError(what, ErrorKind.SYSTEM, hint)
        seconds = max(0.0, self._back_at - asyncio.get_running_loop().time())
        when = f"in {seconds:.0f} s" if seconds >= 0.5 else "now"
        return ToolError(
            f"server {self.name} is down ({self._reason}): restarting {when}",
            ErrorKind.SYSTEM,
            "Try again then. If it keeps failing, continue without it and tell the person.",
        )

    async def _run_sessions(self, opened: asyncio.Future[None]) -> None:
        """Runs one session after another, until closed. All of the SDK runs in this task and below it."""
        loop = asyncio.get_running_loop()
        while not self._closing.is_set():
            began = loop.time()
            problem = await self._run_session(opened)
            if self._closing.is_set():
                break
            if self._probes and _ended_at_probe(problem):
                self._probes = False
                continue
            if problem is not None:
                if not opened.done():
                    opened.set_exception(problem)
                    return
                self._mark_down(problem.message, loop.time() - began)
            await _wait_for(self._closing, max(0.0, self._back_at - loop.time()))

    async def _run_session(self, opened: asyncio.Future[None]) -> ToolError | None:
        """Runs a session from the handshake until it is lost or closed. Returns the error if the handshake failed."""
        open_session = await in_thread(_import_session)
        loop = asyncio.get_running_loop()
        session: ServerSession | None = None
        try:
            async with open_session(
                self.name, self.transport, self._login, self._listener, probe=self._probes
            ) as session:
                began = loop.time()
                self._mark_up(session, opened)
                closing = asyncio.create_task(self._closing.wait())
                try:
                    await asyncio.wait([session.wire.lost, closing], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    closing.cancel()
                    self._session = None
                    self._up_event.clear()
                    if session.wire.lost.done() and not self._closing.is_set():
                        self._mark_down(session.wire.lost.result(), loop.time() - began, at_once=session.wire.expired)
                    session.fallen.set()
        except Exception as error:
            if session is None:
                return _unwrap_error(self.name, error)
            if not session.wire.lost.done() and not self._closing.is_set():
                return _unwrap_error(self.name, error)
            log.debug("%s: its session ended with an error", self.name, exc_info=True)
        return None

    def _mark_up(self, session: ServerSession, opened: asyncio.Future[None]) -> None:
        self.server_info, self.instructions = session.info, session.instructions
        self._session = session
        self._probes = session.is_modern
        self._up_event.set()
        if not opened.done():
            opened.set_result(None)
        else:
            call_listener(self._listener.came_back)
            call_listener(self._listener.tools_changed)

    def _mark_down(self, reason: str, lived: float, *, at_once: bool = False) -> None:
        if lived >= STEADY:
            self._restarts = 0
        seconds = (
            0.0
            if at_once and (lived >= FIRST_BACKOFF or not self._restarts)
            else min(LONGEST_BACKOFF, FIRST_BACKOFF * 2**self._restarts)
        )
        self._restarts = min(self._restarts + 1, 30)
        self._reason = reason
        self._back_at = asyncio.get_running_loop().time() + seconds
        call_listener(self._listener.went_down, reason, seconds)


def _import_session() -> Any:
    """Imports the SDK in a thread, since it takes a second."""
    from forge.mcp.client.session import open_session

    return open_session


def _ended_at_probe(problem: ToolError | None) -> bool:
    from forge.mcp.client.handshake import EndedAtProbe  # it imports the SDK, which is loaded by now

    return isinstance(problem, EndedAtProbe)


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _unwrap_error(name: str, error: BaseException) -> ToolError:
    """Unwraps the `ToolError` inside an exception group, or makes one."""
    while isinstance(error, BaseExceptionGroup):
        inside = error.subgroup(ToolError) or error
        error = inside.exceptions[0]
    if isinstance(error, ToolError):
        return error
    return ToolError(
        f"the server {name} cannot be used: {text_of(error)}",
        ErrorKind.SYSTEM,
        "A person must check the server's settings.",
    )


# --- Reads a list of a server, such as its tools, within bounds: the list may be endless, huge or broken.


_WORDS = {"resourceTemplates": "resource templates"}
ReadPage = Callable[[str | None], Awaitable[dict[str, Any]]]


async def list_all(name: str, read_page: ReadPage, key: str = "tools") -> list[dict[str, Any]]:
    """Returns the raw items and logs those left out. Raises `ToolError` if nothing came in time."""
    listing = _Listing(name, key)
    try:
        async with asyncio.timeout(LISTING):
            await listing.read(read_page)
    except TimeoutError:
        if not listing.pages:
            raise ToolError(
                f"the server {name} did not list its {listing.what} within {LISTING:g} s",
                ErrorKind.TIMEOUT,
                "Continue without it; a person must check the server.",
            ) from None
        log.warning("%s: not all of its %s were listed within %g s", name, listing.what, LISTING)
    return listing.items


class _Listing:
    def __init__(self, name: str, key: str) -> None:
        self.name = name
        self.key = key
        self.what = _WORDS.get(key, key)
        self.items: list[dict[str, Any]] = []
        self.pages = 0
        self._size = 0
        self._seen: set[str] = set()

    async def read(self, read_page: ReadPage) -> None:
        cursor: str | None = None
        while True:
            page = await read_page(cursor)
            self.pages += 1
            if not self._add_page(page.get(self.key)):
                return
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                return
            if cursor in self._seen or self.pages >= MOST_PAGES:
                why = "a page links back to an earlier one" if cursor in self._seen else f"more than {MOST_PAGES} pages"
                log.warning("%s: the list of its %s was cut: %s", self.name, self.what, why)
                return
            self._seen.add(cursor)

    def _add_page(self, items: Any) -> bool:
        """Adds the items of a page. Returns whether more pages may follow."""
        from pydantic_core import to_json  # heavy, but the SDK loads it anyway

        for item in items if isinstance(items, list) else []:
            if not isinstance(item, dict):
                log.warning("%s: one of its %s that is not an object was left out", self.name, self.what)
                continue
            if len(self.items) >= MOST_TOOLS:
                log.warning("%s: more than %s %s; the rest was left out", self.name, f"{MOST_TOOLS:,}", self.what)
                return False
            size = len(to_json(item))
            if self._size + size > MOST_LISTED:
                most = MOST_LISTED // MIB
                message = "%s: one of its %s, of %s bytes, was left out: the maximum is %d MiB"
                log.warning(message, self.name, self.what, f"{size:,}", most)
                continue
            self._size += size
            self.items.append(item)
        return True
