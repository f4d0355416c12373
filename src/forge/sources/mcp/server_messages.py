"""Assigns a server's progress, log messages and questions to the call that they belong to."""

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
from forge.sources.mcp.listener import current_call_key
from forge.sources.untrusted import one_line

if TYPE_CHECKING:
    from forge.core.provider import Provider

OFTEN = 20  # notes per second of one call, and log lines of one server; more are dropped
MOST_QUESTIONS = 10  # of one call
LONGEST = 500  # characters of a note
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING}

T = TypeVar("T")
log = logging.getLogger(__name__)


class CallListener:
    """The connection's listener. It tracks the running calls by key."""

    def __init__(
        self, name: str, secrets: Secrets, changed: Callable[[], None], sampling: Provider | None = None
    ) -> None:
        self.name = name
        self.secrets = secrets
        self.sampling = sampling
        self._changed = changed
        self._calls: dict[object, _RunningCall] = {}
        self._lines = _PerSecondLimit()

    @property
    def can_sample(self) -> bool:
        """True if the server may ask the model."""
        return self.sampling is not None

    @contextmanager
    def track_call(self, ctx: ToolContext) -> Iterator[object]:
        """Registers a call while it runs, to receive the server's events. Its open questions end with it."""
        call = _RunningCall(ctx)
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
        if running is None or not running.notes.admits():
            return
        numbers = {
            key: value
            for key, value in (("done", done), ("total", total))
            if isinstance(value, int | float) and math.isfinite(value)
        }
        title = one_line(message, LONGEST) or " of ".join(f"{value:g}" for value in numbers.values())
        running.ctx.progress(title or "working", **numbers)

    def log(self, level: str, logger: str, text: str) -> None:
        """Shows a message with its call if the call is unambiguous; otherwise logs it."""
        line = one_line(text, LONGEST)
        if not line:
            return
        running = self._calls.get(current_call_key.get())
        if running is None and len(self._calls) == 1 and logger not in ("stderr", "stdout"):
            (running,) = self._calls.values()
        if running is not None:
            if running.notes.admits():
                running.ctx.progress(f"{self.name}: {line}", level=one_line(level, 20))
        elif self._lines.admits():
            number = logging.DEBUG if logger in ("stderr", "stdout") else _LEVELS.get(level, logging.ERROR)
            log.log(number, "%s says: %s", self.name, self.secrets.mask_all(line))

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None
    ) -> Mapping[str, Any] | Literal[False] | None:
        running = self._find_asking_call()
        if running is None:
            log.warning("%s asks a question that does not belong to a single call: declined", self.name)
            return None
        from forge.sources.mcp.questions import fill_in, visit

        if url:
            return await self._ask_within(running, visit(self.name, running.ctx, message, url), False)
        return await self._ask_within(running, fill_in(self.name, running.ctx, message, schema or {}), False)

    async def sample(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        refused = ToolError("servers cannot ask the model here", ErrorKind.PERMISSION)
        running = self._find_asking_call()
        if self.sampling is None or running is None:
            raise refused
        from forge.sources.mcp.questions import ask_model

        answer: Mapping[str, Any] | None = await self._ask_within(
            running, ask_model(self.name, running.ctx, request, self.sampling), None
        )
        if answer is None:
            raise refused
        return answer

    def went_down(self, reason: str, seconds: float) -> None:
        log.warning("%s is down (%s): restarting in %g s", self.name, self.secrets.mask_all(one_line(reason)), seconds)

    def came_back(self) -> None:
        log.info("%s is available again", self.name)

    def _find_asking_call(self) -> _RunningCall | None:
        """Returns the call behind a question. If the server does not name it, the latest call of the only session with
        calls; None if there are several sessions, since it is unclear whom to ask."""
        found = self._calls.get(current_call_key.get())
        if found is None:
            if len({one.ctx.scope.session_id for one in self._calls.values()}) != 1:
                return None
            *_, found = self._calls.values()
        found.question_count += 1
        return found if found.question_count <= MOST_QUESTIONS else None

    async def _ask_within(self, call: _RunningCall, work: Coroutine[Any, Any, T], gone: T) -> T:
        """Asks a question that ends with its call. It runs in the context of the call, which determines who is asked;
        the server's messages arrive in another task."""
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


class _RunningCall:
    def __init__(self, ctx: ToolContext) -> None:
        self.ctx = ctx
        self.context = copy_context()
        self.notes = _PerSecondLimit()
        self.question_count = 0
        self.questions: set[asyncio.Future[Any]] = set()


class _PerSecondLimit:
    """A rate limit of `OFTEN` per second."""

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0

    def admits(self) -> bool:
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= OFTEN
