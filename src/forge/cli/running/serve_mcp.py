"""Serves the tools of `forge serve`, or its agent, until the client is gone or a signal arrives."""

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
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from forge.agent.agent import Agent
from forge.cli.options import Options
from forge.cli.refusal import Refusal, listen_problem, refusals
from forge.cli.running.event_log import log_events
from forge.core.errors import DefinitionError
from forge.core.extras import check_extra
from forge.mcp.server import ATTEMPT, ElicitingApprover, Offered, serve_http, serve_stdio
from forge.mcp.server.auth_settings import ResourceAuth
from forge.models.vendors import provider_for
from forge.permissions.questions import approve_all, nobody
from forge.project.project import Project
from forge.project.trust import FoundConfig
from forge.project.version import version

SHORTEST_TOKEN = 16  # characters
PATIENCE = 0.5  # seconds for listeners to see the last events
AGUI = "/agui"
LOGS = ("mcp", "uvicorn", "anyio")  # names of the packages' loggers


def serve(options: Options, flags: dict[str, Any]) -> int:
    with refusals():
        check_extra("mcp", ATTEMPT)  # before anything is opened
        project = Project(
            replace(options.for_project(), code_mode=flags["code_mode"]),
            report=lambda problem: click.echo(f"forge: {problem}", err=True),
        )
        agent = project.agent(with_model=False, approve=approve_all if options.yes else ElicitingApprover())
        _silence_packages(debug=options.debug)
        with log_events(agent.activity, project.workspace, flags["audit"], wanted=not flags["no_audit"]):
            run_server = _serve_http if flags["http"] else _serve_stdio
            asyncio.run(run_until_signal(run_server(agent, project, flags)))
    return 0


NOT_OF_AGUI = ("http", "issuer", "resource", "require_scope", "everything", "code_mode", "print_config")


def serve_agui(options: Options, flags: dict[str, Any]) -> int:
    """Serves the agent to front ends."""
    with refusals():
        check_extra("agui", "the agent cannot be served to front ends")
        if named := [f"--{name.replace('_', '-')}" for name in NOT_OF_AGUI if flags[name]]:
            names = ", ".join(named).replace("everything", "all").replace("code-mode", "code")
            raise Refusal(f"--agui serves the agent, and {names} belongs to the MCP server\nLeave one of them out.")
        host = flags["host"]
        token = _token(flags["token_env"], host, has_issuer=False)
        project = Project(options.for_project(), report=lambda problem: click.echo(f"forge: {problem}", err=True))
        agent = project.agent(flags["model"], approve=approve_all if options.yes else nobody)
        agent.secrets.learn([token])
        _silence_packages(debug=options.debug)
        with log_events(agent.activity, project.workspace, flags["audit"], wanted=not flags["no_audit"]):
            asyncio.run(run_until_signal(_serve_agui(agent, flags, token)))
    return 0


async def _serve_agui(agent: Agent, flags: dict[str, Any], token: str) -> None:
    from forge.doors.agui import agui_app
    from forge.network.serve import serve_app

    host = flags["host"]
    app = agui_app(agent, token=token, hosts=(host, *flags["allow_host"]), path=AGUI)
    with open_socket(host, flags["port"]) as listening:
        url = _url(host, listening.getsockname()[1], AGUI)

        def ready() -> None:
            click.echo(f"forge: serving the agent at {url}", err=True)
            if flags["token_env"] is None:
                click.echo(f"forge: front ends send the header Authorization: Bearer {token}", err=True)
            if not _is_loopback(host):
                click.echo("forge: anyone who reaches this address can try tokens, and there is no TLS", err=True)

        async with app:
            await serve_app(app, listening, ready, lifespan="off")


def print_config(options: Options, flags: dict[str, Any]) -> int:
    """Prints the entry for other clients, under the name of the workspace."""
    workspace = Path(options.workspace or ".").resolve()
    name = re.sub(r"[^a-zA-Z0-9_-]+", "-", workspace.name).strip("-") or "forge"
    entry = _http_entry(flags) if flags["http"] else _stdio_entry(options, flags, workspace)
    click.echo(json.dumps({"mcpServers": {name: entry}}, indent=2, ensure_ascii=False))
    return 0


async def _serve_stdio(agent: Agent, project: Project, flags: dict[str, Any]) -> None:
    answered = asyncio.Event()
    async with _open_agent(agent, answered) as loading:
        offered = _offer(agent, project, flags, loading)
        await serve_stdio(agent.executor, project.scope, ready=answered.set, **offered)


def _offer(agent: Agent, project: Project, flags: dict[str, Any], loading: asyncio.Future[None]) -> Offered:
    """Returns what is served beside the tools. Files are resources only if the project has a tool that reads them."""
    model = project.configuration.agent.model
    return {
        "version": version(),
        "everything": flags["everything"],
        "files": "file_read" in agent.registry,
        "skills": lambda: project.skills,
        "model": (lambda: provider_for(model)) if model else None,
        "loading": loading,
    }


