"""`forge mcp add`, `install` and `remove`: the servers of a project."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import PROJECT, Options, with_options, workspace_of
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import harmless
from forge.core.errors import DefinitionError, ErrorKind, ToolError

if TYPE_CHECKING:
    from forge.project.servers.plan import ServerPlan, ServerSettings


@click.command("add", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[-- COMMAND | URL]")
@click.option("--from", "source", metavar="FILE|URL", help="A registry's document of the server (server.json).")
@click.option(
    "--registry", metavar="URL", default="", help="The registry. Default: FORGE_MCP_REGISTRY, or the official one."
)
@click.option("--as", "alias", metavar="NAME", default="", help="Another name for the server in forge.yaml.")
@click.option("--set", "values", metavar="NAME=VALUE", multiple=True, help="A value that the document asks for.")
@click.option("--kind", type=click.Choice(["npm", "pypi", "oci", "remote"]), help="Which offer of the document to use.")
@click.option("--env", "environment", metavar="NAME[=VALUE]", multiple=True, help="A variable of the program.")
@click.option("--network", is_flag=True, help="Give the program a network.")
@click.option(
    "--access", type=click.Choice(["write", "read", "none"]), default=None, help="Its access to the workspace."
)
@click.option("--root", "roots", metavar="PATH[:write]", multiple=True, help="A further directory of the program.")
@click.option("--cwd", metavar="DIR", default="", help="Its working directory.")
@click.option(
    "--sandbox", type=click.Choice(["required", "bubblewrap", "landlock", "auto", "off"]), help="Its sandbox."
)
@click.option("--replace", is_flag=True, help="Replace a server of that name.")
@click.option("--force", is_flag=True, help="Add a program that fails when it is tried.")
@click.option("--dry-run", is_flag=True, help="Only show what it would turn on.")
@with_options("yes", find_config=False, yes="Add without a question.")
def add(options: Options, name: str, words: tuple[str, ...], dry_run: bool, force: bool, **said: Any) -> int:
    """Add an MCP server to forge.yaml, installed and pinned.

    A command that fetches a package when it starts (uvx, pipx run, npx, bunx) is installed first, outside the project:
    with exact versions and hashes of all packages, without running their scripts. forge.mcp.lock beside forge.yaml
    records them. The server then starts from this installation, in the sandbox.

    The command shows what the server would turn on, and asks. Then it starts the server once. If a program fails,
    nothing is written, unless you pass --force. A server at a URL is also added if it does not answer now, and so is a
    program that lacks a variable. If forge.yaml was trusted before, it stays trusted.

    \b
    Examples:
      forge mcp add time -- uvx mcp-server-time
      forge mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
      forge mcp add docs https://docs.example.com/mcp
      forge mcp add io.github.example/weather --set city=Oslo       from the registry
      forge mcp add weather --from server.json --dry-run --json

    With --json: {written, needs_trust, servers: [{server, entry, turns_on, locked, notes, tools, error}]}.

    \b
    Exit codes: 0 added            1 you answered no
                2 not added        3 it needs an answer, but there is no terminal
    """
    from forge.project.servers.plan import ServerSettings

    config = config_of(options)
    settings = ServerSettings(
        said["environment"],
        said["network"],
        said["access"] or "",
        said["roots"],
        said["sandbox"] or "",
        said["cwd"],
    )
    with refusals():
        plan = asyncio.run(_plan(name, words, settings, said, config))
    return finish(options, config, [plan], dry_run=dry_run, must_start=not force)


@click.command("install")
@click.argument("names", nargs=-1)
@with_options(find_config=False)
def install(options: Options, names: tuple[str, ...]) -> None:
    """Install the pinned servers of a project on this machine.

    Installs exactly the packages that forge.mcp.lock records, and checks their hashes.

    \b
    forge mcp install
    forge mcp install time
    """
    from forge.project.servers.change import install_servers

    with refusals():
        done = asyncio.run(install_servers(config_of(options), names))
    if options.json:
        click.echo(json.dumps({"installed": done}))
        return
    click.echo(f"Installed: {', '.join(map(harmless, done)) or 'nothing; no server is pinned'}.")


@click.command("remove")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only say what it would remove.")
@with_options(find_config=False)
def remove(options: Options, name: str, dry_run: bool) -> None:
    """Remove an MCP server from forge.yaml, with its lock and its installation.

    \b
    forge mcp remove time
    """
    from forge.project.servers.change import read_servers, remove_server

    config = config_of(options)
    needs_trust = False
    with refusals():
        if not dry_run:
            needs_trust = remove_server(config, name).needs_trust
        elif name not in read_servers(config):
            raise Refusal(f"{config} has no server {name!r}")
    if options.json:
        click.echo(json.dumps({"server": name, "removed": not dry_run, "needs_trust": needs_trust}))
        return
    click.echo(f"{'It would remove' if dry_run else 'Removed'} {harmless(name)}.")
    if needs_trust:
        click.echo("forge.yaml was not trusted as it was: run `forge trust` to use it.")


def finish(
    options: Options,
    config: str,
    plans: list[ServerPlan],
    *,
    dry_run: bool,
    must_start: bool = False,
) -> int:
    """Shows the plans, asks, tries the servers and adds them. Returns the exit code.

    `must_start`: programs that fail when they are tried are refused.
    """
    from forge.project.servers.change import add_servers

    report = partial(print_added, options)
    with refusals():
        results = [describe_plan(plan) for plan in plans]
        if not options.json:
            for plan in plans:
                print_plan(plan, config)
        if dry_run:
            report(results, written=False, needs_trust=False)
            return 0
        many = "these servers" if len(plans) > 1 else "this server"
        if (code := ask(options, f"Add {many}?", "add --yes")) is not None:
            if options.json:
                report(results, written=False, needs_trust=False)
            return code

        try_all = partial(try_servers, options._replace(config=config), plans, results, must_start=must_start)
        changed = asyncio.run(add_servers(config, plans, try_all))
    report(results, written=True, needs_trust=changed.needs_trust)
    return 0


async def _plan(
    name: str, words: tuple[str, ...], settings: ServerSettings, said: dict[str, Any], config: str
) -> ServerPlan:
    from forge.project.servers.change import check_free
    from forge.project.servers.plan import apply_settings, check_name, pin_entry, plan_command, safe_name
    from forge.project.servers.registry import load_document, pin_image, plan_document, registry_url

    source = said["source"]
    if bool(words) == bool(source or "/" in name):
        raise Refusal(
            f"forge mcp add {name} needs either a command or a document\n"
            "Write `-- COMMAND` or a URL behind the name, or --from FILE, or the server's whole name in the registry."
        )
    called = check_name(said["alias"] or (name if words or source else safe_name(name)))
    check_free(config, [called], replace=said["replace"])
    if words:
        return await plan_command(called, words, settings)
    server = await load_document(source or name, registry_url(said["registry"]))
    plan = plan_document(server, called, dict(map(_pair, said["values"])), said["kind"] or "")
    if "command" not in plan.entry:
        return plan
    return await pin_image(await pin_entry(plan._replace(entry=apply_settings(plan.entry, settings))))


def _pair(text: str) -> tuple[str, str]:
    name, assigned, value = text.partition("=")
    if not name or not assigned:
        raise Refusal(f"--set {text}: expected NAME=VALUE")
    return name, value


async def try_servers(
    options: Options, plans: Sequence[ServerPlan], results: Sequence[dict[str, Any]], text: str, *, must_start: bool
) -> None:
    """Starts each server once with this text of forge.yaml, and puts its tools or its error into the results."""
    for plan, result in zip(plans, results, strict=True):
        if not plan.entry.get("disabled"):
            result |= await _try_server(options, plan, text, must_start=must_start)


async def _try_server(options: Options, plan: ServerPlan, text: str, *, must_start: bool) -> dict[str, Any]:
    """Starts a server once, as a run with this text of forge.yaml would, and lists its tools.

    Raises `ToolError` for a program that fails and must start.
    """
    from forge.project.assemble.sources import project_server

    try:
        server = project_server(options, plan.name, text)
    except ToolError as error:  # a variable is not set: the server was not tried
        return {"tools": [], "error": _join_advice(error)}
    try:
        async with server:
            return {"tools": [tool.remote for tool in server.tools], "error": ""}
    except (ToolError, DefinitionError) as error:
        if not must_start or "command" not in plan.entry:  # a URL may need a login, which needs the entry
            return {"tools": [], "error": _join_advice(error)}
        raise ToolError(
            f"cannot add the server {plan.name}: it was started to try it, and failed: {error}",
            ErrorKind.CONFIG,
            f"{getattr(error, 'suggestion', '')} Nothing was written. Correct the command, or add the server as it is"
            " with --force.".strip(),
        ) from error


def _join_advice(error: Exception) -> str:
    advice = getattr(error, "suggestion", "")
    return f"{error}{f'. {advice}' if advice else ''}"


# Shows planned servers to a person, asks, and prints how it ended.


NEEDS_PERSON = 3
_LONGEST_LINE = 4_000  # characters of one line


def config_of(options: Options) -> str:
    """Returns the file to change: the named one, or the forge.yaml of the workspace."""

    return options.config or os.path.join(workspace_of(options), PROJECT)


def describe_plan(plan: ServerPlan) -> dict[str, Any]:
    """Describes a plan as JSON."""
    from forge.project.servers.plan import list_effects

    locked = plan.locked
    return {
        "server": plan.name,
        "entry": plan.entry,
        "turns_on": [one._asdict() for one in list_effects(plan)],
        "locked": None
        if locked is None
        else {
            "registry": locked.registry,
            "package": locked.package,
            "version": locked.version,
            "packages": locked.size,
            "integrity": locked.integrity,
        },
        "notes": list(plan.notes),
    }


def print_plan(plan: ServerPlan, config: str) -> None:
    """Shows what a server would turn on, for a person."""
    from forge.project.servers.plan import list_effects

    click.echo(f"{harmless(config)} would get the server {click.style(plan.name, bold=True)}:", err=True)
    items = list_effects(plan)
    width = max((len(one.kind) for one in items), default=0)
    for one in items:
        mark = click.style("!", fg="yellow") if one.risky else " "
        detail = harmless(" ".join(one.detail.split()))
        more = f"… ({len(detail) - _LONGEST_LINE:,} more characters)" if len(detail) > _LONGEST_LINE else ""
        click.echo(f" {mark} {one.kind:<{width}}  {detail[:_LONGEST_LINE]}{more}", err=True)
    for note in plan.notes:
        click.echo(f"   {harmless(note)[:_LONGEST_LINE]}", err=True)


def ask(options: Options, question: str, hint: str) -> int | None:
    """Asks the person. Returns None for yes, else the exit code."""
    if options.yes:
        return None
    if options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"Nothing was changed: there is no terminal to ask at. Without a question: {hint}", err=True)
        return NEEDS_PERSON
    return None if click.confirm(question, default=False, err=True) else 1


def print_added(
    options: Options,
    results: Sequence[dict[str, Any]],
    *,
    written: bool,
    needs_trust: bool,
) -> None:
    """Prints what was added, and what to do next."""
    if options.json:
        document = {"written": written, "needs_trust": needs_trust, "servers": list(results)}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    if not written:
        return
    for one in results:
        click.echo(f"Added {one['server']}.{_describe_tools(one)}")
    if needs_trust:
        click.echo("forge.yaml was not trusted as it was: run `forge trust` to use it.")


def _describe_tools(result: dict[str, Any]) -> str:
    if result.get("error"):
        return f" It cannot be started yet: {harmless(result['error'])}"
    tools = [harmless(name) for name in result.get("tools", ())]
    if not tools:
        return ""
    shown = ", ".join(tools[:30]) + (f" and {len(tools) - 30} more" if len(tools) > 30 else "")
    return f" It offers {len(tools)} tools: {shown}. Approve them with `forge mcp approve {result['server']}`."
