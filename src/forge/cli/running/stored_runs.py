"""Opens the stored runs of a project for commands, and renders them for people and programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import colour_diff, harmless, is_diff
from forge.core.errors import ToolError
from forge.project.config.load import load_configuration

if TYPE_CHECKING:
    from forge.cli.running.next_commands import Commands
    from forge.core.messages import Message
    from forge.durable.client import Runs
    from forge.durable.store.rows import RunInfo


class StoredRuns(NamedTuple):
    """The stored runs and the commands that name them. `runs` is None if nothing is stored yet."""

    runs: Any  # `Runs`, which is an extra
    workspace: Path
    commands: Any  # `Commands`
    is_own: bool = False  # the database belongs to this workspace alone

    def store_finished(self) -> None:
        """Stores all finished runs in their sessions before they are removed. Raises `ToolError`."""
        if self.is_own:
            from forge.project.runs.durable_runs import store_finished_runs

            store_finished_runs(self.runs.store, self.workspace, limit=1_000_000)


def with_database(function: Callable[..., Any], flags: Sequence[str] = ()) -> Callable[..., Any]:
    """Give a command the common flags, these ones included, and --database."""
    text = "Database of the runs. Default: FORGE_DATABASE, else the configured one, else a file in .forge."
    return click.option("--database", metavar="URL", help=text)(with_options(*flags)(function))


@contextmanager
def open_stored_runs(options: Options, database: str | None, needed: str | None = None) -> Iterator[StoredRuns]:
    """Opens the stored runs. Reading creates no database: `needed` is a run that must exist, or the command ends."""
    with refusals():
        from forge.cli.running.next_commands import Commands
        from forge.project.assemble.access import workspace_root
        from forge.project.runs.durable_runs import check_installed, is_own, project_database

        check_installed()
        configuration = load_configuration(options.config)
        workspace = workspace_root(options.workspace, configuration.root)
        url = project_database(configuration, workspace, database)
        own, commands = is_own(url, workspace), Commands(options, database)
        missing = _missing_file(url)
        if missing is not None:
            if needed is not None:
                hint = "forge run --durable begins one; --workspace or --database say where else to look."
                raise Refusal(f"there is no run {needed!r}: none is stored in {workspace if own else missing}\n{hint}")
            yield StoredRuns(None, workspace, commands)
            return
        from forge.durable.client import Runs

        with Runs(url) as runs, commands.complete_suggestions():
            yield StoredRuns(runs, workspace, commands, own)
            if own:
                _store_finished(runs, workspace)


def _missing_file(url: str) -> Path | None:
    """Returns the database file if it does not exist."""
    if not url.startswith("sqlite:"):
        return None
    from forge.durable.store.database import parse_url

    path = Path(str(parse_url(url).database))
    return None if path.exists() else path


def _store_finished(runs: Any, workspace: Path) -> None:
    """Stores finished runs in their sessions. A failure is only printed, because no one asked for this."""
    from forge.project.runs.durable_runs import store_finished_runs

    try:
        store_finished_runs(runs.store, workspace, limit=20)
    except ToolError as error:
        click.echo(f"forge: finished runs are not stored in their sessions yet: {error.message}", err=True)
    except OSError as error:
        click.echo(f"forge: finished runs are not stored in their sessions yet: {error.strerror or error}", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


# Renders stored runs for people and programs.


LONGEST_PROMPT = 60  # characters of a prompt in a list


def run_lines(runs: Runs, run: RunInfo, commands: Commands) -> Iterator[str]:
    from forge.cli.running.waiting_runs import waiting_lines

    yield click.style(f"{run.id}  {state_of(run)}", bold=True)
    fields = {
        "agent": run.agent,
        "session": run.session,
        "tenant": run.tenant,
        "queue": run.queue,
        "version": run.version,
        "model": run.model,
        "user": str(run.scope.get("user") or ""),
        "worker": run.worker,
        "parent": run.parent,
        "began": format_time(run.created),
        "changed": format_time(run.updated),
        "segment": str(run.segment),
    }
    yield from (f"  {name:<8} {harmless(value)}" for name, value in fields.items() if value)
    if (mark := runs.marks([run.id]).get(run.id)) is not None:
        yield harmless(f"  mark     {mark.verdict}, by {mark.by}{f': {mark.note}' if mark.note else ''}")
    yield from (harmless(line) for line in waiting_lines(runs, run, commands))
    for child in runs.list(parent=run.id, limit=1_000):
        yield f"  started  {child.id}  {state_of(child)}  {shorten_prompt(child.prompt)}"
    for question in runs.questions(run.id):
        if preview := str(question.request.get("preview") or "").rstrip("\n"):
            yield ""
            yield colour_diff(harmless(preview)) if is_diff(preview) else harmless(preview)
    yield ""
    yield from (render_message(message) for message in runs.messages(run.id) if message.role != "system")
    error = (run.result or {}).get("error")
    if error:
        yield click.style(harmless(f"Error: {error.get('message', '')}"), fg="red")


def run_fields(run: RunInfo) -> dict[str, Any]:
    return asdict(run)


def state_of(run: RunInfo) -> str:
    return "cancelling" if run.cancelling and not run.is_over else run.status


def shorten_prompt(prompt: str) -> str:
    line = " ".join(harmless(prompt).split())
    return line if len(line) <= LONGEST_PROMPT else f"{line[: LONGEST_PROMPT - 1]}…"


def format_time(moment: float) -> str:
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M")


def render_message(message: Message) -> str:
    from forge.cli.terminal.render import describe_call

    lines = [click.style(f"{message.role}:", bold=True)] if message.role != "tool" else []
    lines += [harmless(message.text)] if message.text else []
    lines += [click.style(f"→ {harmless(describe_call(call))}", fg="cyan") for call in message.tool_calls]
    lines += [f"[attachment {harmless(one.name)}: {harmless(one.media_type)}]" for one in message.attachments]
    if message.role == "tool":
        return "\n".join(f"  {click.style(line, dim=True)}" for line in "\n".join(lines).split("\n"))
    return "\n".join(lines)
