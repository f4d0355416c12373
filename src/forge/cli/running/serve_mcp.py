"""Serves the tools of `forge serve` until the client is gone or a signal arrives."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import click

from forge.agent.agent import Agent
from forge.cli.options import Options
from forge.cli.refusal import Refusal, refusals
from forge.cli.running.event_log import log_events
from forge.core.context import Scope
from forge.core.registry import CONVERSATION
from forge.exports.mcp_server import ElicitingApprover, serve_http, serve_stdio
from forge.permissions.answers import approve_all
from forge.project.project import Project, RunOptions
from forge.project.trust import FoundConfig
from forge.project.version import version

SHORTEST_TOKEN = 16  # characters
PATIENCE = 0.5  # seconds for listeners to see the last events
LOGS = ("mcp", "uvicorn", "anyio")  # names of the packages' loggers


def serve(options: Options, flags: dict[str, Any]) -> int:
    with refusals():
        project = Project(
            RunOptions(
                workspace=options.workspace,
                config=options.config,
                policy=options.policy,
                session=options.session,
                dev=options.dev,
            ),
            report=lambda problem: click.echo(f"forge: {problem}", err=True),
        )
        agent = project.agent(with_model=False, approve=approve_all if options.yes else ElicitingApprover())
        _silence_packages(debug=options.debug)
        with log_events(agent.activity, project.workspace, flags["audit"], wanted=not flags["no_audit"]):
            run_server = _serve_http if flags["http"] else _serve_stdio
            asyncio.run(_run_until_signal(run_server(agent, project.scope, flags)))
    return 0


def print_config(options: Options, flags: dict[str, Any]) -> int:
    """Prints the entry for other clients, under the name of the workspace."""
    workspace = Path(options.workspace or ".").resolve()
    name = re.sub(r"[^a-zA-Z0-9_-]+", "-", workspace.name).strip("-") or "forge"
    entry = _http_entry(flags) if flags["http"] else _stdio_entry(options, flags, workspace)
    click.echo(json.dumps({"mcpServers": {name: entry}}, indent=2, ensure_ascii=False))
    return 0


async def _serve_stdio(agent: Agent, scope: Scope, flags: dict[str, Any]) -> None:
    async with _open_agent(agent):
        await serve_stdio(agent.executor, scope, version=version(), everything=flags["everything"])


async def _serve_http(agent: Agent, scope: Scope, flags: dict[str, Any]) -> None:
    host = flags["host"]
    token = _token(flags["token_env"], host)
    agent.secrets.add(token)
    with _open_socket(host, flags["port"]) as listening:
        url = _url(host, listening.getsockname()[1])

        def ready() -> None:
            count = sum(name not in CONVERSATION for name in agent.registry)
            click.echo(f"forge: serving {count} tool{'s' if count != 1 else ''} at {url}", err=True)
            if flags["token_env"] is None:
                click.echo(f"forge: clients send the header Authorization: Bearer {token}", err=True)
            if not _is_loopback(host):
                click.echo("forge: anybody who reaches this address can try tokens, and there is no TLS", err=True)

        async with _open_agent(agent):
            await serve_http(
                agent.executor,
                scope,
                listening=listening,
                token=token,
                hosts=(host, *flags["allow_host"]),
                version=version(),
                everything=flags["everything"],
                ready=ready,
            )


async def _run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Runs to the end or until SIGTERM, and cleans up."""
    task = asyncio.ensure_future(work)
    is_ending = False

    def end() -> None:
        nonlocal is_ending
        is_ending = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    try:
        await task
    except asyncio.CancelledError:
        if not is_ending:
            raise


@asynccontextmanager
async def _open_agent(agent: Agent) -> AsyncIterator[None]:
    """Opens the project's sources, and afterwards waits until listeners have seen the last events."""
    try:
        async with agent:
            yield
    finally:
        await agent.activity.drain(PATIENCE)


def _token(variable: str | None, host: str) -> str:
    if variable is None:
        if not _is_loopback(host):
            problem = f"--host {host} can be reached by others, and there is no token"
            raise Refusal(f"{problem}\nName the variable that holds one: --token-env NAME")
        return secrets.token_urlsafe(32)
    token = os.environ.get(variable, "")
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        problem = f"--token-env {variable}: the variable holds no token of {SHORTEST_TOKEN} plain characters or more"
        raise Refusal(f"{problem}\nSet it to one before you start.")
    return token


@contextmanager
def _open_socket(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise Refusal(f"cannot listen on {host} port {port}: {problem}\nChoose another --port or --host.") from None
    with listening:
        yield listening


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _silence_packages(*, debug: bool) -> None:
    """Silences the logs of packages, except with --debug: they hold text that clients sent."""
    for name in LOGS:
        log = logging.getLogger(name)
        log.propagate = False
        log.handlers = logging.getLogger("forge").handlers if debug else [logging.NullHandler()]


def _stdio_entry(options: Options, flags: dict[str, Any], workspace: Path) -> dict[str, Any]:
    command, *first = _own_command()
    named = None if isinstance(options.config, FoundConfig) else options.config  # the client's command finds it again
    files = {"--config": named, "--policy": options.policy, "--audit": flags["audit"]}
    flags = {
        "--yes": options.yes,
        "--dev": options.dev,
        "--all": flags["everything"],
        "--no-audit": flags["no_audit"],
    }
    arguments = [*first, "serve", "--workspace", str(workspace)]
    arguments += [text for flag, path in files.items() if path for text in (flag, str(Path(path).resolve()))]
    return {"command": command, "args": [*arguments, *(flag for flag, given in flags.items() if given)]}


def _http_entry(flags: dict[str, Any]) -> dict[str, Any]:
    token = f"${{{flags['token_env'] or 'FORGE_TOKEN'}}}"
    return {
        "type": "http",
        "url": _url(flags["host"], flags["port"]),
        "headers": {"Authorization": f"Bearer {token}"},
    }


def _own_command() -> list[str]:
    """Returns the command that starts this program from any directory."""
    started = Path(sys.argv[0])
    if started.name == "forge" and started.is_file():
        return [str(started.absolute())]
    return [sys.executable, "-m", "forge"]
