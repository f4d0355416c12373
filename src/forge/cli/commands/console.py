"""`forge console`: serves the web console of a project."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options, with_options, workspace_of
from forge.cli.refusal import Refusal, refusals

if TYPE_CHECKING:  # an extra, and slow to import
    from forge.console.console_state import ConsoleState
    from forge.console.running_console import RunningConsole

PORT = 8485
HOST = "127.0.0.1"
DATABASE = "Where runs are kept; by default FORGE_DATABASE, else what the configuration says, else a file in .forge."


@click.command("console")
@with_options
@click.option(
    "--port", type=click.IntRange(0, 65535), default=None, help=f"By default {PORT}, or a free one if that is taken."
)
@click.option("--model", metavar="NAME", help="Such as anthropic:MODEL, openai:MODEL, ollama:MODEL, scripted:FILE.")
@click.option("--database", metavar="URL", help=DATABASE)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--url", is_flag=True, help="Print a new link to the console that runs for this workspace, and end.")
def command(options: Options, url: bool, **flags: Any) -> int:
    """Look at what the agent does, and say yes or no: a web page of this project, on this machine.

    \b
    forge console                 prints a link that works once
    forge console --url           another link, for another browser

    Approvals, runs, tools, the policy, schedules, memory and workers. It works on the runs that are begun there, and on
    others of the same database. Without a model there is no chat; the rest works.

    The page is served on 127.0.0.1 only. The link works once and for ten minutes, and becomes a cookie of that browser.

    \b
    Exit codes: 0 it was told to end (SIGTERM, Ctrl-C), and for --url
                2 a flag, the configuration, a policy, the workspace or the port cannot be used
    """
    if url:
        return _print_link(options)
    return serve_console(options, **flags)


def serve_console(
    options: Options,
    *,
    port: int | None = None,
    model: str | None = None,
    database: str | None = None,
    opens: bool = False,
    prompt: str = "",
    session: str = "",
    version: str = "",
    settings: dict[str, Any] | None = None,
    grace: float | None = None,
) -> int:
    """Serves the console until a signal ends it. A prompt starts a run first; `settings` are a worker's."""
    if options.yes:
        raise click.UsageError("A console is there to be asked, so --yes says too much: write rules instead.")
    with refusals():
        check_installed()
        from forge.console.console_state import open_project
        from forge.project.project import RunOptions

        given = RunOptions(workspace=options.workspace, config=options.config, policy=options.policy, dev=options.dev)
        _silence_packages(debug=options.debug)
        with _open_socket(port) as listening:
            state = open_project(
                given, model=model, database=database, version=version, notes=_notes(options), settings=settings
            )
            if grace is not None:
                state.grace = grace
            asyncio.run(
                _run_until_signal(_serve_until_closed(state, listening, prompt=prompt, session=session, opens=opens))
            )
    return 0


def check_installed() -> None:
    """Raises `ToolError` if the extra is not installed."""
    from importlib.util import find_spec

    from forge.core.errors import ErrorKind, ToolError

    missing = [name for name in ("starlette", "uvicorn", "dbos", "sqlalchemy") if find_spec(name) is None]
    if missing:
        words = f"the console needs packages that are not installed: {', '.join(missing)}"
        raise ToolError(words, ErrorKind.CONFIG, "pip install 'forge-tools[console]'")


async def _serve_until_closed(
    state: ConsoleState, listening: socket.socket, *, prompt: str, session: str, opens: bool
) -> None:
    from forge.console.api.runs import begin
    from forge.console.running_console import register_console, unregister_console
    from forge.console.server import make_app, serve
    from forge.core.execution.threads import in_thread

    port = listening.getsockname()[1]
    async with state.opened():
        running = register_console(state.workspace, port)
        run = (await in_thread(lambda: begin(state, prompt, session))).id if prompt else ""

        def ready() -> None:
            _print_greeting(state, running, run, opens=opens)

        try:
            await serve(make_app(state, running.entrance, port), state, listening, ready)
        finally:
            unregister_console(running)


def _print_greeting(state: ConsoleState, running: RunningConsole, run: str, *, opens: bool) -> None:
    link = running.url + (f"&run={run}" if run else "")
    click.echo(f"forge: the console of {state.workspace} is at", err=True)
    click.echo(link)
    click.echo("forge: the link works once; forge console --url prints another. Ctrl-C ends the console.", err=True)
    for problem in state.problems:
        click.echo(f"forge: {problem}", err=True)
    if not state.has_model:
        click.echo("forge: there is no model, so there is no chat; tools, policy and all else work", err=True)
    if opens:
        import webbrowser

        webbrowser.open(link)


def _print_link(options: Options) -> int:
    with refusals():
        from forge.console.running_console import find_console

        running = find_console(Path(workspace_of(options)).resolve())
        if running is None:
            raise Refusal("no console runs for this workspace\n`forge console` starts one.")
    click.echo(running.url)
    return 0


def _open_socket(port: int | None) -> AbstractContextManager[socket.socket]:
    for number in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((HOST, number))
        except OSError as error:
            problem = error.strerror or str(error)
    raise Refusal(f"cannot listen on {HOST} port {port}: {problem}\nChoose another --port.")


def _notes(options: Options) -> list[str]:
    """Returns the notes that the page shows, too: the effective configuration is not the project's file."""
    from forge.project.trust import FoundConfig, notice, trust_state

    if options.config is not None and not isinstance(options.config, FoundConfig):
        return []
    warning = notice(trust_state(workspace_of(options)))
    return [f"{warning}."] if warning else []


def _silence_packages(*, debug: bool) -> None:
    """Silences the logs of packages, except with --debug: they hold text that pages sent."""
    for name in ("uvicorn", "starlette"):
        log = logging.getLogger(name)
        log.propagate = False
        log.handlers = logging.getLogger("forge").handlers if debug else [logging.NullHandler()]


async def _run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Runs to the end, or until SIGTERM or Ctrl-C, and cleans up. A second signal ends the process at once."""
    task = asyncio.ensure_future(work)
    is_ending = False

    def end(number: signal.Signals) -> None:
        nonlocal is_ending
        if is_ending:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        is_ending = True
        task.cancel()

    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, end, one)
    try:
        await task
    except asyncio.CancelledError:
        if not is_ending:
            raise
