"""Durable runs at the terminal: stores a run, works on it and shows it, or follows another process's work."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from forge.agent.agent import Agent
from forge.agent.result import make_finished_event
from forge.cli.options import Options
from forge.cli.refusal import Refusal, refusals
from forge.cli.running.event_log import log_events
from forge.cli.running.loop_thread import LoopThread, run_interruptible
from forge.cli.running.next_commands import Commands
from forge.cli.running.run_prompts import RunFlags, ask_person, is_plain, make_view, open_agent, run_options
from forge.cli.running.stored_runs import open_stored_runs
from forge.cli.running.tool_names import print_note
from forge.cli.running.waiting_runs import result_so_far, waiting_lines, worker_for
from forge.cli.terminal.event_thread import Screen
from forge.cli.terminal.exit_codes import Ending
from forge.cli.terminal.keyboard import Keyboard
from forge.cli.terminal.output import Ndjson, Output
from forge.cli.terminal.render import ForPeople
from forge.core.activity import ActivityStream
from forge.core.errors import ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.core.plain_values import text_of
from forge.durable.client import Runs, new_run_id
from forge.durable.client.following import RunFollower
from forge.durable.engine.queues import DEFAULT
from forge.durable.store.rows import INITIAL_MESSAGES, MODEL, RunInfo
from forge.durable.worker import Worker, WorkerSettings
from forge.models.scripted import Scripted
from forge.project.project import Project
from forge.project.runs.durable_runs import (
    build_request,
    check_installed,
    is_own,
    make_approver,
    make_own_file,
    models_for,
    project_database,
    project_version,
    queue_limits,
    store_in_session,
)
from forge.project.runs.project_worker import check_names
from forge.project.runs.sessions import session_store


def run_durably(
    options: Options,
    flags: RunFlags,
    prompt: str | Message,
    *,
    database: str | None,
    detach: bool,
    queue: str | None,
    tenant: str | None,
    priority: int | None,
    app_version: str | None,
    chat: str | None,
) -> int:
    """Starts a new run and follows it to its end, or until it waits for a person."""
    if detach:
        _refuse_worker_flags(options, flags)
    run_id = new_run_id()
    flags = replace(flags, session=flags.session or run_id)
    with refusals():
        check_names([queue] if queue is not None else [], "a queue")
        project = _load_project(options, flags, database, run_id, version=app_version, detach=detach)
        if project.is_own:
            make_own_file(project.workspace)
        where = _find_chat(project, chat) if chat is not None else {}

    def begin(runs: Runs) -> RunInfo:
        agent, session = project.agent, flags.session or run_id
        history = [] if session == run_id else _read_history(project.workspace, session)
        return runs.submit(
            prompt if isinstance(prompt, str) else prompt.text,
            agent=agent.name,
            session=session,
            tenant=tenant or "",
            queue=queue or DEFAULT,
            priority=priority or 0,
            version=project.version,
            run_id=run_id,
            messages=agent.begin(prompt, list(history), session).messages,
            scope={INITIAL_MESSAGES: len(history), **({MODEL: flags.model} if flags.model else {}), **where},
        )

    if detach:
        return _submit_run(options, project, begin)
    return _watch_run(options, flags, project, begin, queue or DEFAULT)


def _find_chat(project: WatchedProject, chat: str) -> dict[str, str]:
    """Returns the scope of a run that a chat shows. Raises `Refusal`."""
    name, _, place = chat.partition(":")
    entry = project.project.configuration.channels.get(name)
    if entry is None or not entry.people or not place:
        channels = [name for name, one in project.project.configuration.channels.items() if one.people]
        known = ", ".join(sorted(channels)) or "none: add one, as docs/chats.md says"
        hint = f"Write NAME:CHAT, such as team:C0123. Channels in which people are named: {known}."
        raise Refusal(f"--chat {chat[:80]!r} names no chat that `forge listen` knows\n{hint}")
    return {"channel": name, "chat_id": place}


def _refuse_worker_flags(options: Options, flags: RunFlags) -> None:
    """Raises `UsageError` for flags that would have no effect."""
    given = {
        "--yes": (options.yes, "What the run asks is answered with: forge runs answer RUN --yes"),
        "--policy": (options.policy, "Give it to the worker: forge worker --policy FILE"),
        "--max-turns": (flags.max_turns, "Set it where the worker reads it, in forge.yaml: limits: {turns: N}"),
        "--dev": (options.dev, "Give it to the worker: forge worker --dev"),
        "--audit": (flags.audit, "The worker writes the log, in its workspace; remove the flag"),
    }
    for flag, (value, hint) in given.items():
        if value:
            problem = f"{flag} applies to runs in this process, but --detach runs nothing here."
            raise click.UsageError(f"{problem} {hint}")


def resume(
    options: Options,
    flags: RunFlags,
    run_id: str,
    *,
    say: str | None,
    database: str | None,
    detach: bool,
    app_version: str | None,
) -> int:
    """Resumes a stored run, with a new message if `say` is given."""
    with refusals():
        run, after = _find_run(options, run_id, database)
        flags = replace(flags, session=run.session or run.id, model=flags.model or run.scope.get(MODEL))
        project = _load_project(options, flags, database, run.id, version=app_version, detach=detach)
        if run.version != project.version:
            message = f"run {run.id} belongs to version {run.version} of the project, and this is {project.version}"
            to = ["--to", app_version] if app_version else []
            command = project.commands.line("runs", "migrate", run.id, *to)
            raise Refusal(f"{message}\nGive it to this one: {command}")

    def begin(runs: Runs) -> RunInfo:
        if say is None and run.status == "queued" and (now := runs.get(run.id)).is_over:
            return now  # a worker was quicker, maybe the one that this command started
        return runs.resume(run.id, say, flags.model or "")

    if detach:
        return _submit_run(options, project, begin)
    return _watch_run(options, flags, project, begin, run.queue, after)


def _read_history(workspace: Path, session: str) -> list[Message]:
    with session_store(workspace) as sessions:
        return sessions.open(session).messages


def _find_run(options: Options, run_id: str, database: str | None) -> tuple[RunInfo, int]:
    """Returns the run and the number of its last event."""
    with open_stored_runs(options, database, run_id) as stored:
        run: RunInfo = stored.runs.find(run_id)
        after = 0
        while events := stored.runs.events(run.id, after):
            after = events[-1][0]
        return run, after


def _load_project(
    options: Options, flags: RunFlags, database: str | None, run_id: str, *, version: str | None, detach: bool
) -> WatchedProject:
    check_installed()
    given = run_options(options, flags, run_id)
    loaded = Project(given, report=print_note)
    # the worker has the model, so this machine may have no key for it; a model that is named must still be right
    nobody_to_ask = Scripted() if detach and flags.model is None else None
    agent = loaded.agent(
        nobody_to_ask or flags.model, turns=flags.max_turns, approve=make_approver(run_id, yes=options.yes)
    )
    configuration = loaded.configuration
    return WatchedProject(
        database=project_database(configuration, loaded.workspace, database),
        version=version or project_version(configuration, given.built.sha256 if given.built is not None else ""),
        project=loaded,
        agent=agent,
        commands=Commands(options, database, version),
    )


def _submit_run(options: Options, project: WatchedProject, begin: Callable[[Runs], RunInfo]) -> int:
    """Stores the run for a worker and prints its id."""
    commands = project.commands
    with refusals(), commands.complete_suggestions(), closing(Runs(project.database)) as runs:
        run = begin(runs)
        has_worker = runs.is_attended(run)
    if options.json:
        click.echo(json.dumps({"run": run.id, "session": run.session, "status": run.status, "queue": run.queue}))
    else:
        click.echo(run.id)
        if not has_worker:
            click.echo(f"No running worker takes it. Start one: {worker_for(run.queue, commands)}", err=True)
        click.echo(f"To follow it: {commands.line('runs', 'show', run.id, '--follow')}", err=True)
    return 0


def _watch_run(
    options: Options,
    flags: RunFlags,
    project: WatchedProject,
    begin: Callable[[Runs], RunInfo],
    queue: str = DEFAULT,
    after: int = 0,
) -> int:
    with watch_run(options, flags, project, (DEFAULT, queue)) as watched:
        with refusals(), project.commands.complete_suggestions():
            watched.begin(begin, after)
        ending = watched.follow()
        answers = not flags.reads_stdin and sys.stderr.isatty() and not options.json
        while answers and ending.reason == "question" and (answer := Keyboard().message()):
            with refusals(), project.commands.complete_suggestions():
                watched.runs.answer(watched.run.id, answer, by="terminal")
            ending = watched.follow()
        watched.say_goodbye(ending)
    return ending.exit_code


# Works on a stored run in this process, and shows its events, questions and end to a person.


LOOK = 0.1  # seconds between two reads of the run's events
LOOK_FOR_QUESTIONS = 0.5  # seconds between two reads of its questions while it runs
GRACE = 20.0  # seconds that other runs of this process have to end their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedProject:
    """A project whose runs a person follows: its database and its agent."""

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
    options: Options, flags: RunFlags, project: WatchedProject, queues: tuple[str, ...]
) -> Iterator[WatchedRun]:
    """Opens the database, the agent and a worker; yields a run that can be followed."""
    agent = project.agent
    with refusals():
        limits = queue_limits(project.project.configuration)
        runs = Runs(project.database)
    settings = WorkerSettings(version=project.version, queues=tuple(dict.fromkeys(queues)), limits=limits)
    worker = Worker(project.database, [agent], settings, models=models_for(agent))
    with closing(runs), LoopThread() as loop, open_agent(loop, agent), _run_worker(loop, worker):
        screen = Screen(make_view(options, flags, agent), broken=loop.cancel, plain=is_plain(options, flags))
        activity = ActivityStream(agent.secrets)
        activity.subscribe(screen.take)
        asks = sys.stdin.isatty() and sys.stderr.isatty() and not flags.reads_stdin
        with closing(screen), log_events(activity, project.workspace, flags.audit, wanted=not flags.no_audit):
            speaks = not (options.json or flags.quiet)
            yield WatchedRun(loop, worker, screen, activity, project, runs, asks=asks, speaks=speaks)


@contextmanager
def _run_worker(loop: LoopThread, worker: Worker) -> Iterator[None]:
    """Runs a worker in this process. If a person leaves at once, other workers take over its runs."""
    with refusals():
        loop.do(_start(worker))
    try:
        yield
    except KeyboardInterrupt:
        os._exit(130)  # the engine's threads would fail while the interpreter shuts down
    except BaseException:
        loop.do(_drain(worker))
        raise
    loop.do(_drain(worker))


async def _start(worker: Worker) -> None:
    await worker.__aenter__()


async def _drain(worker: Worker) -> None:
    await worker.drain(GRACE)
    await worker.__aexit__(None, None, None)


class WatchedRun:
    """Shows a run to a person: its events, its questions, its end."""

    def __init__(
        self,
        loop: LoopThread,
        worker: Worker,
        screen: Screen,
        activity: ActivityStream,
        project: WatchedProject,
        runs: Runs,
        *,
        asks: bool,
        speaks: bool,
    ) -> None:
        self.loop, self.worker, self.screen, self.activity = loop, worker, screen, activity
        self.project, self.runs = project, runs
        self.run: RunInfo
        self._following: RunFollower
        self._asks = asks  # the person answers the run's questions here
        self._speaks = speaks  # prints notes beside the run's output
        self._looked = 0.0

    def begin(self, begin: Callable[[Runs], RunInfo], after: int) -> None:
        """Starts the run; `after` is the number of the last event that was already shown. Raises `ToolError`."""
        self.run = begin(self.runs)
        self._following = RunFollower(self.runs.store, self.run.id, after)
        if self._speaks:
            command = self.project.commands.line("runs", "resume", self.run.id)
            self.screen.note(f"run {self.run.id} · resume after a crash: {command}")

    def follow(self) -> Ending:
        """Follows the run to its end, or until it waits for an absent person. Raises `OSError` if the output cannot be
        written, `KeyboardInterrupt` at the second Ctrl-C.
        """
        started = time.monotonic()
        self.screen.begin()
        try:
            run = self.loop.do(self._follow_and_cancel(), self._note_stopping)
            ending = Ending.of(result_so_far(run), time.monotonic() - started)
        except ToolError as error:  # the database stays unreachable
            self.screen.finish(Ending(reason="error", text=error.message))
            self.screen.wait_until_shown()
            raise Refusal("\n".join(filter(None, (error.message, error.suggestion)))) from error
        except BaseException as error:
            reason = "cancelled" if isinstance(error, KeyboardInterrupt) else "error"
            self.screen.finish(Ending(reason=reason, text="" if reason == "cancelled" else text_of(error)))
            self.screen.wait_until_shown(1.0)
            raise
        self.screen.finish(ending)
        self.screen.wait_until_shown()
        return ending

    def say_goodbye(self, ending: Ending) -> None:
        """Prints the state of the run and the commands that can follow."""
        run, commands = self.runs.get(self.run.id), self.project.commands
        if run.is_over:
            self._keep(run)
        if run.status == "waiting":
            for line in waiting_lines(self.runs, run, commands):
                click.echo(line, err=True)
        elif not self._speaks:
            pass
        elif run.status == "finished":
            again = commands.line("run", "--durable", "--session", run.session)
            self.screen.note(f"run {run.id} · session {run.session} · resume: {again}")
        else:
            self.screen.note(f"run {run.id} {run.status} · resume: {commands.line('runs', 'resume', run.id)}")
        self.screen.wait_until_shown()

    async def _follow_and_cancel(self) -> RunInfo:
        try:
            return await self._follow_to_end()
        except asyncio.CancelledError:
            if self.screen.error is not None:
                raise self.screen.error from None  # the output has no reader any more: the run itself may continue
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await self._cancel()
            return await self._follow_to_end()

    async def _cancel(self) -> None:
        await in_thread(lambda: self.runs.cancel(self.run.id))
        ours = {self.run.id}
        under_way = sorted(self.worker.attempts.items(), key=lambda one: len(one[0]))  # the ids of children are longer
        for run_id, attempt in under_way:
            if run_id in ours or attempt.run.parent in ours:
                ours.add(run_id)
                attempt.stop()  # here at once; elsewhere at the next tick

    async def _follow_to_end(self) -> RunInfo:
        while True:
            run: RunInfo
            run, events = await in_thread(self._following.read_new)
            for event in events:
                self.activity.emit(event)
            if run.is_over:
                return run
            if not await self._ask_questions(run) and await in_thread(lambda: self.runs.needs_no_worker(run)):  # noqa: B023
                self._emit_waiting(run)
                return run
            await asyncio.sleep(LOOK)

    async def _ask_questions(self, run: RunInfo) -> bool:
        """Asks the run's questions here; returns whether there were any. A tool's question during its call does not
        make the run wait.
        """
        now = time.monotonic()
        if not self._asks or (run.status != "waiting" and now - self._looked < LOOK_FOR_QUESTIONS):
            return False
        self._looked = now
        questions = await in_thread(lambda: self.runs.questions(run.id))
        for question in questions:
            request = build_request(question, self.project.agent.registry, self.project.project.scope)
            answer = await ask_person(self.screen, request)
            try:
                await in_thread(lambda: self.runs.give(question, answer, "terminal"))  # noqa: B023
            except ToolError as error:  # another person answered first
                self.screen.note(error.message)
        for asker in {question.run for question in questions}:
            await in_thread(lambda: self.runs.go_on(asker))  # noqa: B023
        return bool(questions)

    def _emit_waiting(self, run: RunInfo) -> None:
        """Emits an event that is not stored, because the run has not ended."""
        result = result_so_far(run)
        event = make_finished_event(result, run.id)
        event.session, event.agent = run.session or run.id, run.agent
        self.activity.emit(event)

    def _keep(self, run: RunInfo) -> None:
        try:
            with session_store(self.project.workspace) as sessions:
                store_in_session(run, self.runs.store, sessions)
        except ToolError as error:
            click.echo(f"forge: the session is not stored: {error.message}", err=True)

    def _note_stopping(self) -> None:
        self.screen.note("Stopping; Ctrl-C again leaves at once.")


# Follows a run that another process works on.


def follow_run(runs: Runs, run_id: str, commands: Commands, *, as_json: bool) -> int:
    """Shows the run until it is over or waits for a person; returns the exit code. Raises `OSError` if the output
    cannot be written.
    """
    out, started = Output(), time.monotonic()
    screen = Screen(Ndjson(out) if as_json else ForPeople(out, lambda _, result: result.preview()))
    activity = ActivityStream()
    activity.subscribe(screen.take)

    async def follow() -> None:
        async for event in runs.follow(run_id):
            activity.emit(event)
            if screen.error is not None:
                return

    with closing(screen):
        screen.begin()
        if (run := runs.get(run_id)).status == "queued":  # no worker may be up for it, and then it waits forever
            _note(screen, waiting_lines(runs, run, commands), as_json=as_json)
        run_interruptible(follow())
        run = runs.get(run_id)
        result = result_so_far(run)
        ending = Ending.of(result, time.monotonic() - started)
        if not run.is_over:
            event = make_finished_event(result, run.id)
            event.session, event.agent = run.session or run.id, run.agent
            activity.emit(event)
        screen.finish(ending)
        if not run.is_over:
            _note(screen, waiting_lines(runs, run, commands), as_json=as_json)
        screen.wait_until_shown()
    return ending.exit_code


def _note(screen: Screen, lines: Iterable[str], *, as_json: bool) -> None:
    """Shows lines to the person; beside JSON on stderr."""
    if not as_json:
        screen.note(*lines)
        return
    for line in lines:
        click.echo(f"forge: {line}", err=True)
