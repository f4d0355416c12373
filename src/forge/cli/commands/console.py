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
from forge.cli.refusal import Refusal, listen_problem, refusals
from forge.core.extras import check_extra

if TYPE_CHECKING:  # an extra, and slow to import
    from forge.console.console_state import ConsoleState
    from forge.console.running_console import RunningConsole

PORT = 8485
HOST = "127.0.0.1"
DATABASE = "Database of the runs. Default: FORGE_DATABASE, else the configured one, else a file in .forge."


@click.command("console")
@with_options("policy", "dev")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    help=f"Port. Default: {PORT}, or a free one if that is taken.",
)
@click.option(
    "--model", metavar="NAME", help="Model, such as anthropic:MODEL, openai:MODEL, ollama:MODEL, scripted:FILE."
)
@click.option("--database", metavar="URL", help=DATABASE)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--url", is_flag=True, help="Print a new link to the running console of this workspace, and exit.")
def command(options: Options, url: bool, **flags: Any) -> int:
    """Open the web console of this project, on this machine.

    \b
    forge console                 start it, and print a link that works once
    forge console --url           print another link, for another browser

    It shows approvals, runs, tools, the policy, schedules, memory and workers. It processes the runs that are started
    there, and other runs of the same database. Without a model there is no chat; everything else works.

    The page is served on 127.0.0.1 only. The link works once, within ten minutes, and sets a cookie in that browser.

    \b
    Exit codes: 0 stopped (SIGTERM, Ctrl-C), or --url succeeded
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
    with refusals():
        check_extra("console", "the console cannot be opened")
        from forge.console.console_state import open_project
        from forge.project.project import RunOptions

        given = RunOptions(workspace=options.workspace, config=options.config, policy=options.policy, dev=options.dev)
        _silence_packages(debug=options.debug)
        with _open_socket(port) as listening:
            state = open_project(
                given, model=model, database=database, version=version, notes=_notes(options), settings=settings
            )
            if grace is not None:  # it is a worker, too
                from forge.project.runs.project_worker import health_address

                state.grace = grace
                state.settings.setdefault("health", health_address(state.project.configuration))
            asyncio.run(
                _run_until_signal(_serve_until_closed(state, listening, prompt=prompt, session=session, opens=opens))
            )
    return 0


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
    click.echo("forge: the link works once; forge console --url prints another. Ctrl-C stops the console.", err=True)
    for problem in state.problems:
        click.echo(f"forge: {problem}", err=True)
    if not state.has_model:
        click.echo("forge: there is no model, so there is no chat; everything else works", err=True)
    if opens:
        import webbrowser

        webbrowser.open(link)


def _print_link(options: Options) -> int:
    with refusals():
        from forge.console.running_console import find_console

        running = find_console(Path(workspace_of(options)).resolve())
        if running is None:
            raise Refusal("no console is running for this workspace\n`forge console` starts one.")
    click.echo(running.url)
    return 0


def _open_socket(port: int | None) -> AbstractContextManager[socket.socket]:
    for number in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((HOST, number))
        except OSError as error:
            problem = listen_problem(error)
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
