"""Delivers events to listeners in order, so that no listener can harm the work it watches."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from forge.core.errors import is_interrupt
from forge.core.events import (
    Event,
    MessageReceived,
    ReasoningDelta,
    Retrying,
    RunFinished,
    TextDelta,
    ToolArgumentsDelta,
    ToolCompleted,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from forge.core.secrets import PieceMasker, Secrets

log = logging.getLogger(__name__)

_Piece = TextDelta | ReasoningDelta | ToolArgumentsDelta | ToolOutput
_PIECES = (TextDelta, ReasoningDelta, ToolArgumentsDelta, ToolOutput)
_ENDS = (ToolStarted, ToolFinished, ToolCompleted, TurnFinished, Retrying, MessageReceived, RunFinished)

Handler = Callable[[Any], Awaitable[None] | None]

SLOW = 0.05  # seconds: a plain handler that takes longer once is moved to a thread of its own
INBOX = 1_000  # events of other threads that wait for the loop
PATIENCE = 5.0  # seconds that a thread waits for room before it continues regardless
MOST_TEXTS = 1_000  # streamed texts that are open; the oldest ends when there are more
BACKLOG = 10_000  # events kept for a listener that does not keep up; older ones are dropped and counted


class ActivityStream:
    """Delivers events to listeners. A plain handler runs at once on the event loop's thread, an async one in its own
    task.

    Secrets, and texts that look like one, are masked before anyone sees an event.

    Args:
        secrets: further values to mask.

    Example:
        >>> activity, texts = ActivityStream(), []
        >>> stop = activity.subscribe(lambda event: texts.append(event.text), TextDelta)
        >>> _ = asyncio.run(Agent(Scripted("Hello!")).run("Hi", activity=activity))
        >>> texts
        ['Hello!']
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self.secrets = secrets if secrets is not None else Secrets()
        self.listening = False  # events are only built when someone listens
        self._listeners: tuple[_Listener, ...] = ()
        self._lock = threading.Lock()
        self._seq = 0
        self._loop: Any = None  # where events of worker threads are delivered
        self._loop_thread = 0
        self._inbox: deque[Event] = deque()  # from other threads
        self._room = threading.Event()
        self._draining = False
        self._pieces = _Pieces(self.secrets)

    def subscribe(self, handler: Handler, *types: type[Event] | str) -> Callable[[], None]:
        """Call `handler` for these event classes or wire names (all, if none or "*"). Returns the unsubscribe.

        A plain handler runs on the event loop's thread: it must not block. One that takes too long once continues in a
        thread of its own; an async handler always has a task of its own.
        """
        listener = _Listener(handler, types)
        with self._lock:
            self._listeners = (*self._listeners, listener)
            self.listening = True

        def unsubscribe() -> None:
            listener.stop()
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)
                self.listening = bool(self._listeners)

        return unsubscribe

    def attach(self) -> None:
        """Delivers events of other threads on the running loop from now on."""

        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()

    def emit(self, event: Event) -> None:
        """Delivers an event to all listeners. Never raises."""
        if not self.listening:
            return
        if self._loop is not None and threading.get_ident() != self._loop_thread and self._hand_over(event):
            return
        while self._inbox:  # what came from threads before comes first
            self._deliver(self._inbox.popleft())
        self._deliver(event)

    def _hand_over(self, event: Event) -> bool:
        """Passes an event from another thread to the loop, a few at a time. A thread faster than the loop waits."""
        end = time.monotonic() + PATIENCE
        while len(self._inbox) >= INBOX and time.monotonic() < end:
            self._room.clear()
            self._room.wait(0.1)
        self._inbox.append(event)
        try:
            if not self._draining:
                self._draining = True
                self._loop.call_soon_threadsafe(self._drain_some)
        except RuntimeError:  # that loop is over
            self._loop, self._draining = None, False
            self._inbox.clear()
            return False
        return True

    def _drain_some(self) -> None:
        for _ in range(100):
            if not self._inbox:
                break
            self._deliver(self._inbox.popleft())
        self._room.set()
        if self._inbox:
            self._loop.call_later(0, self._drain_some)  # after the timers that are due
        else:
            self._draining = False

    async def drain(self, timeout: float = 5.0) -> bool:
        """Waits until every listener has seen the events emitted so far; False when time ran out."""

        end = time.monotonic() + timeout
        await asyncio.sleep(0)
        while any(listener.waiting for listener in self._listeners):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.001)
        return True

    def _deliver(self, event: Event) -> None:
        for one in self._pieces.take(event):
            self._hand_out(one)

    def _hand_out(self, event: Event) -> None:
        try:
            event = event.masked(self.secrets.mask_everything)
        except Exception:  # custom arguments that cannot be read
            log.exception("an event of type %s could not be masked and was not delivered", event.type)
            return
        with self._lock:
            self._seq += 1
            event.seq = self._seq
        for listener in self._listeners:
            listener.take(event)

    def __repr__(self) -> str:
        return f"<ActivityStream, {'heard' if self.listening else 'without listeners'}>"


