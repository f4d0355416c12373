"""A lasting connection to an MCP server: a server that fails is restarted, and its calls end with clear errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.sources.mcp.listener import Listener, SilentListener, current_call_key
from forge.sources.mcp.server_link import call_listener, log
from forge.sources.mcp.target import Target

if TYPE_CHECKING:  # the SDK takes a second to import: only if a server is used
    from forge.sources.mcp.session import ServerSession

__all__ = ["Connection", "Listener", "SilentListener", "Target", "current_call_key"]

T = TypeVar("T")

FIRST, LONGEST = 1.0, 60.0  # seconds of backoff before a restart: doubled each time, until the server stays up
STEADY = 60.0  # seconds up, after which the backoff is reset
IMMINENT = 1.0  # seconds that a call waits for a restart; if it takes longer, the call fails at once
CLOSING = 2.6  # seconds to end by itself; then it is cancelled


class Connection:
    """One server. The SDK's session lives in its own task; calls come from anywhere in the same event loop."""

    def __init__(self, name: str, target: Target, listener: Listener, *, connect_timeout: float = 30.0) -> None:
        self.name = name
        self.target = target
        self.server_info: dict[str, Any] = {}  # name, version and title, as the server reports them
        self.instructions = ""
        self._listener = listener
        self._timeout = connect_timeout
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
        from forge.sources.mcp.list_items import list_all

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
        return await self._request(lambda session: session.call(name, arguments, key, as_task=as_task))

    async def list_items(self, method: str) -> list[dict[str, Any]]:
        """Returns the raw items of a list, such as `resources/list`, bounded; [] if the server does not have it."""
        from forge.sources.mcp.dispatcher import LISTS  # it imports the SDK, which is loaded by now
        from forge.sources.mcp.list_items import list_all
        from forge.sources.mcp.session_requests import read_page

        async def read(session: ServerSession) -> list[dict[str, Any]]:
            if not session.offers(method):
                return []
            return await list_all(self.name, lambda cursor: read_page(session, method, cursor), LISTS[method])

        return await self._request(read)

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """Returns the raw contents of a resource."""
        from forge.sources.mcp.session_requests import read_resource

        return await self._request(lambda session: read_resource(session, uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Returns the raw messages of a prompt."""
        from forge.sources.mcp.session_requests import get_prompt

        return await self._request(lambda session: get_prompt(session, name, arguments))

    async def complete(self, prompt: str, argument: str, value: str, known: Mapping[str, str]) -> dict[str, Any]:
        """Returns the raw suggestions for an argument of a prompt; {} if the server has none."""
        from forge.sources.mcp.session_requests import complete

        async def ask(session: ServerSession) -> dict[str, Any]:
            return await complete(session, prompt, argument, value, known) if session.offers("completion") else {}

        return await self._request(ask)

    async def _request(self, work: Callable[[ServerSession], Awaitable[T]]) -> T:
        from forge.sources.mcp.http import ExpiredSession  # it imports the SDK, which is loaded by now

        session = await self._await_session(IMMINENT)
        try:
            return await self._run_request(session, work)
        except ExpiredSession:  # the server did nothing
            await _wait_for(session.fallen, 1.0)
            return await self._run_request(await self._await_session(self._timeout), work)

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
                self.name, self.target, self._listener, self._timeout, probe=self._probes
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
        seconds = 0.0 if at_once and (lived >= FIRST or not self._restarts) else min(LONGEST, FIRST * 2**self._restarts)
        self._restarts = min(self._restarts + 1, 30)
        self._reason = reason
        self._back_at = asyncio.get_running_loop().time() + seconds
        call_listener(self._listener.went_down, reason, seconds)


def _import_session() -> Any:
    """Imports the SDK in a thread, since it takes a second."""
    from forge.sources.mcp.session import open_session

    return open_session


def _ended_at_probe(problem: ToolError | None) -> bool:
    from forge.sources.mcp.handshake import EndedAtProbe  # it imports the SDK, which is loaded by now

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
