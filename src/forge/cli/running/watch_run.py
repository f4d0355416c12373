"""A run that is kept, worked on by this process and shown to a person: its events, its questions, its end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from forge.agent.agent import Agent
from forge.cli.options import Options
from forge.cli.refusal import Refusal, refusals
from forge.cli.running.chat_session import RunFlags, ask_in_place, opened_agent, view_of
from forge.cli.running.event_log import audited
from forge.cli.running.loop_thread import LoopThread
from forge.cli.running.next_commands import Commands
from forge.cli.running.waits import result_so_far, what_it_waits_for
from forge.cli.terminal.ending import Ending
from forge.cli.terminal.screen import Screen
from forge.core.activity import ActivityStream
from forge.core.errors import ToolError
from forge.core.events import RunFinished
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.durable.client import Runs
from forge.durable.client.following import Following
from forge.durable.engine.attempt import ATTEMPTS
from forge.durable.store.rows import RunInfo
from forge.durable.worker import Worker
from forge.project.project import Project
from forge.project.runs.durable_runs import (
    is_own,
    keep,
    models_for,
    queue_limits,
    request_of,
)
from forge.project.runs.stored_conversation import session_store

LOOK = 0.1  # seconds between two looks at what the run did
LOOK_FOR_QUESTIONS = 0.5  # … at what it asks while it is at work
GRACE = 20.0  # seconds that other runs, which this process helped with, have to come to the end of their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedProject:
    """A project whose runs a person follows: where they are kept, and which agent works on them."""

    database: str
    version: str
    project: Project
    agent: Agent
    commands: Commands

    @property
    def workspace(self) -> Path:
        return self.project.workspace

    @property
    def is_own(self) -> bool:
        return is_own(self.database, self.workspace)


@contextmanager
def watch_run(
    options: Options, asked: RunFlags, project: WatchedProject, queues: tuple[str, ...]
) -> Iterator[WatchedRun]:
    agent = project.agent
    with refusals():
        limits = queue_limits(project.project.configuration)
        runs = Runs(project.database)
    worker = Worker(
        project.database,
        [agent],
        models=models_for(agent),
        version=project.version,
        queues=tuple(dict.fromkeys(queues)),
        limits=limits,
    )
    with closing(runs), LoopThread() as loop, opened_agent(loop, agent), _at_work(loop, worker):
        screen = Screen(view_of(options, asked, agent), broken=loop.cancel)
        activity = ActivityStream(agent.secrets)
        activity.subscribe(screen.take)
        asks = sys.stdin.isatty() and sys.stderr.isatty() and not asked.reads_stdin
        with closing(screen), audited(activity, project.workspace, asked.audit, wanted=not asked.no_audit):
            yield WatchedRun(loop, screen, activity, project, runs, asks=asks, speaks=not (options.json or asked.quiet))


@contextmanager
def _at_work(loop: LoopThread, worker: Worker) -> Iterator[None]:
    """A worker in this process. A person who leaves at once leaves its runs to others, who see that it has gone."""
    with refusals():
        loop.do(_entered(worker))
    try:
        yield
    except KeyboardInterrupt:
        os._exit(130)  # the engine's threads would work on while the interpreter shuts down, and complain
    except BaseException:
        loop.do(_left(worker))
        raise
    loop.do(_left(worker))


async def _entered(worker: Worker) -> None:
    await worker.__aenter__()


async def _left(worker: Worker) -> None:
    await worker.drain(GRACE)
    await worker.__aexit__(None, None, None)


class WatchedRun:
    """A run that a person sees: its events, its questions, its end."""

    def __init__(
        self,
        loop: LoopThread,
        screen: Screen,
        activity: ActivityStream,
        project: WatchedProject,
        runs: Runs,
        *,
        asks: bool,
        speaks: bool,
    ) -> None:
        self.loop, self.screen, self.activity, self.project, self.runs = loop, screen, activity, project, runs
        self.run: RunInfo
        self._following: Following
        self._asks = asks  # what the run wants allowed is asked here
        self._speaks = speaks  # beside what the run says
        self._looked = 0.0

    def begin(self, begin: Callable[[Runs], RunInfo], after: int) -> None:
        """`after`: the number of the last event that was shown before. Raises `ToolError`."""
        self.run = begin(self.runs)
        self._following = Following(self.runs.store, self.run.id, after)
        if self._speaks:
            way = self.project.commands.line("runs", "resume", self.run.id)
            self.screen.note(f"run {self.run.id} · killed, it goes on with: {way}")

    def follow(self) -> Ending:
        """To its end, or until it waits for somebody who is not here. Raises `OSError` when nobody takes the output,
        `KeyboardInterrupt` at the second Ctrl-C."""
        started = time.monotonic()
        self.screen.begin()
        try:
            run = self.loop.do(self._followed(), self._stopping)
            ending = Ending.of(result_so_far(run), time.monotonic() - started)
        except ToolError as error:  # the database is away for good
            self.screen.finish(Ending(reason="error", text=error.message))
            self.screen.settle()
            raise Refusal("\n".join(filter(None, (error.message, error.suggestion)))) from error
        except BaseException as error:
            reason = "cancelled" if isinstance(error, KeyboardInterrupt) else "error"
            self.screen.finish(Ending(reason=reason, text="" if reason == "cancelled" else text_of(error)))
            self.screen.settle(1.0)
            raise
        self.screen.finish(ending)
        self.screen.settle()
        return ending

    def say_goodbye(self, ending: Ending) -> None:
        """What became of the run, and what can be typed next."""
        run, commands = self.runs.get(self.run.id), self.project.commands
        if run.is_over:
            self._keep(run)
        if run.status == "waiting":
            for line in what_it_waits_for(self.runs, run, commands):
                click.echo(line, err=True)
        elif not self._speaks:
            pass
        elif run.status == "finished":
            again = commands.line("run", "--durable", "--session", run.session)
            self.screen.note(f"run {run.id} · session {run.session} · to go on: {again}")
        else:
            self.screen.note(f"run {run.id} {run.status} · to go on: {commands.line('runs', 'resume', run.id)}")
        self.screen.settle()

    async def _followed(self) -> RunInfo:
        try:
            return await self._to_the_end()
        except asyncio.CancelledError:
            if self.screen.error is not None:
                raise self.screen.error from None  # nobody listens any more: the run itself may go on
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await self._cancel()
            return await self._to_the_end()

    async def _cancel(self) -> None:
        await in_thread(lambda: self.runs.cancel(self.run.id))
        ours = {self.run.id}
        for run_id, attempt in sorted(ATTEMPTS.items(), key=lambda one: len(one[0])):  # the ids of children are longer
            if run_id in ours or attempt.run.parent in ours:
                ours.add(run_id)
                attempt.stop()  # here at once; elsewhere at the next tick

    async def _to_the_end(self) -> RunInfo:
        while True:
            run: RunInfo
            run, events = await in_thread(self._following.look)
            for event in events:
                self.activity.emit(event)
            if run.is_over:
                return run
            if not await self._answered(run) and await in_thread(lambda: self.runs.needs_no_worker(run)):  # noqa: B023
                self._tell_that_it_waits(run)
                return run
            await asyncio.sleep(LOOK)

    async def _answered(self, run: RunInfo) -> bool:
        """Whether something was asked here. What a tool asks while it runs does not make its run wait."""
        now = time.monotonic()
        if not self._asks or (run.status != "waiting" and now - self._looked < LOOK_FOR_QUESTIONS):
            return False
        self._looked = now
        questions = await in_thread(lambda: self.runs.questions(run.id))
        for question in questions:
            request = request_of(question, self.project.agent.registry, self.project.project.scope)
            answer = await ask_in_place(self.screen, request)
            try:
                await in_thread(lambda: self.runs.give(question, answer, "terminal"))  # noqa: B023
            except ToolError as error:  # somebody else was faster
                self.screen.note(error.message)
        for asker in {question.run for question in questions}:
            await in_thread(lambda: self.runs.go_on(asker))  # noqa: B023
        return bool(questions)

    def _tell_that_it_waits(self, run: RunInfo) -> None:
        """Nothing is stored of it: it is no end."""
        result = result_so_far(run)
        told = RunFinished(result.text, result.reason, result.turns, result.usage._asdict(), result.calls, result.cost)
        told.session, told.agent = run.session or run.id, run.agent
        self.activity.emit(told)

    def _keep(self, run: RunInfo) -> None:
        try:
            with session_store(self.project.workspace) as sessions:
                keep(run, self.runs.store, sessions)
        except ToolError as error:
            click.echo(f"forge: the session is not kept: {error.message}", err=True)

    def _stopping(self) -> None:
        self.screen.note("Stopping; Ctrl-C again leaves at once.")
