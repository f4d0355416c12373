"""`forge run --durable` and `forge runs resume`: stores a run, works on it and shows it."""

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
from forge.cli.running.next_commands import Commands
from forge.cli.running.stored_runs import open_stored_runs
from forge.cli.running.tool_names import print_note
from forge.cli.running.waiting_runs import worker_for
from forge.cli.running.watch_run import WatchedProject, watch_run
from forge.cli.terminal.keyboard import Keyboard
from forge.core.messages import Message
from forge.durable.client import Runs, new_run_id
from forge.durable.engine.queues import DEFAULT
from forge.durable.store.rows import MODEL, RunInfo
from forge.models.scripted import Scripted
from forge.project.project import Project
from forge.project.runs.durable_runs import (
    INITIAL_MESSAGES,
    check_installed,
    make_approver,
    make_own_file,
    project_database,
    project_version,
)
from forge.project.runs.project_worker import check_names
from forge.project.runs.sessions import session_store


def run_durably(
    options: Options,
    flags: RunFlags,
    prompt: str,
    *,
    database: str | None,
    detach: bool,
    queue: str | None,
    tenant: str | None,
    priority: int | None,
    app_version: str | None,
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

    def begin(runs: Runs) -> RunInfo:
        agent, session = project.agent, flags.session or run_id
        history = [] if session == run_id else _read_history(project.workspace, session)
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
            scope={INITIAL_MESSAGES: len(history), **({MODEL: flags.model} if flags.model else {})},
        )

    if detach:
        return _submit_run(options, project, begin)
    return _watch_run(options, flags, project, begin, queue or DEFAULT)


def _refuse_worker_flags(options: Options, flags: RunFlags) -> None:
    """Raises `UsageError` for flags that would have no effect."""
    given = {
        "--yes": (options.yes, "What the run asks is answered with: forge runs answer RUN --yes"),
        "--policy": (options.policy, "Give it to the worker: forge worker --policy FILE"),
        "--max-turns": (flags.max_turns, "Set it where the worker reads it, in forge.yaml: limits: {turns: N}"),
        "--dev": (options.dev, "Give it to the worker: forge worker --dev"),
        "--audit": (flags.audit, "The worker writes the log, in its workspace; remove the flag"),
    }
    for flag, (value, way) in given.items():
        if value:
            problem = f"{flag} applies to runs in this process, but --detach runs nothing here."
            raise click.UsageError(f"{problem} {way}")


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
            words = f"run {run.id} belongs to version {run.version} of the project, and this is {project.version}"
            to = ["--to", app_version] if app_version else []
            way = project.commands.line("runs", "migrate", run.id, *to)
            raise Refusal(f"{words}\nGive it to this one: {way}")

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
