"""Crashes an attempt at every point around a call, in this process: before and after each statement and the effect.

Only the end of a process is simulated. All else is Forge, with a SQLite database, in one thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import sqlalchemy as sa

from chaos.crashes.score import Score
from forge.agent.agent import Agent
from forge.core.context import Scope, ToolContext
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.result import Reconciled
from forge.core.tool import tool
from forge.durable.engine import reconcile
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.attempt import current_attempt
from forge.durable.engine.engine import make_context
from forge.durable.engine.segment import perform
from forge.durable.engine.start_segments import Starter
from forge.durable.store import NewRun, RunStore
from forge.permissions.questions import approve_all

CALLS = 2  # of a run
MOST_CRASHES = 6  # of a run
UNKNOWN = "its state is unknown"


class Crash(BaseException):
    """The process ended here. What it still does is not seen by anybody."""


class CrashInStatement(Exception):
    """The same inside a transaction: SQLAlchemy rolls back only after errors of this kind."""


class Storm:
    """The points at which attempts crash, and what came of their calls."""

    def __init__(self, store: RunStore, chance: random.Random, *, reconciles: bool) -> None:
        self.store, self.chance = store, chance
        self.effects: Counter[str] = Counter()
        self.dead: set[str] = set()  # attempts that crashed
        self.crashes = 0
        self.points: Counter[str] = Counter()  # by name: where attempts crashed
        self._starter = Starter(store)
        self._starter.prepare_engine()
        self._passed: dict[str, int] = {}  # points of an attempt so far
        self._at: dict[str, int] = {}  # the point at which it crashes
        self.planned = 0  # for the next attempt; 0: none
        self._agent = self._make_agent(reconciles=reconciles)

    def point(self, name: str) -> None:
        """Crashes here, if it is the turn of this point. A dead attempt never gets further."""
        running = current_attempt.get()
        if running is None:
            return
        token = running.token
        if token in self.dead:
            raise Crash
        if token not in self._at:
            self._at[token], self.planned = self.planned, 0
        self._passed[token] = passed = self._passed.get(token, 0) + 1
        if passed == self._at[token]:
            self.dead.add(token)
            self.crashes += 1
            self.points[name] += 1
            raise Crash

    def charge(self, card: str) -> str:
        self.point("before the effect")
        self.effects[card] += 1
        self.point("after the effect")
        return f"charged {card}"

    def find(self, key: str, arguments: Mapping[str, Any]) -> Reconciled:
        self.point("while the tool is asked")
        card = f"{key.split('/')[0]}/{arguments['number']}"
        return Reconciled.done(f"charged {card}") if self.effects[card] else Reconciled.not_done()

    def _make_agent(self, *, reconciles: bool) -> Agent:
        @tool(permissions={"write"}, reconcile=self.find if reconciles else None)
        async def charge(ctx: ToolContext, number: int) -> str:
            """Charge a card, which must happen once."""
            return self.charge(f"{ctx.scope.session_id}/{number}")

        agent = Agent(Asking(self), tools=[charge], approve=approve_all)
        return prepare_for_worker(agent, Scope(workspace=Path(tempfile.gettempdir())))

    async def run(self, name: str, crashes: list[int]) -> int:
        """Runs to the end, with a crash at these points of its attempts, one each; returns how many happened."""
        new = NewRun(id=name, version="0", prompt="go", messages=(Message("user", "go"),))
        self._starter.start(self.store.create(new))
        before = self.crashes
        for planned in [*crashes, 0]:
            self.planned = planned
            try:
                await asyncio.create_task(perform(make_context(self.store, [self._agent], worker="w"), name, 1))
                break
            except Crash:
                continue
        return self.crashes - before

    def score(self, name: str) -> Score:
        """Counts what came of a run that is over."""
        run = self.store.get(name)
        told = [message.text for message in self.store.messages(name) if message.role == "tool"]
        unknown = sum(UNKNOWN in text for text in told)
        times = [self.effects[f"{name}/{number}"] for number in range(CALLS)]
        settled = sum(not count and UNKNOWN not in text for count, text in zip(times, told, strict=False))
        missing = CALLS - len(told) if run.status == "finished" else CALLS
        return Score(
            calls=CALLS,
            duplicates=sum(max(0, one - 1) for one in times),
            lost=settled + missing,
            unknown=unknown,
        )


class Asking:
    """A model that asks for one call a turn."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.storm.point("while the model answers")
        said = sum(message.role == "assistant" for message in request.messages)
        if said >= CALLS:
            yield Message("assistant", "done")
            return
        yield Message("assistant", "", tool_calls=(ToolCall("charge", {"number": said}, f"c{said}"),))


