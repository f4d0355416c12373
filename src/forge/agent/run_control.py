"""A run under way: its events, messages to it, its end; and the runs of an agent that are in progress."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from itertools import islice
from threading import Lock
from typing import Any, Generic, Self, TypeVar

from forge.agent.result import RunResult
from forge.core.activity import ActivityStream
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import Event, EventsMissed
from forge.core.plain_values import brief

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT", bound=RunResult)

MOST_KEPT = 20_000  # events of a run that listeners can still get
MOST_WAITING = 100  # messages that wait for one run
LONGEST_MESSAGE = 1024 * 1024  # characters of one message


class StartedRun(ABC, Generic[ResultT]):
    """A run under way: `Agent.start` and `DurableAgent.start` return it, and both mean the same by it.

    `await run` waits for the result, as often as you like. A task that waits for a run can be cancelled without harm to
    the run: only `cancel` stops it. Nobody has to wait: a run goes on without a reference to it. If it fails with an
    exception, `await run` and `run.events()` raise it; if nobody does either, asyncio logs the exception.

    A durable run may also wait for a person. Then `await run` returns a result with the reason "waiting", and `events`
    ends; after the answer, both can be used again.

    Use it in the event loop in which the run was started.

    Example:
        >>> async def main():
        ...     run = Agent(Scripted("Hello!")).start("Hi")
        ...     texts = [event.text async for event in run.events() if isinstance(event, TextDelta)]
        ...     return texts, (await run).reason
        >>> asyncio.run(main())
        (['Hello!'], 'answer')
    """

    id: str
    session: str  # the session of the run

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """True once the run has ended, as far as this process knows."""

    @abstractmethod
    def events(self) -> AsyncGenerator[Event, None]:
        """Yields every event from the beginning, then those that come, until the run ends.

        Any number of listeners may do this, at any time. Events that are no longer kept are counted by an
        `EventsMissed` event in their place.
        """

    @abstractmethod
    def send(self, text: str) -> Awaitable[None]:
        """Sends a message to the run: the model sees it before its next turn.

        It is sent at once; to await it is to wait until it is kept, which matters for durable runs. Raises `ToolError`
        for a run that is over, and for a text that a guardrail denies.
        """

    @abstractmethod
    def cancel(self) -> Self:
        """Stops the run with its tools and their programs. A run that is over stays as it is.

        Returns the run: `await run.cancel()` is its result, with the reason "cancelled". What the run did is part of
        its messages, and every call in them has a result, so that the conversation can be continued.
        """

    @abstractmethod
    def __await__(self) -> Generator[Any, None, ResultT]:
        """Waits for the result."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}, {'over' if self.is_over else 'in progress'}>"


class LocalRun(StartedRun[ResultT]):
    """A run of this process, in a task of its own."""

    def __init__(
        self,
        progress: RunInProgress,
        work: Coroutine[Any, Any, ResultT],
        activity: ActivityStream,
        say: Callable[[str], None],
        running: set[LocalRun[Any]],
    ) -> None:
        """`say` sends a message to it. `running` has it until it is over."""
        self.id, self.session = progress.id, progress.session
        self._progress, self._say = progress, say
        self._events = EventLog()
        self._stop_listening = activity.subscribe(self._events.add)
        self._task = asyncio.get_running_loop().create_task(work, name=f"forge run {progress.id}")
        self._listed_in = (running, _RUNNING)
        for runs in self._listed_in:
            runs.add(self)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[ResultT]) -> None:
        for runs in self._listed_in:
            runs.discard(self)
        self._stop_listening()
        self._events.end()
        if task.cancelled():
            log.warning("the run %s was stopped from outside, such as by the end of its event loop", self.id)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    @property
    def is_here(self) -> bool:
        """True in the event loop that works on it."""
        return self._task.get_loop() is asyncio.get_running_loop()

    async def events(self) -> AsyncGenerator[Event, None]:
        self._check_loop()
        async for event in self._events.read():
            yield event
        self._task.result()

    def send(self, text: str) -> Awaitable[None]:
        self._say(text)
        return _Done()

    def cancel(self) -> Self:
        self._progress.stop()
        return self

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self._wait().__await__()

    async def _wait(self) -> ResultT:
        await self.ended()
        return self._task.result()

    async def ended(self) -> None:
        """Waits until it is over, without its result."""
        self._check_loop()
        await asyncio.wait([self._task])

    def _check_loop(self) -> None:
        if not self.is_here:
            message = f"the run {self.id} was awaited in another event loop than the one it was started in"
            raise RuntimeError(f"{message}. Wait for it there; send and cancel work from everywhere.")


_RUNNING: set[LocalRun[Any]] = set()
"""Keeps runs that nobody else has: a task that nothing refers to is collected."""


