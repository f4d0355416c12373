"""A connection to an MCP server that is kept: whatever happens to the server, it is restarted and calls end clearly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.sources.mcp.listener import Listener, Quiet, asked_during
from forge.sources.mcp.target import Target
from forge.sources.mcp.wire import log, quietly

if TYPE_CHECKING:  # the SDK takes a second to import: only where a server is used
    from forge.sources.mcp.session import Session

__all__ = ["Connection", "Listener", "Quiet", "Target", "asked_during"]

T = TypeVar("T")

FIRST, LONGEST = 1.0, 60.0  # seconds before a restart: twice as many each time, until it stays up
STEADY = 60.0  # seconds up, after which the next restart is the first again
IMMINENT = 1.0  # seconds that a call waits for a restart; with more to wait it fails at once
CLOSING = 2.6  # seconds to end by itself; then it is made to


class Connection:
    """One server. The SDK's session lives in a task of its own; calls are made from anywhere in the same event loop."""

    def __init__(self, name: str, target: Target, listener: Listener, *, connect_timeout: float = 30.0) -> None:
        self.name = name
        self.target = target
        self.server_info: dict[str, Any] = {}  # name, version and title, as it says
        self.instructions = ""
        self._listener = listener
        self._timeout = connect_timeout
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._risen = asyncio.Event()
        self._session: Session | None = None
        self._restarts = 0
        self._reason = "it was not opened"
        self._back_at = 0.0

    @property
    def is_up(self) -> bool:
        return self._session is not None

    async def open(self) -> None:
        """Connects, or raises `ToolError`: it says whether configuration, time or the server is to blame."""
        if self._task is not None and not self._task.done():
            raise RuntimeError("the connection is open already")
        self._closing.clear()
        self._restarts = 0
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(opened), name=f"mcp {self.name}")
        self._task.add_done_callback(lambda _: None if opened.done() else opened.set_exception(self._is_down()))
        try:
            await asyncio.shield(opened)
        except asyncio.CancelledError:
            if not opened.cancel() and not opened.cancelled():
                opened.exception()  # nobody else will ask for it
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the session, and the program with all that came of it, within three seconds. Never raises."""
        self._closing.set()
        task, self._task = self._task, None
        if task is None:
            return
        if self._session is None:
            task.cancel()  # in the middle of a handshake, or waiting for the next
        try:
            await asyncio.wait([task], timeout=CLOSING)
        finally:
            task.cancel()
        await asyncio.wait([task], timeout=3.0 - CLOSING)

    async def list_tools(self) -> list[dict[str, Any]]:
        """The definitions of its tools as it wrote them, bounded; none for a server that has no tools."""
        from forge.sources.mcp.listing import all_tools

        return await self._ask(lambda session: all_tools(self.name, session.page))

    async def call_tool(self, name: str, arguments: Mapping[str, Any], key: object) -> dict[str, Any]:
        """The result as the protocol writes it: `content`, and maybe `structuredContent` and `isError`.

        `key` comes back with the progress of this call. Cancelled, the server is told.
        """
        return await self._ask(lambda session: session.call(name, arguments, key))

    async def _ask(self, work: Callable[[Session], Awaitable[T]]) -> T:
        from forge.sources.mcp.http import Expired  # with the SDK, which is there by now

        session = await self._up(IMMINENT)
        try:
            return await self._asked(session, work)
        except Expired:  # nothing was done
            await _within(session.fallen, 1.0)
            return await self._asked(await self._up(self._timeout), work)

    async def _asked(self, session: Session, work: Callable[[Session], Awaitable[T]]) -> T:
        try:
            return await work(session)
        except (ToolError, TimeoutError):
            raise
        except Exception as error:
            problem = await session.failure(error)
        if problem is None:
            await _within(session.fallen, 1.0)
            problem = self._is_down()
        raise problem

    async def _up(self, patience: float) -> Session:
        """The session; one that is about to come is waited for."""
        is_coming = self._task is not None and not self._closing.is_set()
        if self._session is None and is_coming and self._back_at - asyncio.get_running_loop().time() < patience:
            await _within(self._risen, patience)
        if self._session is None:
            problem = self._is_down()
            problem.passing = True  # nothing was sent
            raise problem
        return self._session

    def _is_down(self) -> ToolError:
        if self._closing.is_set() or self._task is None:
            what, hint = f"the connection to the server {self.name} is closed", "Use another tool."
            return ToolError(what, ErrorKind.SYSTEM, hint)
        seconds = max(0.0, self._back_at - asyncio.get_running_loop().time())
        when = f"in {seconds:.0f} s" if seconds >= 0.5 else "now"
        return ToolError(
            f"server {self.name} is down ({self._reason}): restarting {when}",
            ErrorKind.SYSTEM,
            "Try again then; if it goes on, do without it and tell the person.",
        )

    async def _live(self, opened: asyncio.Future[None]) -> None:
        """One session after the other, until closed. All of the SDK runs in this task and below it."""
        loop = asyncio.get_running_loop()
        while not self._closing.is_set():
            began = loop.time()
            problem = await self._one_session(opened)
            if self._closing.is_set():
                break
            if problem is not None:
                if not opened.done():
                    opened.set_exception(problem)
                    return
                self._fall(problem.message, loop.time() - began)
            await _within(self._closing, max(0.0, self._back_at - loop.time()))

    async def _one_session(self, opened: asyncio.Future[None]) -> ToolError | None:
        """From the handshake until it is lost or closed; the error if it never stood."""
        connected = await in_thread(_session_module)
        loop = asyncio.get_running_loop()
        session: Session | None = None
        try:
            async with connected(self.name, self.target, self._listener, self._timeout) as session:
                began = loop.time()
                self._rise(session, opened)
                closing = asyncio.create_task(self._closing.wait())
                try:
                    await asyncio.wait([session.wire.lost, closing], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    closing.cancel()
                    self._session = None
                    self._risen.clear()
                    if session.wire.lost.done() and not self._closing.is_set():
                        self._fall(session.wire.lost.result(), loop.time() - began, at_once=session.wire.expired)
                    session.fallen.set()
        except Exception as error:
            if session is None:
                return _told(self.name, error)
            if not session.wire.lost.done() and not self._closing.is_set():
                return _told(self.name, error)
            log.debug("%s: its session did not end well", self.name, exc_info=True)
        return None

    def _rise(self, session: Session, opened: asyncio.Future[None]) -> None:
        self.server_info, self.instructions = session.info, session.instructions
        self._session = session
        self._risen.set()
        if not opened.done():
            opened.set_result(None)
        else:
            quietly(self._listener.came_back)
            quietly(self._listener.tools_changed)

    def _fall(self, reason: str, lived: float, *, at_once: bool = False) -> None:
        if lived >= STEADY:
            self._restarts = 0
        seconds = 0.0 if at_once and (lived >= FIRST or not self._restarts) else min(LONGEST, FIRST * 2**self._restarts)
        self._restarts = min(self._restarts + 1, 30)
        self._reason = reason
        self._back_at = asyncio.get_running_loop().time() + seconds
        quietly(self._listener.went_down, reason, seconds)


def _session_module() -> Any:
    """Imported beside the event loop, since it takes a second."""
    from forge.sources.mcp.session import connected

    return connected


async def _within(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _told(name: str, error: BaseException) -> ToolError:
    """The error of ours inside whatever it comes wrapped in."""
    while isinstance(error, BaseExceptionGroup):
        inside = error.subgroup(ToolError) or error
        error = inside.exceptions[0]
    if isinstance(error, ToolError):
        return error
    return ToolError(
        f"the server {name} cannot be used: {text_of(error)}", ErrorKind.SYSTEM, "Let a person look at its settings."
    )
