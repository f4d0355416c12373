"""`forge mcp`: lists the project's MCP servers, approves their tools, logs in to them, and searches for new ones."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from forge.cli.commands.mcp_servers import add, install, remove
from forge.cli.group import CommandGroup
from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import colour_diff, harmless
from forge.core.errors import ToolError
from forge.mcp.pins import PinState, format_definition

if TYPE_CHECKING:
    from forge.mcp.client.source import McpSource
    from forge.mcp.client.tools import McpTool
    from forge.mcp.oauth.login import Browser, Login, Redirect


BY = "forge mcp approve"
_COLOURS = {"new": "yellow", "changed": "red", "pinned": "green", "unknown": "red"}


@click.group("mcp", cls=CommandGroup)
def command() -> None:
    """Add, list and remove MCP servers of a project, and approve their tools.

    A tool that was never approved asks before each call, until a person approves one. A tool whose definition changed
    since its approval always needs a person: neither a rule nor --yes can approve it. The same applies if it is unknown
    what was approved.
    """


for _one in (add, install, remove):
    command.add_command(_one)


@command.command("list")
@with_options()
def list_(options: Options) -> int:
    """Start every server and list its tools and their states.

    The state is pinned, new, changed or unknown. Pinned tools are approved and unchanged. Changed tools differ from
    their approved definition. Tools are unknown if .forge/pins.json was damaged, so that it is not known what was
    approved: a person must review them again.

    \b
    forge mcp list --json

    \b
    With --json: {"servers": [{name, target, state: up|down, error, login: none|stored|needed,
                  tools: [{name, tool, state, hidden}], left_out: {name: why}, problems: []}]}.
    Exit codes: 0 every server answers     1 one does not     2 a flag or the configuration cannot be used
    """
    with refusals():
        servers = asyncio.run(_inspect_servers(_servers(options)))
    if options.json:
        click.echo(json.dumps({"servers": servers}, ensure_ascii=False))
    elif not servers:
        click.echo("No MCP server is configured. Name a forge.yaml with mcpServers: --config FILE.", err=True)
    else:
        for server in servers:
            _print_server(server)
    return 1 if any(server["state"] == "down" for server in servers) else 0


@command.command()
@click.argument("server")
@with_options("yes", yes="Approve all new tools without a question.")
def approve(options: Options, server: str) -> int:
    """Show the new and changed tools of a server, and approve them.

    \b
    forge mcp approve git

    With --yes, all new tools are approved. Changed and unknown tools still need a person at a terminal.

    \b
    Exit codes: 0 all tools of the server are approved     1 some are not
                2 a flag, the configuration or the server cannot be used
    """
    with refusals():
        chosen = _find_server(_servers(options), server)
        approved, left = asyncio.run(_approve_tools(chosen, yes=options.yes))
    if options.json:
        click.echo(json.dumps({"server": server, "approved": approved, "left": left}, ensure_ascii=False))
    elif not approved and not left:
        click.echo("There is nothing to approve.")
    else:
        click.echo(f"Approved: {', '.join(approved) or 'nothing'}.")
    for name, why in left.items():
        click.echo(f"{name} is not approved: {why}", err=True)
    return 1 if left else 0


@command.command()
@click.argument("server")
@with_options()
def forget(options: Options, server: str) -> None:
    """Forget the approvals of a server: all its tools are new again.

    \b
    forge mcp forget git
    """
    with refusals():
        servers = _servers(options)
        pins = next(iter(servers.values())).pins if servers else None
        known = [*servers, *(pins.servers() if pins is not None else ())]
        if pins is None or server not in known:
            raise _unknown_server(server, known)
        gone = pins.forget(server)
    if options.json:
        click.echo(json.dumps({"server": server, "forgotten": gone}))
        return
    click.echo(f"Forgotten: {gone} approved {'tool' if gone == 1 else 'tools'} of {harmless(server)}.")


_user_option = click.option(
    "--user", metavar="NAME", default="", help="The user whose login it is, where each user has one (`per_user`)."
)


@command.command()
@click.argument("server")
@click.option("--no-browser", is_flag=True, help="Print the page's URL, and paste the URL that the browser ends at.")
@_user_option
@with_options()
def login(options: Options, server: str, no_browser: bool, user: str) -> None:
    """Log in at a server that wants OAuth. The login is stored for later runs.

    The login is stored in the system's keyring if the package keyring is installed, else in a file that only you can
    read, outside the project. A run never opens a browser.

    \b
    forge mcp login docs
    forge mcp login docs --no-browser
    forge mcp login docs --user ada
    """

    with refusals():
        found = _find_login(_find_server(_servers(options), server), server, user)
        was_needed = asyncio.run(log_in_person(found, browser=not no_browser))
    if options.json:
        click.echo(json.dumps({"server": server, "logged_in": was_needed}))
        return
    click.echo(f"Logged in at {harmless(server)}." if was_needed else f"{harmless(server)} asks for no login.")


@command.command()
@click.argument("server")
@_user_option
@with_options()
def logout(options: Options, server: str, user: str) -> None:
    """Revoke the stored login of a server, and remove it from this machine.

    The login is removed even if its authorization server cannot revoke it.

    \b
    forge mcp logout docs

    \b
    With --json: {"server", "logged_out", "not_revoked": []}.
    """
    with refusals():
        login = _find_login(_find_server(_servers(options), server), server, user)
        problems = asyncio.run(_revoke(login)) if login.is_stored else []
        was_there = login.store.clear()
    for problem in problems:
        click.echo(f"forge: {harmless(problem)}; the tokens stay valid there until they expire", err=True)
    if options.json:
        click.echo(json.dumps({"server": server, "logged_out": was_there, "not_revoked": problems}))
        return
    click.echo(
        f"Logged out of {harmless(server)}." if was_there else f"There is no stored login of {harmless(server)}."
    )


@command.command()
@click.argument("word")
@click.option(
    "--registry", metavar="URL", default="", help="The registry. Default: FORGE_MCP_REGISTRY, or the official one."
)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="The most servers to show.")
@with_options(find_config=False)
def search(options: Options, word: str, registry: str, limit: int) -> int:
    """Search an MCP registry for servers.

    The texts are those of the servers' authors. Being listed says nothing about the quality of a server.

    \b
    forge mcp search weather
    forge mcp search weather --registry https://registry.example.com --json

    With --json: {registry, servers: [{name, version, description, kinds}]}.

    Exit codes: 0 found; 1 nothing found; 2 the registry cannot be used.
    """
    from forge.project.servers.registry import registry_url, search_registry

    url = registry_url(registry)
    with refusals():
        found = asyncio.run(search_registry(word, url, limit=limit))
    if options.json:
        rows = [
            {"name": one.name, "version": one.version, "description": one.description, "kinds": list(one.kinds)}
            for one in found
        ]
        click.echo(json.dumps({"registry": url, "servers": rows}, ensure_ascii=False))
        return 0 if found else 1
    for one in found:
        kinds = ", ".join(one.kinds) or "cannot be used here"
        click.echo(f"{click.style(harmless(one.name), bold=True)}  {harmless(one.version)}  ({kinds})")
        click.echo(f"  {harmless(one.description)}")
    if not found:
        click.echo(f"No server of {harmless(url)} matches {harmless(word)!r}.", err=True)
        return 1
    click.echo(f"Add one with: forge mcp add {harmless(found[0].name)}", err=True)
    return 0


async def _revoke(login: Login) -> list[str]:
    from forge.mcp.oauth.authorizer import revoke_login  # showing the help does without

    return await revoke_login(login)


def _find_login(server: McpSource, name: str, user: str) -> Login:
    if server.login is None:
        raise Refusal(f"{name} takes no login\nIt is a program, or a header Authorization is configured for it.")
    if not server.login.settings.is_personal:
        raise Refusal(
            f"{name} needs no login\nIts grant is {server.login.settings.grant}: Forge gets tokens by itself."
        )
    if user and not server.login.settings.per_user:
        raise Refusal(f"{name} has one login for everybody\nWrite `auth: {{per_user: true}}` to give each user one.")
    return server.login.for_user(user) if user else server.login


def _servers(options: Options) -> dict[str, McpSource]:
    from forge.project.assemble.sources import project_servers  # showing the help does without

    return project_servers(options)


def _find_server(servers: Mapping[str, McpSource], name: str) -> McpSource:
    if name not in servers:
        raise _unknown_server(name, list(servers))
    return servers[name]


def _unknown_server(name: str, known: Sequence[str]) -> Refusal:
    there = (
        f"The configured servers are {', '.join(dict.fromkeys(known))}."
        if known
        else "No server is configured. Add mcpServers to forge.yaml, or name another file with --config."
    )
    return Refusal(f"there is no MCP server {name!r}\n{there}")


async def _inspect_servers(servers: Mapping[str, McpSource]) -> list[dict[str, Any]]:
    return await asyncio.gather(*(_facts(name, server) for name, server in servers.items()))


async def _facts(name: str, server: McpSource) -> dict[str, Any]:
    from forge.mcp.oauth.login import LoginNeeded

    stored = "stored" if server.login is not None and server.login.is_stored else "none"
    facts: dict[str, Any] = {"name": name, "target": server.target, "state": "up", "error": "", "login": stored}
    facts["tools"] = []
    try:
        async with server:
            facts["tools"] = [
                {"name": tool.spec.name, "tool": tool.remote, "state": str(tool.state), "hidden": tool.spec.hidden}
                for tool in server.tools
            ]
    except ToolError as error:
        facts |= {"state": "down", "error": "\n".join(filter(None, (error.message, error.suggestion)))}
        facts |= {"login": "needed"} if isinstance(error, LoginNeeded) else {}
    return {**facts, "left_out": dict(server.left_out), "problems": list(server.problems)}


def _print_server(server: Mapping[str, Any]) -> None:
    login = {"needed": "  login needed", "stored": "  logged in"}.get(server["login"], "")
    click.echo(f"{click.style(server['name'], bold=True)}  {server['state']}{login}  {harmless(server['target'])}")
    for line in filter(None, harmless(server["error"]).split("\n")):
        click.echo(f"  {click.style(line, fg='red')}")
    width = max((len(tool["name"]) for tool in server["tools"]), default=0)
    for tool in server["tools"]:
        state = click.style(tool["state"], fg=_COLOURS[tool["state"]])
        hidden = f"{'':{9 - len(tool['state'])}}hidden" if tool["hidden"] else ""
        click.echo(f"  {tool['name']:<{width}}  {state}{hidden}")
    for problem in server["problems"]:
        click.echo(f"  {click.style(harmless(problem), fg='red')}")
    for name, why in server["left_out"].items():
        click.echo(f"  {harmless(name)} is left out: {harmless(why)}")


async def _approve_tools(server: McpSource, *, yes: bool) -> tuple[list[str], dict[str, str]]:
    """Returns the names of the approved tools, and of the others with the reason."""

    left: dict[str, str] = {}
    chosen: list[McpTool] = []
    async with server:
        if server.pins.problem:
            click.echo(harmless(server.pins.problem), err=True)
        waiting = [tool for tool in server.tools if tool.state is not PinState.PINNED]
        rest = yes  # approve all further new tools
        every = False  # a person said so: approve unknown tools, too
        for number, tool in enumerate(waiting, 1):
            if (rest and tool.state is PinState.NEW) or (every and tool.state is PinState.UNKNOWN):
                chosen.append(tool)
            elif not _at_terminal():
                left[tool.spec.name] = "it needs a person at a terminal" + _yes_hint(tool)
            elif (reply := _ask_person(tool, f"{number} of {len(waiting)}")) != "n":
                chosen.append(tool)
                every = every or reply == "a"
                rest = rest or every
            else:
                left[tool.spec.name] = "you said no"
        if chosen:
            await server.approve(*chosen, by=BY)
            still = {tool.remote for tool in server.tools if tool.state is not PinState.PINNED}
            for tool in [one for one in chosen if one.remote in still]:
                chosen.remove(tool)
                left[tool.spec.name] = "the approval could not be stored, or the tool changed again"
    return [tool.spec.name for tool in chosen], left


def _yes_hint(tool: McpTool) -> str:
    return "" if tool.needs_person else ", or --yes"


def _ask_person(tool: McpTool, which: str) -> str:
    """Shows the whole definition or its changes without invisible characters; returns y, n, or a for all new ones."""
    from forge.permissions.questions import show_invisible

    difference = tool.difference()
    text = show_invisible(difference or format_definition(tool.offer.definition, tool.offer.target), 24_000)
    click.echo(f"\n{tool.spec.name} is {tool.state} ({which}):", err=True)
    click.echo(colour_diff(text) if difference else text, err=True)
    if difference:
        return "y" if click.confirm("Approve it?", default=False, err=True) else "n"
    choice = click.Choice(["y", "n", "a"], case_sensitive=False)
    message = "Approve it? [y]es, [n]o, [a]ll new ones"
    reply: str = click.prompt(message, default="n", type=choice, show_choices=False, err=True)
    return reply


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


# Logs a person in at an MCP server: in a browser, or with a URL that the person pastes.


async def log_in_person(login: Login, *, browser: bool) -> bool:
    """Returns False if the server asks for no login. Raises `ToolError`."""
    from forge.mcp.oauth.authorizer import log_in
    from forge.mcp.oauth.login import listen_for_redirect

    if not browser:
        return await log_in(login, _pasting(login))
    wanted = login.settings.redirect_port
    for port in (wanted,) if wanted else dict.fromkeys((login.registered_port, 0)):
        async with AsyncExitStack() as stack:
            try:
                found = await stack.enter_async_context(listen_for_redirect(port, _open_page))
            except ToolError:
                if port in (0, wanted):
                    raise
                continue  # taken: Forge registers another one
            return await log_in(login, found)
    raise AssertionError("port 0 is always tried")


def _pasting(login: Login) -> Browser:
    from forge.mcp.oauth.login import HOST, PASTED_PORT, PATH, Browser, read_redirect

    async def show(url: str) -> None:
        click.echo(f"Open this page and log in:\n\n{harmless(url)}\n", err=True)
        click.echo("The browser then ends at a page that it may not be able to open.", err=True)

    async def wait() -> Redirect:
        return read_redirect(await asyncio.to_thread(click.prompt, "Paste the URL of that page", type=str, err=True))

    port = login.settings.redirect_port or PASTED_PORT
    return Browser(f"http://{HOST}:{port}{PATH}", show, wait)


async def _open_page(url: str) -> None:
    import webbrowser

    click.echo(f"Opening a browser. If none opens, open this page and log in:\n\n{harmless(url)}\n", err=True)
    await asyncio.to_thread(webbrowser.open, url)
