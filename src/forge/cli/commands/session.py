"""`forge session`: lists, shows, copies and removes the stored conversations of a workspace."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from forge.cli.commands.run import command as run
from forge.cli.options import Options, with_options, workspace_of
from forge.cli.refusal import Refusal, refusals
from forge.cli.running.run_lines import render_message
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # the store loads SQLite, which showing the help does without
    from forge.agent.session import SessionInfo, SessionStore


@click.group("session")
def command() -> None:
    """See the conversations of this workspace, go on with one, copy one, take one along, remove one."""


@command.command("list")
@with_options
def list_(options: Options) -> None:
    """List the sessions, the one used last first.

    \b
    forge session list --json

    With --json: {"sessions": [{name, created, updated, messages, turns, title}]}.
    """
    with _store(options, read_only=True) as store:
        found = store.list() if store is not None else ()
    if options.json:
        _print_json({"sessions": [asdict(one) for one in found]})
        return
    if not found:
        click.echo("No session is kept here.", err=True)
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        click.echo(
            f"{one.name:<{width}}  {_format_time(one)}  {one.messages:>5} messages  {harmless(one.title)}".rstrip()
        )


@command.command()
@click.argument("name")
@with_options
def show(options: Options, name: str) -> None:
    """Print a conversation.

    \b
    forge session show cli

    With --json: {name, created, updated, messages: [{role, text, tool_calls?, call_id?, …}], …}.
    """
    with _store(options, name, read_only=True) as store:
        session = store.show(name)
        if options.json:
            _print_json({**asdict(session.info), "messages": store.export(name)})
            return
    for message in session.messages:
        click.echo(render_message(message))


@command.command()
@click.argument("name")
@click.argument("new")
@with_options
@click.option("--upto", metavar="N", type=click.IntRange(min=0), help="Copy only the first N messages.")
def fork(options: Options, name: str, new: str, upto: int | None) -> None:
    """Copy a session under a new name; both go on independently.

    \b
    forge session fork cli attempt-2
    """
    with _store(options, name) as store:
        copy = store.fork(name, new, upto).info
    if options.json:
        _print_json(asdict(copy))
        return
    click.echo(f"{new}: {copy.messages} messages of {name}. To go on: forge run --session {new}", err=True)


@command.command()
@click.argument("name")
@with_options
def export(options: Options, name: str) -> None:
    """Write a session to the standard output, as JSON: {name, messages}.

    \b
    forge session export cli > cli.json
    """
    with _store(options, name, read_only=True) as store:
        _print_json({"name": name, "messages": store.export(name)}, None if options.json else 2)


@command.command()
@click.argument("name")
@with_options
@click.option("--model", metavar="NAME", help="Which model sums it up; as for `forge run`.")
def remember(options: Options, name: str, model: str | None) -> None:
    """Sum a session up and note it in the memory, where later sessions find it.

    \b
    forge session remember cli

    With --json: {"session", "note", "line"}.
    """
    import asyncio

    from forge.project.assemble.memory import remember as remember_session

    with _store(options, name, read_only=True) as store:
        messages = store.show(name).messages
    with refusals():
        note = asyncio.run(remember_session(options, name, messages, model))
    if note is None:
        way = f"Look at it with forge session show {shlex.quote(name)}, or remember another session."
        raise Refusal(f"cannot remember session {name!r}: nothing was said that could be noted\n{way}")
    if options.json:
        _print_json({"session": name, "note": note.source, "line": note.line_start})
        return
    click.echo(f"{name} is noted in {note.source}. To read it: forge memory show {note.source}", err=True)


def _resume(name: str, **given: Any) -> int:
    options = Options(**{key: given[key] for key in Options._fields if key != "session"}, session=name)
    workspace = workspace_of(options)
    if options.config is None:
        from forge.project.trust import find_accepted_config

        with refusals():
            options = options._replace(
                config=find_accepted_config(workspace)
            )  # `run` says so where the file is another by now
    with _store(options, name) as store:
        store.show(name)  # refuses a name that none has, with near ones
    run_agent = run.callback
    assert run_agent is not None
    code: int = run_agent(**given, session=name)
    return code


command.add_command(
    click.Command(
        "resume",
        callback=_resume,
        params=[click.Argument(["name"]), *(one for one in run.params if one.name != "session")],
        help="""Go on with a session that is there: `forge run --session NAME`, which would make a new one otherwise.

        \b
        forge session resume nightly                        a conversation
        forge session resume nightly "And the other one?"   one task

        The flags, the output and the exit codes are those of `forge run`.
        """,
    )
)


@command.command()
@click.argument("name")
@with_options
def delete(options: Options, name: str) -> None:
    """Remove a session for good.

    \b
    forge session delete cli
    """
    from forge.workspace.history.tracking import SessionState  # loads what only this needs

    with _store(options, name) as store:
        store.delete(name)
        SessionState(store.path.parent.parent).remove(name)
    if options.json:
        _print_json({"deleted": name})
        return
    click.echo(f"{name} is deleted.", err=True)


@contextmanager
def _store(options: Options, needed: str | None = None, *, read_only: bool = False) -> Iterator[Any]:
    """Opens the workspace's store; yields None if there is none yet and no session of it is needed.

    With `read_only` nothing is changed, so a copy is opened if the directory cannot be written.
    """
    with refusals():
        from forge.agent.session import FILE, SessionStore
        from forge.project.assemble.workspace import workspace_root
        from forge.project.config import load_configuration
        from forge.project.runs.stored_conversation import session_store
        from forge.workspace.state import NAME
        from forge.workspace.state.state_copy import copy_state_file, is_writable

        workspace = workspace_root(options.workspace, load_configuration(options.config).root)
        if not (workspace / NAME / FILE).exists():
            if needed is not None:
                way = "forge run begins one; --workspace names another directory."
                raise Refusal(f"there is no session {needed!r}: none is kept in {workspace}\n{way}")
            yield None
            return
        if not read_only or is_writable(workspace):
            store: SessionStore = session_store(workspace)
            with store:
                yield store
            return
        with copy_state_file(workspace, FILE) as path:
            if path is None:  # the file belongs to another user
                session_store(workspace)
            with SessionStore(path or workspace / NAME / FILE) as store:
                yield store


def _format_time(info: SessionInfo) -> str:
    return datetime.fromtimestamp(info.updated).strftime("%Y-%m-%d %H:%M")


def _print_json(value: Any, indent: int | None = None) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent))
