"""`forge run --durable` and `forge runs resume`: a run that is kept, worked on and shown by this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from forge.cli.options import Options
from forge.cli.refusal import Refusal, refusals
from forge.cli.running.chat_session import RunFlags, run_options
from forge.cli.running.names import note
from forge.cli.running.next_commands import Commands
from forge.cli.running.runs_kept import kept_runs
from forge.cli.running.waits import worker_for
from forge.cli.running.watch_run import WatchedProject, watch_run
from forge.cli.terminal.keyboard import Keyboard
from forge.core.messages import Message
from forge.durable.client import Runs, new_run_id
from forge.durable.engine.agents import MODEL
from forge.durable.engine.queues import DEFAULT
from forge.durable.store.rows import RunInfo
from forge.models.scripted import Scripted
from forge.project.project import Project
from forge.project.runs.durable_runs import (
    HEARD,
    approver,
    check_installed,
    make_own_file,
    project_database,
    project_version,
)
from forge.project.runs.project_worker import check_names
from forge.project.runs.stored_conversation import session_store


def run_durably(
    options: Options,
    asked: RunFlags,
    prompt: str,
    *,
    database: str | None,
    detach: bool,
    queue: str | None,
    tenant: str | None,
    priority: int | None,
    app_version: str | None,
) -> int:
    """A new run, to its end or until it waits for somebody."""
    if detach:
        _refuse_what_a_worker_decides(options, asked)
    run_id = new_run_id()
    asked = replace(asked, session=asked.session or run_id)
    with refusals():
        check_names([queue] if queue is not None else [], "a queue")
        project = _project(options, asked, database, run_id, version=app_version, detach=detach)
        if project.is_own:
            make_own_file(project.workspace)

    def begin(runs: Runs) -> RunInfo:
        agent, session = project.agent, asked.session or run_id
        history = [] if session == run_id else _history(project.workspace, session)
        return runs.submit(
            prompt,
            agent=agent.name,
            session=session,
            tenant=tenant or "",
            queue=queue or DEFAULT,
            priority=priority or 0,
            version=project.version,
            run_id=run_id,
            messages=agent.begin(prompt, list(history), session).messages,
            scope={HEARD: len(history), **({MODEL: asked.model} if asked.model else {})},
        )

    if detach:
        return _leave_it(options, project, begin)
    return _attend(options, asked, project, begin, queue or DEFAULT)


def _refuse_what_a_worker_decides(options: Options, asked: RunFlags) -> None:
    """Raises `UsageError` for what would be said in vain."""
    given = {
        "--yes": (options.yes, "What the run asks is answered with: forge runs answer RUN --yes"),
        "--policy": (options.policy, "Give it to the worker: forge worker --policy FILE"),
        "--max-turns": (asked.max_turns, "Set it where the worker reads it, in forge.yaml: limits: {turns: N}"),
        "--dev": (options.dev, "Give it to the worker: forge worker --dev"),
        "--audit": (asked.audit, "The worker keeps the log, in its workspace; leave it out"),
    }
    for flag, (said, way) in given.items():
        if said:
            problem = f"{flag} is about what this process works on, and with --detach that is nothing."
            raise click.UsageError(f"{problem} {way}")


def resume(
    options: Options,
    asked: RunFlags,
    run_id: str,
    *,
    say: str | None,
    database: str | None,
    detach: bool,
    app_version: str | None,
) -> int:
    """A run that is there: where it broke off, or with something new to say."""
    with refusals():
        run, after = _found(options, run_id, database)
        asked = replace(asked, session=run.session or run.id, model=asked.model or run.scope.get(MODEL))
        project = _project(options, asked, database, run.id, version=app_version, detach=detach)
        if run.version != project.version:
            words = f"run {run.id} belongs to version {run.version} of the project, and this is {project.version}"
            to = ["--to", app_version] if app_version else []
            way = project.commands.line("runs", "migrate", run.id, *to)
            raise Refusal(f"{words}\nGive it to this one: {way}")

    def begin(runs: Runs) -> RunInfo:
        return runs.resume(run.id, say, asked.model or "")

    if detach:
        return _leave_it(options, project, begin)
    return _attend(options, asked, project, begin, run.queue, after)


def _history(workspace: Path, session: str) -> list[Message]:
    with session_store(workspace) as sessions:
        return sessions.open(session).messages


def _found(options: Options, run_id: str, database: str | None) -> tuple[RunInfo, int]:
    """The run, and the number of its last event."""
    with kept_runs(options, database, run_id) as kept:
        run: RunInfo = kept.runs.find(run_id)
        after = 0
        while events := kept.runs.events(run.id, after):
            after = events[-1][0]
        return run, after


def _project(
    options: Options, asked: RunFlags, database: str | None, run_id: str, *, version: str | None, detach: bool
) -> WatchedProject:
    check_installed()
    given = run_options(options, asked, run_id)
    loaded = Project(given, report=note)
    # a worker has the model, and this machine may have no key for it; what is named here must be right all the same
    nobody_to_ask = Scripted() if detach and asked.model is None else None
    agent = loaded.agent(nobody_to_ask or asked.model, turns=asked.max_turns, approve=approver(run_id, yes=options.yes))
    configuration = loaded.configuration
    return WatchedProject(
        database=project_database(configuration, loaded.workspace, database),
        version=version or project_version(configuration, given.built.sha256 if given.built is not None else ""),
        project=loaded,
        agent=agent,
        commands=Commands(options, database, version),
    )


def _leave_it(options: Options, project: WatchedProject, begin: Callable[[Runs], RunInfo]) -> int:
    """Store it for whoever has time, and say under which name."""
    commands = project.commands
    with refusals(), commands.suggested(), closing(Runs(project.database)) as runs:
        run = begin(runs)
        attended_to = runs.is_attended(run)
    if options.json:
        click.echo(json.dumps({"run": run.id, "session": run.session, "status": run.status, "queue": run.queue}))
    else:
        click.echo(run.id)
        if not attended_to:
            click.echo(f"No worker is up for it. Start one: {worker_for(run.queue, commands)}", err=True)
        click.echo(f"To follow it: {commands.line('runs', 'show', run.id, '--follow')}", err=True)
    return 0


def _attend(
    options: Options,
    asked: RunFlags,
    project: WatchedProject,
    begin: Callable[[Runs], RunInfo],
    queue: str = DEFAULT,
    after: int = 0,
) -> int:
    with watch_run(options, asked, project, (DEFAULT, queue)) as made:
        with refusals(), project.commands.suggested():
            made.begin(begin, after)
        ending = made.follow()
        answers = not asked.reads_stdin and sys.stderr.isatty() and not options.json
        while answers and ending.reason == "question" and (answer := Keyboard().message()):
            with refusals(), project.commands.suggested():
                made.runs.answer(made.run.id, answer, by="terminal")
            ending = made.follow()
        made.say_goodbye(ending)
    return ending.exit_code