class _Done:
    """Something that may be awaited, and is over."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class EventLog:
    """The events of a run, for any number of listeners: the latest are kept."""

    def __init__(self) -> None:
        self._kept: deque[Event] = deque(maxlen=MOST_KEPT)
        self._count = 0  # of all events so far
        self._is_over = False
        self._listening: set[asyncio.Event] = set()

    def add(self, event: Event) -> None:
        self._kept.append(event)
        self._count += 1
        for news in self._listening:
            news.set()

    def end(self) -> None:
        self._is_over = True
        for news in self._listening:
            news.set()

    async def read(self) -> AsyncGenerator[Event, None]:
        """Yields all events until the end, and says where some are missing."""
        seen, news = 0, asyncio.Event()
        self._listening.add(news)
        try:
            while True:
                news.clear()
                first = self._count - len(self._kept)
                if seen < first:
                    yield EventsMissed(first - seen)
                    seen = first
                    continue
                if seen == self._count and self._is_over:
                    return
                found = list(islice(self._kept, seen - first, None))
                seen = self._count
                for event in found:
                    yield event
                if not found:
                    await news.wait()
        finally:
            self._listening.discard(news)


# The runs of an agent that are in progress: what a person says to them, and how they are stopped. Any thread may do it.


class RunInProgress:
    """A run of this process, from its start to the end of its last turn."""

    def __init__(self, session: str) -> None:
        self.session, self.id = session, os.urandom(4).hex()
        self.is_working = False  # it has begun, and does not wait for another run of its session
        self._messages: deque[str] = deque()
        self._lock = Lock()
        self._is_over = self._is_stopped = self._is_taken = False
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancelling = 0  # cancellations that its task had before

    def begin(self) -> None:
        """Notes the current task as the one that works on it."""
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        self._cancelling = self._task.cancelling() if self._task is not None else 0

    def put(self, text: str) -> None:
        """Adds a message for the next turn. Raises `ToolError`."""
        if not isinstance(text, str) or not text.strip():
            message = f"sending a message to a run: {brief(text)} is no text"
            raise ToolError(message, ErrorKind.VALIDATION, "Send a text that says something.")
        with self._lock:
            if self._is_over:
                message = f"sending a message to the run {self.id}: it is over"
                raise ToolError(message, ErrorKind.NOT_FOUND, "Start a run: agent.run(prompt).")
            if len(self._messages) >= MOST_WAITING or len(text) > LONGEST_MESSAGE:
                may_wait = f"at most {MOST_WAITING} messages of {LONGEST_MESSAGE:,} characters may wait"
                message = f"sending a message to a run: {may_wait}"
                raise ToolError(message, ErrorKind.USER, "Wait until the run has received the earlier ones.")
            self._messages.append(text)

    def take(self) -> list[str]:
        """Returns the waiting messages, each once."""
        if not self._messages:
            return []
        with self._lock:
            found = [*self._messages]
            self._messages.clear()
        return found

    def withdraw(self, text: str) -> bool:
        """Removes the newest waiting message with this text; returns whether there was one."""
        with self._lock:
            for at in reversed(range(len(self._messages))):
                if self._messages[at] == text:
                    del self._messages[at]
                    return True
        return False

    def stop(self) -> None:
        """Stops the run, wherever it is. Does nothing if it is over or stopped already."""
        with self._lock:
            if self._is_over or self._is_stopped:
                return
            self._is_stopped = True
        if self._loop is not None and not self._loop.is_closed():  # else it has not begun, or its loop has ended
            self._loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        if not self._is_over and self._task is not None:
            self._task.cancel()

    def take_stop(self) -> bool:
        """Returns whether a person has stopped the run, and nothing else has cancelled its task."""
        if not self._is_stopped:
            return False
        if not self._is_taken and self._task is not None and self._task.cancelling() > self._cancelling:
            self._is_taken = True
            self._task.uncancel()
        return self._task is None or self._task.cancelling() <= self._cancelling

    def end(self) -> list[str]:
        """Takes no more messages. Returns those that nobody has received."""
        with self._lock:
            self._is_over = True
        return self.take()


class RunsInProgress:
    """The runs of an agent that are in progress."""

    def __init__(self) -> None:
        self._runs: dict[str, RunInProgress] = {}  # by id
        self._lock = Lock()

    def add(self, run: RunInProgress) -> None:
        with self._lock:
            self._runs[run.id] = run

    def remove(self, run: RunInProgress) -> None:
        with self._lock:
            self._runs.pop(run.id, None)

    def find(self, session: str | None) -> list[RunInProgress]:
        """Returns the runs of a session; for None, all. Raises `ValueError` for "", which names no session."""
        if session == "":
            raise ValueError(
                'finding a run in progress: session="" names no session; pass its name, or leave session= out where '
                "only one run is in progress"
            )
        with self._lock:
            return [run for run in self._runs.values() if session is None or run.session == session]

    def choose(self, session: str | None) -> RunInProgress:
        """Returns the run that a message is for. Raises `ToolError` where there is none, or more than one."""
        found = self.find(session)
        found = [run for run in found if run.is_working] or found
        if len(found) == 1:
            return found[0]
        if found:
            message = f"sending a message to a run: {len(found)} runs are in progress"
            where = f" in the session {session[:80]!r}" if session else ""
            hint = "Name the session of one: agent.send(text, session=…)." if not session else ""
            hint = hint or "Send it to the run itself: run = agent.start(prompt), then run.send(text)."
            raise ToolError(f"{message}{where}", ErrorKind.USER, hint)
        which = f"the session {session[:80]!r} has" if session else "the agent has"
        message = f"sending a message to a run: {which} no run in progress"
        raise ToolError(message, ErrorKind.NOT_FOUND, "Start a run: agent.run(prompt).")
