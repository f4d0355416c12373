"""Work that goes on after a tool returned: tracked, and completed exactly once."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from forge.core.context import ToolContext, Work
from forge.core.deadline import Until
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.threads import home_loop

log = logging.getLogger("forge.tools")

MOST_KEPT = 1_000  # completed results of a session that no loop has taken

Finish = Callable[[ToolContext, ToolResult], Awaitable[None]]


class BackgroundWork:
    """An executor's open work. `finish` gets every result, once; `failed` makes one of an exception."""

    def __init__(self, finish: Finish, failed: Callable[[ToolContext, BaseException], ToolResult]) -> None:
        self._finish = finish
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()  # asyncio keeps only weak references
        self._open: dict[str, set[str]] = {}  # session -> calls whose work goes on
        self._completed: dict[str, deque[tuple[ToolCall, ToolResult]]] = {}  # session -> what nobody heard of yet
        self._news = asyncio.Event()

    def go_on(self, ctx: ToolContext, work: Work) -> None:
        if not callable(work) and not inspect.isawaitable(work):
            raise TypeError(f"background({work!r}): pass a coroutine, or a function that returns one")
        log.info("%s goes on in the background", ctx.call.name)
        self._open.setdefault(ctx.scope.session_id, set()).add(ctx.call.id)
        loop = home_loop()
        if loop is _running():
            self._keep(self._until_done(ctx, work), ctx)
        else:  # from the thread of a plain tool
            loop.call_soon_threadsafe(lambda: self._keep(self._until_done(ctx, work), ctx))

    def completion(self, ctx: ToolContext) -> Completion:
        return Completion(self, ctx)

    def keep_completed(self, ctx: ToolContext, result: ToolResult) -> None:
        """For a loop to take: what is never taken is forgotten, oldest first."""
        session = ctx.scope.session_id
        self._open.get(session, set()).discard(ctx.call.id)
        self._completed.setdefault(session, deque(maxlen=MOST_KEPT)).append((ctx.call, result))
        self._news.set()

    def take_completed(self, session_id: str) -> Iterable[tuple[ToolCall, ToolResult]]:
        """What was completed since this was last asked for."""
        return self._completed.pop(session_id, ())

    def is_open(self, session_id: str) -> bool:
        """Whether something is under way, or completed and not heard of yet."""
        return bool(self._open.get(session_id)) or session_id in self._completed

    async def next_completed(self, session_id: str) -> bool:
        """Wait until something is completed; False when nothing is under way."""
        while session_id not in self._completed:
            if not self._open.get(session_id):
                return False
            self._news.clear()
            await self._news.wait()
        return True

    async def settled(self, timeout: float | None = None) -> bool:
        """Wait until nothing is under way; False when time ran out."""
        mine = {task for task in self._tasks if task.get_loop() is asyncio.get_running_loop()}
        if not mine:
            return True
        _, waiting = await asyncio.wait(mine, timeout=timeout)
        return not waiting and await self.settled(timeout)

    def cancel(self, session_id: str = "") -> None:
        """Stop the work of a session, or of all of them."""
        for task in tuple(self._tasks):
            if not session_id or task.get_name() == session_id:
                task.cancel()

    def complete(self, ctx: ToolContext, value: object) -> None:
        result = self._failed(ctx, value) if isinstance(value, BaseException) else ToolResult.of(value)
        self._keep(self._finish(ctx, result), ctx)

    async def _until_done(self, ctx: ToolContext, work: Work) -> None:
        complete = Completion(self, ctx)
        try:
            complete(await Until(_awaited(work), None))  # cancelled, it has its grace and no more
        except asyncio.CancelledError:
            complete(self._failed(ctx, ToolError("its background work was cancelled", ErrorKind.CANCELLED)))
            raise
        except BaseException as error:  # SystemExit in a task would end the program
            complete(self._failed(ctx, error))

    def _keep(self, work: Any, ctx: ToolContext) -> None:
        task = asyncio.get_running_loop().create_task(work, name=ctx.scope.session_id)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _awaited(work: Work) -> object:
    return await (work() if callable(work) else work)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Completion:
    """The one end of a call's background work, from whatever thread it is told; later ones are ignored."""

    def __init__(self, owner: BackgroundWork, ctx: ToolContext) -> None:
        self._owner = owner
        self._ctx = ctx
        self._loop = home_loop()
        self._done = False
        self._lock = threading.Lock()

    def __call__(self, value: object) -> None:
        with self._lock:
            if self._done:
                log.debug("%s completed more than once; only the first counts", self._ctx.call.name)
                return
            self._done = True
        try:
            self._loop.call_soon_threadsafe(self._owner.complete, self._ctx, value)
        except RuntimeError:
            log.warning("%s completed after its event loop was closed; its result is lost", self._ctx.call.name)
