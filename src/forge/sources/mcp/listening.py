"""What a server sends without being asked, brought to the call that it belongs to: progress, logs, questions."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.secrets import Secrets
from forge.sources.mcp.listener import asked_during
from forge.sources.untrusted import one_line

if TYPE_CHECKING:
    from forge.core.provider import Provider

OFTEN = 20  # notes a second of one call, and log lines of one server; what is more is dropped
MOST_QUESTIONS = 10  # of one call
LONGEST = 500  # characters of a note
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING}

T = TypeVar("T")
log = logging.getLogger(__name__)


class Listening:
    """The connection's listener. Knows which calls are running; `key` is what each of them is known by."""

    def __init__(
        self, name: str, secrets: Secrets, changed: Callable[[], None], sampling: Provider | None = None
    ) -> None:
        self.name = name
        self.secrets = secrets
        self.sampling = sampling
        self._changed = changed
        self._calls: dict[object, _Call] = {}
        self._lines = _Often()

    @property
    def can_sample(self) -> bool:
        """Whether the server may be told that it can ask the model."""
        return self.sampling is not None

    @contextmanager
    def running(self, ctx: ToolContext) -> Iterator[object]:
        """While it runs, a call hears what the server says to it. What it was asked ends with it."""
        call = _Call(ctx)
        self._calls[call] = call
        try:
            yield call
        finally:
            del self._calls[call]
            for task in call.questions:
                task.cancel()

    def tools_changed(self) -> None:
        self._changed()

    def progress(self, call: object, done: float, total: float | None, message: str) -> None:
        running = self._calls.get(call)
        if running is None or not running.notes.may():
            return
        numbers = {
            key: value
            for key, value in (("done", done), ("total", total))
            if isinstance(value, int | float) and math.isfinite(value)
        }
        title = one_line(message, LONGEST) or " of ".join(f"{value:g}" for value in numbers.values())
        running.ctx.progress(title or "working", **numbers)

    def log(self, level: str, logger: str, text: str) -> None:
        """Shown with the call where there is only one that it can belong to; a line of the log otherwise."""
        line = one_line(text, LONGEST)
        if not line:
            return
        running = self._calls.get(asked_during.get())
        if running is None and len(self._calls) == 1 and logger not in ("stderr", "stdout"):
            (running,) = self._calls.values()
        if running is not None:
            if running.notes.may():
                running.ctx.progress(f"{self.name}: {line}", level=one_line(level, 20))
        elif self._lines.may():
            number = logging.DEBUG if logger in ("stderr", "stdout") else _LEVELS.get(level, logging.ERROR)
            log.log(number, "%s says: %s", self.name, self.secrets.mask_all(line))

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None
    ) -> Mapping[str, Any] | Literal[False] | None:
        running = self._asking_call()
        if running is None:
            log.warning("%s asks a question that belongs to no one call: declined", self.name)
            return None
        from forge.sources.mcp.questions import fill_in, visit

        if url:
            return await self._within(running, visit(self.name, running.ctx, message, url), False)
        return await self._within(running, fill_in(self.name, running.ctx, message, schema or {}), False)

    async def sample(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        refused = ToolError("the model is not asked for servers here", ErrorKind.PERMISSION)
        running = self._asking_call()
        if self.sampling is None or running is None:
            raise refused
        from forge.sources.mcp.questions import ask_model

        answer: Mapping[str, Any] | None = await self._within(
            running, ask_model(self.name, running.ctx, request, self.sampling), None
        )
        if answer is None:
            raise refused
        return answer

    def went_down(self, reason: str, seconds: float) -> None:
        log.warning("%s is down (%s): restarting in %g s", self.name, self.secrets.mask_all(one_line(reason)), seconds)

    def came_back(self) -> None:
        log.info("%s is back", self.name)

    def _asking_call(self) -> _Call | None:
        """The call behind a question. Where the server does not say, it must be clear whom to ask: the person of the
        only session that has calls, about the one that was made last."""
        found = self._calls.get(asked_during.get())
        if found is None:
            if len({one.ctx.scope.session_id for one in self._calls.values()}) != 1:
                return None
            *_, found = self._calls.values()
        found.asked += 1
        return found if found.asked <= MOST_QUESTIONS else None

    async def _within(self, call: _Call, work: Coroutine[Any, Any, T], gone: T) -> T:
        """A question ends with its call: nobody is left with one that nobody waits for. It is asked where the call was
        made, since that says who is asked; what the server sends arrives in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, context=call.context.copy())
        call.questions.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            return gone
        finally:
            call.questions.discard(task)


class _Call:
    def __init__(self, ctx: ToolContext) -> None:
        self.ctx = ctx
        self.context = copy_context()
        self.notes = _Often()
        self.asked = 0
        self.questions: set[asyncio.Future[Any]] = set()


class _Often:
    """Says yes so many times a second."""

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0

    def may(self) -> bool:
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= OFTEN
