"""`forge console`: the web page of a project, for the person who is responsible for its agent."""

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
    from forge.console.console_state import Home
    from forge.console.running_console import Running

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
    """Until it is told to end. With a prompt, a run is begun first; `settings` and `version` are those of a worker."""
    if options.yes:
        raise click.UsageError("A console is there to be asked, so --yes says too much: write rules instead.")
    with refusals():
        check_installed()
        from forge.console.console_state import open_project
        from forge.project.project import RunOptions

        given = RunOptions(workspace=options.workspace, config=options.config, policy=options.policy, dev=options.dev)
        _quiet_packages(debug=options.debug)
        with _listening(port) as listening:
            home = open_project(
                given, model=model, database=database, version=version, notes=_notes(options), settings=settings
            )
            if grace is not None:
                home.grace = grace
            asyncio.run(_until_told(_served(home, listening, prompt=prompt, session=session, opens=opens)))
    return 0


def check_installed() -> None:
    """Raises `ToolError` where the extra is not installed."""
    from importlib.util import find_spec

    from forge.core.errors import ErrorKind, ToolError

    missing = [name for name in ("starlette", "uvicorn", "dbos", "sqlalchemy") if find_spec(name) is None]
    if missing:
        words = f"the console needs packages that are not installed: {', '.join(missing)}"
        raise ToolError(words, ErrorKind.CONFIG, "pip install 'forge-tools[console]'")


async def _served(home: Home, listening: socket.socket, *, prompt: str, session: str, opens: bool) -> None:
    from forge.console.api.runs import begin
    from forge.console.running_console import register_console, unregister_console
    from forge.console.server import make_app, serve
    from forge.core.execution.threads import in_thread

    port = listening.getsockname()[1]
    async with home.opened():
        running = register_console(home.workspace, port)
        run = (await in_thread(lambda: begin(home, prompt, session))).id if prompt else ""

        def ready() -> None:
            _introduce(home, running, run, opens=opens)

        try:
            await serve(make_app(home, running.entrance, port), home, listening, ready)
        finally:
            unregister_console(running)


def _introduce(home: Home, running: Running, run: str, *, opens: bool) -> None:
    link = running.url + (f"&run={run}" if run else "")
    click.echo(f"forge: the console of {home.workspace} is at", err=True)
    click.echo(link)
    click.echo("forge: the link works once; forge console --url prints another. Ctrl-C ends the console.", err=True)
    for problem in home.problems:
        click.echo(f"forge: {problem}", err=True)
    if not home.has_model:
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


def _listening(port: int | None) -> AbstractContextManager[socket.socket]:
    for number in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((HOST, number))
        except OSError as error:
            problem = error.strerror or str(error)
    raise Refusal(f"cannot listen on {HOST} port {port}: {problem}\nChoose another --port.")


def _notes(options: Options) -> list[str]:
    """What the page says as well as the terminal: the project's file is not what is in force."""
    from forge.project.trust import Found, notice, standing

    if options.config is not None and not isinstance(options.config, Found):
        return []
    told = notice(standing(workspace_of(options)))
    return [f"{told}."] if told else []


def _quiet_packages(*, debug: bool) -> None:
    """What they log holds what pages sent: of interest to whoever looks for an error, and to nobody else."""
    for name in ("uvicorn", "starlette"):
        log = logging.getLogger(name)
        log.propagate = False
        log.handlers = logging.getLogger("forge").handlers if debug else [logging.NullHandler()]


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """To its end, or until SIGTERM or Ctrl-C; what it has to clean up it cleans up. Told twice, at once."""
    task = asyncio.ensure_future(work)
    told = False

    def end(number: signal.Signals) -> None:
        nonlocal told
        if told:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        told = True
        task.cancel()

    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, end, one)
    try:
        await task
    except asyncio.CancelledError:
        if not told:
            raise