async def _serve_http(agent: Agent, project: Project, flags: dict[str, Any]) -> None:
    import forge.mcp.server.http
    import forge.mcp.server.offer  # noqa: F401 - before the sources, which load the SDK in a thread

    host = flags["host"]
    named = {key: flags[key] for key in ("issuer", "resource") if flags[key]}
    named |= {"required_scopes": flags["require_scope"]} if flags["require_scope"] else {}
    configured = {**_configured_auth(project), **named}
    token = _token(flags["token_env"], host, has_issuer="issuer" in configured)
    agent.secrets.learn(filter(None, (token, configured.get("client_secret", ""))))
    with open_socket(host, flags["port"]) as listening:
        url = _url(host, listening.getsockname()[1])
        auth = _resource_auth(configured, url)
        async with _open_agent(agent) as loading:

            def ready() -> None:
                _report_tools(agent, url, loading)
                if auth is not None:
                    click.echo(f"forge: clients need an access token of {auth.issuer} for {auth.resource}", err=True)
                elif flags["token_env"] is None:
                    click.echo(f"forge: clients send the header Authorization: Bearer {token}", err=True)
                if not _is_loopback(host):
                    click.echo("forge: anyone who reaches this address can try tokens, and there is no TLS", err=True)

            await serve_http(
                agent.executor,
                project.scope,
                listening=listening,
                token=token,
                auth=auth,
                hosts=(host, *flags["allow_host"]),
                ready=ready,
                **_offer(agent, project, flags, loading),
            )


def _report_tools(agent: Agent, url: str, loading: asyncio.Future[None]) -> None:
    """Says where the tools are served, and how many there are once all sources are open."""

    def count() -> str:
        found = sum(not one.spec.only_talks for one in agent.registry.values())
        return f"{found} tool{'s' if found != 1 else ''}"

    if loading.done():
        click.echo(f"forge: serving {count()} at {url}", err=True)
        return
    click.echo(f"forge: serving at {url}; the project's sources are being opened", err=True)
    loading.add_done_callback(
        lambda done: None if done.cancelled() else click.echo(f"forge: serving {count()}", err=True)
    )


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
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
async def _open_agent(agent: Agent, after: asyncio.Event | None = None) -> AsyncIterator[asyncio.Future[None]]:
    """Opens the project's sources beside the server, after an event; the future is done when they are open.

    At the end waits until listeners have seen the last events.
    """
    serving = asyncio.current_task()
    assert serving is not None
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    closing = asyncio.Event()

    async def hold() -> None:
        if after is not None:
            await after.wait()
        async with agent:
            if not opened.done():
                opened.set_result(None)
            await closing.wait()

    holding = asyncio.create_task(hold())
    holding.add_done_callback(lambda _: closing.is_set() or serving.cancel())
    try:
        await asyncio.sleep(0)  # a project without sources is open at once
        yield opened
    finally:
        closing.set()
        if not opened.done():
            holding.cancel()
            opened.cancel()
        await asyncio.wait({holding})
        await agent.activity.drain(PATIENCE)
        if not holding.cancelled() and (error := holding.exception()) is not None:
            raise error


def _configured_auth(project: Project) -> dict[str, Any]:
    """Returns `serve.auth` of forge.yaml, with the secret of its variable."""
    said = dict(project.configuration.serve.auth) if project.configuration.serve else {}
    if variable := said.pop("client_secret_env", ""):
        said["client_secret"] = os.environ.get(variable, "")
        if not said["client_secret"]:
            raise Refusal(f"serve.auth.client_secret_env: the variable {variable} is not set\nSet it before you start.")
    return said


def _resource_auth(said: dict[str, Any], url: str) -> ResourceAuth | None:
    """Returns the settings of flags and forge.yaml; None without an issuer."""
    if "issuer" not in said:
        if said:
            raise Refusal("--resource and --require-scope need an issuer\nName one: --issuer URL")
        return None
    try:
        return ResourceAuth(**{"resource": url, **said})
    except DefinitionError as error:
        raise Refusal(f"serve.auth cannot be used: {error}\nChange it in forge.yaml or in the flags.") from None


def _token(variable: str | None, host: str, *, has_issuer: bool) -> str:
    if variable is None:
        if has_issuer:
            return ""
        if not _is_loopback(host):
            problem = f"--host {host} can be reached from other machines, but there is no token"
            raise Refusal(f"{problem}\nName the variable that holds one: --token-env NAME, or name an --issuer")
        return secrets.token_urlsafe(32)
    token = os.environ.get(variable, "")
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        problem = f"--token-env {variable}: the variable holds no token of {SHORTEST_TOKEN} plain characters or more"
        raise Refusal(f"{problem}\nSet it to one before you start.")
    return token


@contextmanager
def open_socket(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = listen_problem(error)
        raise Refusal(f"cannot listen on {host} port {port}: {problem}\nChoose another --port or --host.") from None
    with listening:
        yield listening


def _url(host: str, port: int, path: str = "/mcp") -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


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
        "--code": flags["code_mode"],
        "--no-audit": flags["no_audit"],
    }
    arguments = [*first, "serve", "--workspace", str(workspace)]
    arguments += [text for flag, path in files.items() if path for text in (flag, str(Path(path).resolve()))]
    return {"command": command, "args": [*arguments, *(flag for flag, given in flags.items() if given)]}


def _http_entry(flags: dict[str, Any]) -> dict[str, Any]:
    if flags["issuer"] and not flags["token_env"]:  # the client logs in
        return {"type": "http", "url": flags["resource"] or _url(flags["host"], flags["port"])}
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
    return [sys.executable, "-P", "-m", "forge"]  # -P: files of the project are not our modules
