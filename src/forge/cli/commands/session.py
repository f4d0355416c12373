"""`forge session`: lists, shows, rewinds, renames, copies and removes the stored conversations of a workspace."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from forge.cli.commands.run import command as run
from forge.cli.group import CommandGroup
from forge.cli.options import Options, with_options, workspace_of
from forge.cli.refusal import Refusal, refusals
from forge.cli.running.stored_runs import render_message
from forge.cli.terminal.print_result import harmless, table_lines
from forge.project.config import load_configuration
from forge.workspace.state import NAME

if TYPE_CHECKING:  # the store loads SQLite, which showing the help does without
    from forge.agent.session import SessionInfo, SessionStore

WIDEST = 10_000  # columns: the picker shortens its lines itself


def _complete_session(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names that a shell offers for a session."""
    given = {**dict.fromkeys(Options._fields), **ctx.params}
    try:
        names = [one.name for one in _find_sessions(_read_options(given, "cli"))]
    except click.ClickException:  # a shell shows no errors
        return []
    return [name for name in names if name.startswith(incomplete)]


class _SessionGroup(CommandGroup):
    """Picks a session where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["pick"])


@click.group("session", cls=_SessionGroup)
def command() -> None:
    """List, show, resume, rewind, rename, copy, export and delete conversations.

    Without a command: pick a session with the arrow keys and resume it; without a terminal, list the sessions.
    """


@command.command("list")
@with_options()
def list_(options: Options) -> None:
    """List the sessions, the most recent first.

    \b
    forge session list --json

    With --json: {"sessions": [{name, created, updated, messages, turns, title}]}.
    """
    _print_sessions(_find_sessions(options), as_json=options.json)


@command.command()
@click.argument("name", shell_complete=_complete_session)
@with_options()
def show(options: Options, name: str) -> None:
    """Print a conversation.

    \b
    forge session show cli

    With --json: {name, created, updated, messages: [{role, text, tool_calls?, call_id?, …}], problem?, …}.
    """
    with _store(options, name, read_only=True) as store:
        session = store.show(name)
        if options.json:
            problem = {"problem": session.problem} if session.problem else {}
            _print_json({**asdict(session.info), "messages": store.export(name), **problem})
            return
    for message in session.messages:
        click.echo(render_message(message))
    if session.problem:
        click.echo(harmless(f"{name} cannot be continued: {session.problem}"), err=True)


@command.command()
@click.argument("name", shell_complete=_complete_session)
@click.argument("new")
@click.argument("prompt", required=False)
@with_options("policy", "yes", "dev")
@click.option("--upto", metavar="N", type=click.IntRange(min=0), help="Copy only the first N messages.")
@click.option(
    "--at", metavar="TURN", type=click.IntRange(min=1), help="Copy what was before this turn, to do it again."
)
@click.option("--model", metavar="NAME", help="With --at: do the turn again with this model; as for `forge run`.")
@click.option("--quiet", is_flag=True, help="With --at: print only the final text.")
@click.option("--files", is_flag=True, help="With --at: put the files back as they were before the turn, too.")
@click.option("--trust", is_flag=True, help="Accept what something else than Forge may have written.")
@click.pass_context
def fork(
    ctx: click.Context,
    options: Options,
    name: str,
    new: str,
    prompt: str | None,
    upto: int | None,
    at: int | None,
    model: str | None,
    quiet: bool,
    files: bool,
    trust: bool,
) -> int:
    """Copy a session under a new name; both continue independently.

    \b
    forge session fork cli attempt-2
    forge session fork cli attempt-3 --at 4 --model ollama:qwen3      the same turn with another model
    forge session fork cli attempt-4 "Use a dataclass." --at 4        the same turn with another prompt

    With --at and a prompt or a model, the turn is done again at once in the new session; `forge session rewind NAME`
    lists the turns. Without a prompt, the words that began the turn are used again. The old session stays whole. Files
    stay as they are, unless --files puts them back; then the changes of the old session since that turn are undone, and
    `forge session rewind NAME --back` restores them.
    """
    if at is None and (prompt is not None or model is not None or files):
        raise click.UsageError("PROMPT, --model and --files need --at, which names the turn to do again.")
    if at is not None and upto is not None:
        raise click.UsageError("--at and --upto cannot be combined. Remove one of them.")
    with _store(options, name) as store:
        again = _find_prompt(store, name, at, prompt, model) if at is not None else None
        copy = store.fork(name, new, upto, at=at, trust=trust).info
        if files and at is not None:
            from forge.cli.running.rewind import rewind_session  # the whole agent, which showing the help does without

            try:
                code = rewind_session(options, store, name, at - 1, listed=False, files_only=True)
            except BaseException:
                store.delete(new)
                raise
            if code:
                store.delete(new)
                return code
    if options.json and again is None:
        _print_json(asdict(copy))
        return 0
    click.echo(f"{new}: {copy.messages} messages of {name}. Resume: forge run --session {new}", err=True)
    if at is not None and not files:
        click.echo("The files are as they are now; --files puts them back as they were before the turn.", err=True)
    if again is None:
        return 0
    code = ctx.invoke(run, **{**_common_flags(ctx), "prompt": again, "session": new, "model": model, "quiet": quiet})
    return int(code or 0)


def _common_flags(ctx: click.Context) -> dict[str, Any]:
    """Returns the flags of this command that `forge run` has, too."""
    names = {one.name for one in run.params} - {"prompt", "session", "model"}
    return {name: value for name, value in ctx.params.items() if name in names}


def _find_prompt(store: SessionStore, name: str, at: int, prompt: str | None, model: str | None) -> str | None:
    """Returns the prompt with which a turn is done again; None if it is not done now. Refuses a turn without one."""
    from forge.agent.session_tables import find_turns

    if prompt is not None or model is None:
        return prompt
    messages = store.show(name).messages
    turns = find_turns(messages)
    said = [one.text for one in messages[slice(*turns[at - 1][:2])] if one.role == "user"] if at <= len(turns) else [""]
    if not said:
        hint = f"Give a prompt: forge session fork {name} NEW PROMPT --at {at} --model {model}"
        raise Refusal(f"cannot do turn {at} of {name!r} again: the model began it by itself, without a prompt\n{hint}")
    return said[-1]


@command.command()
@click.argument("name", shell_complete=_complete_session)
@with_options("policy", "yes", "dev", yes="Rewind without a question. What a rule denies stays denied.")
@click.option(
    "--to", "turn", metavar="TURN", type=click.IntRange(min=0), help="The last turn that is kept; 0 for none."
)
@click.option("--back", is_flag=True, help="Take back the last rewind.")
@click.option("--files-only", is_flag=True, help="Leave the conversation as it is.")
def rewind(options: Options, name: str, turn: int | None, back: bool, files_only: bool) -> int:
    """Go back to a turn: the conversation and the files that its tools changed.

    \b
    forge session rewind cli             list the turns
    forge session rewind cli --to 3      as it was after turn 3
    forge session rewind cli --back      as it was before the last rewind

    A turn is one answer of the model, with the results of its calls. The command first shows the difference and asks;
    without a terminal it changes nothing unless --yes is given. Conversation and files change together or not at all.
    If someone else changed one of the files since, nothing is changed. What programs did outside a trial is named, and
    stays.

    \b
    With --json: {"session", "turns": [{number, at, prompt, text, calls, files, unrecorded}]} for the list, else
    {session, turn, turns, removed, restored, conflicts, left, files_only, is_done, effects, diff, digest}.

    \b
    Exit codes: 0 rewound, listed, or shown with --json     1 it was not wanted, or it could not be done
                2 a flag, the configuration, a policy or the workspace cannot be used
    """
    if turn is not None and back:
        raise click.UsageError("--to and --back cannot be combined. Remove one of them.")
    from forge.cli.running.rewind import rewind_session  # the whole agent, which showing the help does without

    with _store(options, name) as store:
        store.show(name)  # refuses a name that none has, with near ones
        listed = turn is None and not back
        return rewind_session(options, store, name, turn, listed=listed, files_only=files_only)


@command.command()
@click.argument("name", shell_complete=_complete_session)
@click.argument("title")
@with_options()
def rename(options: Options, name: str, title: str) -> None:
    """Give a session a title, which lists show. Its name stays the same.

    \b
    forge session rename 20261116-101500-ab12 "Refund of order 7"

    A title has one line of at most 60 characters. Until you give one, the model writes it after the first answer of a
    session at a terminal; `agent: {session_titles: false}` in forge.yaml turns this off.

    With --json: {name, title}.
    """
    with _store(options, name) as store:
        given = store.rename(name, title)
    if options.json:
        _print_json({"name": name, "title": given})
        return
    click.echo(f"{name}: {given}", err=True)


@command.command()
@click.argument("name", shell_complete=_complete_session)
@with_options()
def export(options: Options, name: str) -> None:
    """Write a session to the standard output as JSON: {name, messages}.

    \b
    forge session export cli > cli.json
    """
    with _store(options, name, read_only=True) as store:
        _print_json({"name": name, "messages": store.export(name)}, None if options.json else 2)


@command.command()
@click.argument("name", shell_complete=_complete_session)
@with_options()
@click.option("--model", metavar="NAME", help="The model that writes the summary; as for `forge run`.")
def remember(options: Options, name: str, model: str | None) -> None:
    """Summarise a session and add the summary to the memory, where later sessions find it.

    \b
    forge session remember cli

    With --json: {"session", "note", "line"}.
    """
    import asyncio

    from forge.project.assemble.knowledge import remember as remember_session

    with _store(options, name, read_only=True) as store:
        session = store.show(name)
        if session.problem:
            hint = f"Read it: forge session show {shlex.quote(name)}. To accept it, fork it with --trust."
            raise Refusal(f"cannot remember session {name!r}: {session.problem}\n{hint}")
        messages = session.messages
    with refusals():
        note = asyncio.run(remember_session(options, name, messages, model))
    if note is None:
        hint = f"Look at it with forge session show {shlex.quote(name)}, or remember another session."
        raise Refusal(f"cannot remember session {name!r}: there is nothing to summarise\n{hint}")
    if options.json:
        _print_json({"session": name, "note": note.source, "line": note.line_start})
        return
    click.echo(f"{name} is summarised in {note.source}. To read it: forge memory show {note.source}", err=True)


def _find_sessions(options: Options) -> Sequence[SessionInfo]:
    with _store(options, read_only=True) as store:
        return store.list() if store is not None else ()


def _print_sessions(found: Sequence[SessionInfo], *, as_json: bool) -> None:
    if as_json:
        _print_json({"sessions": [asdict(one) for one in found]})
        return
    if not found:
        click.echo("No session is stored here.", err=True)
    for line in table_lines([_row(one) for one in found]):
        click.echo(line)


def _pick(**given: Any) -> int:
    from forge.cli.terminal.keyboard import pick
    from forge.cli.terminal.output import Output

    options, out = _read_options(given, "cli"), Output(plain=given["plain"])
    found = _find_sessions(options)
    if options.json or not found or not (out.live and sys.stdin.isatty()):
        _print_sessions(found, as_json=options.json)
        return 0
    chosen = pick(table_lines([_row(one) for one in found], columns=WIDEST), out)
    return _resume(found[chosen].name, **given) if chosen is not None else 0


def _read_options(given: dict[str, Any], session: str) -> Options:
    """Returns the common flags, with the trusted configuration; `run` prints a note if the file has changed since."""
    options = Options(**{key: given[key] for key in Options._fields if key != "session"}, session=session)
    if options.config is not None:
        return options
    from forge.project.trust import find_accepted_config

    with refusals():
        return options._replace(config=find_accepted_config(workspace_of(options)))


def _resume(name: str, **given: Any) -> int:
    with _store(_read_options(given, name), name) as store:
        store.show(name)  # refuses a name that none has, with near ones
    run_agent = run.callback
    assert run_agent is not None
    code: int = run_agent(**{"prompt": None, **given}, session=name)
    return code


def _name_argument() -> click.Argument:
    return click.Argument(["name"], shell_complete=_complete_session)


command.add_command(
    click.Command(
        "pick",
        callback=_pick,
        params=[one for one in run.params if one.name not in ("session", "prompt")],
        help="""Pick a session with the arrow keys and resume it.

        Type to filter the list, Enter resumes, Esc leaves. Without a terminal the sessions are listed.

        \b
        forge session                      the same
        forge session pick --model NAME    with flags of `forge run`
        """,
    )
)


command.add_command(
    click.Command(
        "resume",
        callback=_resume,
        params=[_name_argument(), *(one for one in run.params if one.name != "session")],
        help="""Resume an existing session; `forge run --session NAME` would create a missing one.

        \b
        forge session resume nightly                        a conversation
        forge session resume nightly "And the other one?"   one task

        The flags, the output and the exit codes are those of `forge run`.
        """,
    )
)


@command.command()
@click.argument("name", shell_complete=_complete_session)
@with_options()
def delete(options: Options, name: str) -> None:
    """Delete a session. This cannot be undone.

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
        from forge.project.assemble.access import workspace_root
        from forge.project.runs.sessions import session_store
        from forge.workspace.state.store import copy_state_file, is_writable

        workspace = workspace_root(options.workspace, load_configuration(options.config).root)
        if not (workspace / NAME / FILE).exists():
            if needed is not None:
                hint = "forge run creates one; --workspace names another directory."
                raise Refusal(f"there is no session {needed!r}: none is stored in {workspace}\n{hint}")
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


def _row(info: SessionInfo) -> tuple[str, ...]:
    return info.name, _format_time(info), f"{info.messages:>5} messages", harmless(info.title)


def _format_time(info: SessionInfo) -> str:
    return datetime.fromtimestamp(info.updated).strftime("%Y-%m-%d %H:%M")


def _print_json(value: Any, indent: int | None = None) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent))