@contextmanager
def _simulated(storm: Storm) -> Iterator[None]:
    """Puts the storm in the place of the processes, and around each statement."""
    database = storm.store.database
    engine = database.engine

    def see(when: str) -> Callable[..., None]:
        def hear(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
            if not statement.startswith(("BEGIN", "PRAGMA")):  # one that is half begun could not be rolled back
                try:
                    storm.point(f"{when} {' '.join(statement.split()[:3]).lower()}")
                except Crash:
                    raise CrashInStatement from None

        return hear

    def guard(run: Callable[..., Any], after: str = "") -> Callable[..., Any]:
        def guarded(work: Any, **more: Any) -> Any:
            try:
                found = run(work, **more)
            except CrashInStatement:
                raise Crash from None
            if after:
                storm.point(after)
            return found

        return guarded

    before, after = see("before"), see("after")
    engine_modules = [module for name, module in sys.modules.items() if name.startswith("forge.durable.engine.")]
    sa.event.listen(engine, "before_cursor_execute", before)
    sa.event.listen(engine, "after_cursor_execute", after)
    with (
        patch.object(reconcile, "mark_process", _mark_attempt),
        patch.object(reconcile, "has_ended", storm.dead.__contains__),
        patch.object(database, "write", guard(database.write, "after a commit")),
        patch.object(database, "write_once", guard(database.write_once, "after a step was recorded")),
        patch.object(database, "read", guard(database.read)),
        patch.object(storm.store, "add_events_of", lambda batch: {}),  # nothing depends on events
        ExitStack() as stack,
    ):
        for module in engine_modules:
            if hasattr(module, "in_thread"):
                stack.enter_context(patch.object(module, "in_thread", _run_here))
        yield
    sa.event.remove(engine, "before_cursor_execute", before)
    sa.event.remove(engine, "after_cursor_execute", after)


async def _run_here(function: Callable[[], Any]) -> Any:
    """Runs in this thread what Forge runs in another one, so that the storm does not wait for threads."""
    await asyncio.sleep(0)
    return copy_context().run(function)


def _trust_the_system(connection: Any, record: Any) -> None:
    """Does not wait for the disk: only attempts end here, never the machine."""
    connection.execute("PRAGMA synchronous=OFF")


def _mark_attempt() -> str:
    running = current_attempt.get()
    assert running is not None
    return running.token


@contextmanager
def _without_log() -> Iterator[None]:
    log = logging.getLogger("forge")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


class Injected(NamedTuple):
    """The outcome of the storm."""

    crashes: int
    score: Score
    points: Counter[str]


async def inject(points: int, *, seed: int = 0, reconciles: bool = True, seconds: float = float("inf")) -> Injected:
    """Runs until this many crashes were injected: first at each point once, then at random ones, up to six a run."""
    ends = time.monotonic() + seconds
    chance = random.Random(seed)
    total = Score()
    with (
        _without_log(),
        tempfile.TemporaryDirectory() as place,
        RunStore(f"sqlite:///{place}/storm.db") as store,
    ):
        store.prepare()
        sa.event.listen(store.database.engine, "connect", _trust_the_system)
        store.database.engine.dispose()  # connections from before the listener
        storm = Storm(store, chance, reconciles=reconciles)
        with _simulated(storm):
            number, last = 0, 1_000
            while storm.crashes < points and time.monotonic() < ends:
                number += 1
                first = number if number <= last else chance.randrange(1, last + 1)
                more = [chance.randrange(1, last + 1) for _ in range(chance.randrange(MOST_CRASHES))]
                name = f"r{number}"
                if not await storm.run(name, [first, *more] if number > last else [first]) and number <= last:
                    last = max(1, number - 1)  # no attempt has that many points
                total = total.plus(storm.score(name))
        return Injected(storm.crashes, total, storm.points)
