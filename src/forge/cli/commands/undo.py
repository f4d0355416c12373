"""`forge undo`: lists the file changes of a session and undoes them."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
from click.core import ParameterSource

from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals


@click.command("undo")
@with_options(
    "policy",
    "yes",
    "session",
    "dev",
    yes="Undo without a question. What a rule denies stays denied.",
    session="Session whose changes are undone. Default: the one with the latest change.",
)
@click.option("--list", "listed", is_flag=True, help="Only list the changes that can be undone.")
@click.option("--call", "call_id", metavar="ID", default="", help="Undo the changes of this call.")
@click.option("--turn", metavar="ID", default="", help="Undo the changes of this turn.")
@click.pass_context
def command(context: click.Context, options: Options, listed: bool, call_id: str, turn: str) -> int:
    """Undo file changes of an agent.

    By default the last change is undone; --call and --turn choose others.

    \b
    forge undo --list

    The command first shows the difference and asks. If one of the files has changed since, nothing of that call or turn
    is undone. An undo can be undone, too: pass its call with --call.

    Without --session, it applies to the session with the latest change.

    \b
    Exit codes: 0 undone, or listed     1 it could not be undone: the result says why
                2 a flag, the configuration, a policy or the workspace cannot be used
    """
    if call_id and turn:
        raise click.UsageError("--call and --turn cannot be combined. Remove one of them.")
    arguments = {"action": "list" if listed else "apply", "call_id": call_id, "turn": turn}
    named = context.get_parameter_source("session") is not ParameterSource.DEFAULT
    return _call_undo(
        options, {key: value for key, value in arguments.items() if value}, options.session if named else ""
    )


def _call_undo(options: Options, arguments: dict[str, Any], session: str) -> int:
    """Calls the tool through the same steps and the same policy as the agent does; the agent may lack the tool."""
    from forge.cli.running.event_log import log_events
    from forge.cli.terminal.approve import ask_on_terminal
    from forge.cli.terminal.keyboard import write_all
    from forge.cli.terminal.print_result import as_line, as_text
    from forge.core.messages import ToolCall
    from forge.permissions.questions import approve_all, nobody
    from forge.project.project import Project, RunOptions  # the whole pipeline, which showing the help does without
    from forge.tools.undo import Undo

    at_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    approve = approve_all if options.yes else ask_on_terminal if at_terminal else nobody
    with refusals():
        project = Project(
            RunOptions(workspace=options.workspace, config=options.config, policy=options.policy, dev=options.dev)
        )
        agent = project.agent(with_model=False, approve=approve)
        if "undo" not in agent.registry:
            agent.registry.add(Undo())
        scope = replace(
            project.scope, session_id=session or _latest_session(project.workspace), message_id=uuid4().hex[:12]
        )
    call = ToolCall("undo", arguments)

    async def work() -> int:
        result = await agent.executor.execute(call, scope)
        if options.json or not sys.stdout.isatty():
            write_all(as_line(result, call.id, "undo"))
        else:
            click.echo(as_text(result))
        await agent.activity.drain()
        return 0 if result.success else 1

    with log_events(agent.activity, scope.workspace, None, wanted=True):
        return asyncio.run(work())


def _latest_session(workspace: Path) -> str:
    """Returns the session with the latest change."""
    from forge.workspace.history.tracking import SessionState

    sessions = SessionState(workspace).undo.sessions()
    return sessions[0] if sessions else "cli"