class _Pieces:
    """Holds back the end of streamed text that may begin a secret, until its continuation or its end comes."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._open: dict[tuple[str, ...], tuple[PieceMasker, Event]] = {}  # with the last event of each text

    def take(self, event: Event) -> list[Event]:
        """Returns the events to deliver now, with those of texts that end here first."""
        if isinstance(event, _PIECES):
            return self._take_piece(event)
        if not self._open or not isinstance(event, _ENDS):
            return [event]
        return [*self._end_texts(event), event]

    def _take_piece(self, event: _Piece) -> list[Event]:
        call = event.call.id if isinstance(event, ToolOutput | ToolArgumentsDelta) else ""
        key = (event.session, event.agent, event.task, event.type, call)
        masker = self._open[key][0] if key in self._open else PieceMasker(self._secrets)
        text = masker.take(event.text)
        self._open.pop(key, None)
        self._open[key] = (masker, event)
        ended = self._end(next(iter(self._open))) if len(self._open) > MOST_TEXTS else []
        return [*ended, replace(event, text=text)] if text or not event.text else ended

    def _end_texts(self, event: Event) -> list[Event]:
        call = getattr(event, "call", None)
        is_of_call = isinstance(event, ToolFinished | ToolCompleted)
        ended = []
        for key in [one for one in self._open if one[:3] == (event.session, event.agent, event.task)]:
            is_output = key[3] == ToolOutput.type
            if (
                isinstance(event, RunFinished)
                or (is_output and is_of_call and call is not None and key[4] == call.id)
                or (not is_output and not is_of_call)
            ):
                ended += self._end(key)
        return ended

    def _end(self, key: tuple[str, ...]) -> list[Event]:
        masker, last = self._open.pop(key)
        text = masker.end()
        return [replace(last, text=text)] if text else []  # type: ignore[call-arg]


class _Listener:
    """One handler, and the events it has not seen yet."""

    def __init__(self, handler: Handler, types: tuple[type[Event] | str, ...]) -> None:
        for wanted in types:
            if isinstance(wanted, str):
                _check_wire_name(wanted)
            elif not (isinstance(wanted, type) and issubclass(wanted, Event)):
                raise TypeError(f"subscribe({wanted!r}): pass event classes, wire names or '*'")
        self.handler = handler
        self.classes = tuple(wanted for wanted in types if not isinstance(wanted, str))
        self.names = frozenset(wanted for wanted in types if isinstance(wanted, str))
        self.everything = not types or "*" in self.names
        self.active = True
        self.is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self.backlog: deque[Event] = deque(maxlen=BACKLOG)
        self.busy = False
        self.dropped = 0
        self._task: Any = None
        self._thread_queue: queue.Queue[Event | None] | None = None

    @property
    def waiting(self) -> bool:
        return self.active and (
            self.busy or bool(self.backlog) or bool(self._thread_queue and self._thread_queue.unfinished_tasks)
        )

    @property
    def title(self) -> str:
        """The name of the handler's function for the log, without its address in memory."""
        name = getattr(self.handler, "__qualname__", None) or type(self.handler).__qualname__
        return str(name).partition(".<locals>")[0]

    def stop(self) -> None:
        self.active = False
        if self._thread_queue is not None:
            with contextlib.suppress(queue.Full):
                self._thread_queue.put_nowait(None)  # so that its thread sees it and ends

    def take(self, event: Event) -> None:
        if not self.active or not (self.everything or isinstance(event, self.classes) or event.type in self.names):
            return
        if self.is_async:
            if len(self.backlog) == BACKLOG:
                self.dropped += 1
                if self.dropped % 1_000 == 1:
                    log.warning("listener %s does not keep up; %d events dropped", self.title, self.dropped)
            self.backlog.append(event)
            self._start_task()
        elif self._thread_queue is not None:
            try:
                self._thread_queue.put_nowait(event)
            except queue.Full:
                log.warning("listener %s does not keep up; %s dropped", self.title, event.type)
        else:
            started = time.perf_counter()
            self._call(event)
            if time.perf_counter() - started > SLOW and self.active:
                self._move_to_thread()

    def _call(self, event: Event) -> None:
        try:
            awaited = self.handler(event)
            if inspect.isawaitable(awaited):  # a plain function that returns a coroutine is async after all
                self.is_async = True
                self._start_task(awaited)
        except BaseException as error:  # a listener must never break the work it watches, SystemExit included
            if is_interrupt(error):
                raise
            log.exception("listener %s failed on %s", self.title, event.type)

    def _move_to_thread(self) -> None:
        log.warning("listener %s takes over %d ms; it now runs in its own thread", self.title, SLOW * 1000)
        waiting = self._thread_queue = queue.Queue(BACKLOG)

        def work() -> None:
            while self.active:
                event = waiting.get()
                if event is not None and self.active:
                    self._call(event)
                waiting.task_done()

        threading.Thread(target=work, name="forge-listener", daemon=True).start()

    def _start_task(self, first: Any = None) -> None:
        if self.busy:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no loop yet: seen at the next event inside one
            return
        self.busy = True
        self._task = loop.create_task(self._see_backlog(first))

    async def _see_backlog(self, awaited: Any) -> None:
        try:
            if awaited is not None:
                await self._see(awaited)
            while self.backlog and self.active:
                await self._see(self.handler(self.backlog.popleft()))
        finally:
            self.busy = False

    async def _see(self, awaited: Any) -> None:
        try:
            await awaited
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the loop is closing
            log.exception("listener %s failed", self.title)


def _check_wire_name(name: str) -> None:
    known = {"*"}
    waiting = [Event]
    while waiting:
        kind = waiting.pop()
        known.add(kind.type)
        waiting += kind.__subclasses__()
    if name not in known:
        raise ValueError(f"subscribe({name!r}): no event has this name; known names: {', '.join(sorted(known))}")
