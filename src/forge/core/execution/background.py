"""Runs work after a tool returned: each piece is tracked and completed exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

from forge.core.context import ToolContext, Work
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.deadline import Deadline
from forge.core.execution.threads import current_loop
from forge.core.messages import ToolCall
from forge.core.result import ToolResult

log = logging.getLogger("forge.tools")

MOST_COMPLETED = 1_000  # completed results of a session that no loop has taken

Finish = Callable[[ToolContext, ToolResult], Awaitable[None]]


class WorkState(Enum):
    """The life of one piece of work. `ctx.background(…)` begins it as EXPECTED, `ctx.completion()` as OFFERED.

    | state     | its completion is called | nothing holds the completion | its call returns pending | another result |
    |-----------|--------------------------|------------------------------|--------------------------|----------------|
    | OFFERED   | TOLD                     | DROPPED                      | EXPECTED                 | CLOSED         |
    | TOLD      |                          |                              | COMPLETED                | CLOSED         |
    | DROPPED   |                          |                              | COMPLETED, with an error | CLOSED         |
    | EXPECTED  | COMPLETED                | COMPLETED, with an error     |                          |                |
    | COMPLETED |                          |                              |                          |                |
    | CLOSED    |                          |                              |                          |                |

    An empty field changes nothing. A call that is tried again is offered another completion; so if a call has others,
    its DROPPED work becomes CLOSED. COMPLETED work passes the steps, then it is CLOSED: `BackgroundWork` no longer
    holds its record.
    """

    OFFERED = auto()  # its call runs, and may need no completion
    TOLD = auto()  # its call runs, and the value waits for its end
    DROPPED = auto()  # its call runs, and nothing can complete the work
    EXPECTED = auto()  # its call is over
    COMPLETED = auto()  # its result is there
    CLOSED = auto()  # its result is delivered, or its call returned another one


class OpenWork:
    """Work that continues, or may continue, after its call returned."""

    __slots__ = ("ctx", "loop", "state", "told")

    def __init__(self, ctx: ToolContext, state: WorkState) -> None:
        self.ctx = ctx
        self.loop = current_loop()  # receives the result
        self.state = state
        self.told: object = None  # the value, or the exception, that waits for the end of the call

    @property
    def session(self) -> str:
        return self.ctx.scope.session_id

    @property
    def key(self) -> tuple[str, str]:
        """The session and the call that the work belongs to."""
        return self.ctx.scope.session_id, self.ctx.call.id


class _EndedSession(NamedTuple):
    """The work that was open when a session ended, and what is called once it is over."""

    open: set[OpenWork]
    then: Callable[[], None]


class BackgroundWork:
    """An executor's open work. `finish` receives every result, once; `failed` turns an exception into one."""

    def __init__(self, finish: Finish, failed: Callable[[ToolContext, BaseException], ToolResult]) -> None:
        self._finish = finish
        self._failed = failed
        # by session and call id; asyncio keeps only weak references
        self._tasks: dict[asyncio.Task[Any], tuple[str, str]] = {}
        self._open: dict[str, set[OpenWork]] = {}  # by session
        self._lock = threading.Lock()
        self._completed: dict[str, deque[tuple[ToolCall, ToolResult]]] = {}  # session -> results to be taken
        self._ended: dict[str, _EndedSession] = {}  # by session; another one may have its name meanwhile
        self._waiting: set[asyncio.Future[None]] = set()
        self.offered: dict[tuple[str, str], set[OpenWork]] = {}  # of calls that run: by session and call id

    def start(self, ctx: ToolContext, work: Work) -> None:
        if not callable(work) and not inspect.isawaitable(work):
            raise TypeError(f"background({work!r}): pass a coroutine, or a function that returns one")
        log.info("%s continues in the background", ctx.call.name)
        complete, loop = Completion(self, self._add(ctx, WorkState.EXPECTED)), current_loop()
        self.end_call(ctx, pending=False)  # the call ends with this work: completions that it was offered are closed
        if loop is _running_loop():
            self._keep(self._run_until_done(work, complete), ctx)
        else:  # from the thread of a plain tool
            loop.call_soon_threadsafe(lambda: self._keep(self._run_until_done(work, complete), ctx))

    def completion(self, ctx: ToolContext) -> Completion:
        """Returns a completion. It is open until called or dropped, or until its call returns another result."""
        work = self._add(ctx, WorkState.OFFERED)
        self.offered.setdefault(work.key, set()).add(work)
        return Completion(self, work)

    def _add(self, ctx: ToolContext, state: WorkState) -> OpenWork:
        work = OpenWork(ctx, state)
        with self._lock:  # the thread of a plain tool may add one while the loop closes another
            self._open.setdefault(work.session, set()).add(work)
        return work

    def end_call(self, ctx: ToolContext, *, pending: bool) -> None:
        """Ends a call that was offered a completion. Unless its result is pending, the completion is closed."""
        works = self.offered.pop((ctx.scope.session_id, ctx.call.id), set())
        has_others = any(work.state is not WorkState.DROPPED for work in works)
        for work in works:
            if not pending or (work.state is WorkState.DROPPED and has_others):
                self._close(work)
            elif work.state is WorkState.OFFERED:
                work.state = WorkState.EXPECTED
            else:
                self._finish_with(work, work.told)

    def keep_completed(self, ctx: ToolContext, result: ToolResult) -> None:
        """Stores a result for a loop to take. Results that no loop takes are forgotten, oldest first."""
        session = ctx.scope.session_id
        ended = self._ended.get(session)
        is_of_ended = ended is not None and any(work.ctx is ctx for work in tuple(ended.open))
        if not is_of_ended:  # no loop takes the result of an ended session
            self._completed.setdefault(session, deque(maxlen=MOST_COMPLETED)).append((ctx.call, result))
            self._wake_waiters()

    def take_completed(self, session_id: str) -> Iterable[tuple[ToolCall, ToolResult]]:
        """Returns the results completed since the last call."""
        return self._completed.pop(session_id, ())

    def take_call(self, session_id: str, call_id: str) -> ToolResult | None:
        """Returns the completed result of one call; None if there is none yet."""
        for entry in self._completed.get(session_id, ()):
            if entry[0].id == call_id:
                self._completed[session_id].remove(entry)
                if not self._completed[session_id]:
                    del self._completed[session_id]
                return entry[1]
        return None

    async def await_call(self, session_id: str, call_id: str) -> ToolResult:
        """Waits until the work of one call is completed, and takes its result."""
        while (found := self.take_call(session_id, call_id)) is None:
            await self._wait_for_change(None)
        return found

    def is_open(self, session_id: str) -> bool:
        """Returns whether work is open, or completed and not taken yet."""
        return bool(self._open.get(session_id)) or session_id in self._completed

    async def next_completed(self, session_id: str) -> bool:
        """Waits until some work is completed; False when none is open."""
        while session_id not in self._completed:
            if not self._is_expected_here(session_id):
                return False
            await self._wait_for_change(None)
        return True

    async def settled(self, timeout: float | None = None) -> bool:
        """Waits until no work is open; False when time ran out."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            left = None if until is None else until - loop.time()
            mine = {task for task in tuple(self._tasks) if task.get_loop() is loop}
            if not mine and not self._is_expected_here():
                return True
            if left is not None and left <= 0:
                return False
            if mine:
                await asyncio.wait(mine, timeout=left)
            else:
                await self._wait_for_change(left)

    def cancel(self, session_id: str = "") -> None:
        """Cancels the work of a session, or of all of them."""
        for task, (session, _) in tuple(self._tasks.items()):
            if not session_id or session == session_id:
                task.cancel()

    def cancel_call(self, session_id: str, call_id: str) -> None:
        """Cancels the work of one call."""
        for task, key in tuple(self._tasks.items()):
            if key == (session_id, call_id):
                task.cancel()

    def forget(self, session_id: str, then: Callable[[], None]) -> None:
        """Ends a session: results of its open work are not stored. `then` is called once that work is over, if any."""
        self._completed.pop(session_id, None)
        with self._lock:
            works = self._open.pop(session_id, set())
            if (before := self._ended.get(session_id)) is not None:
                works |= before.open
            if works:
                self._ended[session_id] = _EndedSession(works, then)

    def complete(self, work: OpenWork, value: object) -> None:
        """Takes the value, or the exception, of a piece of work."""
        if work.state is WorkState.OFFERED:
            work.state, work.told = WorkState.TOLD, value
        elif work.state is WorkState.EXPECTED:
            self._finish_with(work, value)
        else:
            log.debug("%s completed after its call returned another result, which counts", work.ctx.call.name)

    def drop(self, work: OpenWork) -> None:
        """Notes that no code holds the completion of a piece of work any more."""
        message = "its background work was dropped: nothing can report its result any more"
        error = ToolError(message, ErrorKind.SYSTEM, "Check what it already did before you repeat it.")
        if work.state is WorkState.OFFERED:
            work.state, work.told = WorkState.DROPPED, error
        elif work.state is WorkState.EXPECTED:
            self._finish_with(work, error)

    def _finish_with(self, work: OpenWork, value: object) -> None:
        work.state, work.told = WorkState.COMPLETED, None
        result = self._failed(work.ctx, value) if isinstance(value, BaseException) else ToolResult.of(value)
        self._keep(self._finish_and_close(work, result), work.ctx)

    async def _finish_and_close(self, work: OpenWork, result: ToolResult) -> None:
        try:
            await self._finish(work.ctx, result)
        finally:
            self._close(work)

    def _is_expected_here(self, session_id: str | None = None) -> bool:
        """Returns whether this loop receives a result of the session, or of any. Those for other loops never arrive."""
        here = asyncio.get_running_loop()
        with self._lock:  # other threads may add work meanwhile
            if session_id is not None:
                return any(work.loop is here for work in self._open.get(session_id, ()))
            ended = [session.open for session in self._ended.values()]
            return any(work.loop is here for works in (*self._open.values(), *ended) for work in works)

    def _close(self, work: OpenWork) -> None:
        work.state = WorkState.CLOSED
        with self._lock:
            works = self._open.get(work.session, set())
            works.discard(work)
            if not works:
                self._open.pop(work.session, None)
            if (ended := self._ended.get(work.session)) is not None:
                ended.open.discard(work)
        self._run_when_over(work.session)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiting in tuple(self._waiting):
            with contextlib.suppress(RuntimeError):  # its loop is closed
                waiting.get_loop().call_soon_threadsafe(_wake, waiting)

    def _run_when_over(self, session: str) -> None:
        with self._lock:
            ended = self._ended.get(session)
            if ended is None or ended.open:
                return
            del self._ended[session]
        ended.then()

    async def _wait_for_change(self, timeout: float | None) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=timeout)
        finally:
            self._waiting.discard(waiting)
            waiting.cancel()

    async def _run_until_done(self, work: Work, complete: Completion) -> None:
        try:
            complete(await Deadline(_await_work(work), None))  # no deadline, but a grace after a cancellation
        except asyncio.CancelledError:
            complete(ToolError("its background work was cancelled", ErrorKind.CANCELLED))
            raise
        except BaseException as error:  # SystemExit in a task would end the program
            complete(error)

    def _keep(self, work: Any, ctx: ToolContext) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = (ctx.scope.session_id, ctx.call.id)
        task.add_done_callback(self._tasks.pop)


async def _await_work(work: Work) -> object:
    return await (work() if callable(work) else work)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Completion:
    """Completes the background work of a call. Any thread may call it; only the first call counts."""

    def __init__(self, owner: BackgroundWork, work: OpenWork) -> None:
        self._owner = owner
        self._work = work
        self._is_called = False
        self._lock = threading.Lock()

    def __call__(self, value: object) -> None:
        name = self._work.ctx.call.name
        with self._lock:
            if self._is_called:
                log.debug("%s completed more than once; only the first counts", name)
                return
            self._is_called = True
        try:
            self._work.loop.call_soon_threadsafe(self._owner.complete, self._work, value)
        except RuntimeError:
            log.warning("%s completed after its event loop was closed; its result is lost", name)

    def __del__(self) -> None:
        if not self._is_called:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
                self._work.loop.call_soon_threadsafe(self._owner.drop, self._work)
