"""`forge mcp import`: takes over the servers of other clients."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forge.cli.commands.mcp_servers.add import finish
from forge.cli.commands.mcp_servers.show_plan import config_of
from forge.cli.options import Options, with_options, workspace_of
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # showing the help does without
    from forge.project.servers.plan import ServerPlan


@click.command("import")
@click.argument("source", required=False, metavar="[claude-desktop|claude-code|cursor|vscode|FILE]")
@click.option("--only", metavar="NAME", multiple=True, help="Import only this server; may be repeated.")
@click.option("--network", metavar="NAME", multiple=True, help="Give this server a network; may be repeated.")
@click.option(
    "--sandbox", type=click.Choice(["required", "auto", "off"]), default=None, help="The sandbox of the programs."
)
@click.option("--replace", is_flag=True, help="Replace servers of the same names.")
@click.option("--dry-run", is_flag=True, help="Only show what it would turn on.")
@with_options("yes", find_config=False, yes="Add without a question.")
def import_(
    options: Options,
    source: str | None,
    only: tuple[str, ...],
    network: tuple[str, ...],
    sandbox: str | None,
    replace: bool,
    dry_run: bool,
) -> int:
    """Take over the MCP servers of another client.

    Shows the servers that were found and what they would turn on, and asks. Values of secrets are not copied: the entry
    names a variable that you set. Commands that fetch a package are installed and pinned, as with `forge mcp add`.
    What cannot be imported is listed with the reason. Without a source, lists the configurations on this machine.

    \b
    Examples:
      forge mcp import                               list what there is
      forge mcp import claude-desktop --dry-run
      forge mcp import vscode --only github --network github
      forge mcp import ./mcp.json --yes

    With --json: {written, needs_trust, servers, left_out: {name: why}}; without a source: {found: [{client, file,
    servers}]}.

    \b
    Exit codes: 0 imported                        1 you answered no
                2 there is nothing to import      3 it needs an answer, but there is no terminal
    """
    workspace = Path(workspace_of(options)).absolute()
    with refusals():
        if source is None:
            return _list_found(options, workspace)
        config = config_of(options)
        plans, left_out = asyncio.run(_plan_all(source, workspace, config, only, network, sandbox or "", replace))
        if not plans:
            raise Refusal("\n".join(["nothing can be imported", *(f"{name}: {why}" for name, why in left_out.items())]))
    for name, why in left_out.items():
        click.echo(f"{harmless(name)} is left out: {harmless(why)}", err=True)
    return finish(options, config, plans, dry_run=dry_run, left_out=left_out)


def _list_found(options: Options, workspace: Path) -> int:
    from forge.core.errors import ToolError
    from forge.project.servers.other_clients import CLIENTS, list_files, read_file

    rows = []
    for client in CLIENTS:
        for path in list_files(client, workspace):
            try:
                names = sorted(read_file(path, workspace).servers)
            except ToolError as error:
                click.echo(harmless(error.message), err=True)
                continue
            if names:
                rows.append({"client": client, "file": str(path), "servers": names})
    if options.json:
        click.echo(json.dumps({"found": rows}, ensure_ascii=False))
        return 0
    for row in rows:
        click.echo(f"{row['client']:<15} {harmless(str(row['file']))}: {harmless(', '.join(row['servers']))}")
    click.echo("Import one with: forge mcp import CLIENT" if rows else "No other client has servers here.", err=True)
    return 0


async def _plan_all(
    source: str,
    workspace: Path,
    config: str,
    only: tuple[str, ...],
    network: tuple[str, ...],
    sandbox: str,
    replace: bool,
) -> tuple[list[ServerPlan], dict[str, str]]:
    """Returns the plans, and the servers that cannot be imported, with the reason."""
    from forge.core.errors import ToolError
    from forge.project.servers.change import read_servers
    from forge.project.servers.plan import check_entry, pin_entry

    existing = {} if replace else read_servers(config)
    plans: dict[str, ServerPlan] = {}
    left_out: dict[str, str] = {}
    for plan in _convert_all(source, workspace):
        if only and plan.name not in only:
            left_out[plan.name] = "it was not named with --only"
            continue
        if plan.name in existing or plan.name in plans:
            left_out[plan.name] = "there is a server of this name already; use --replace, or rename it"
            continue
        entry = dict(plan.entry)
        if "command" in entry:
            entry |= {"network": True} if plan.name in network else {}
            entry |= {"sandbox": sandbox} if sandbox else {}
        try:
            check_entry(plan.name, entry)
            plans[plan.name] = await pin_entry(plan._replace(entry=entry))
        except ToolError as error:
            left_out[plan.name] = " ".join(filter(None, (error.message, error.suggestion)))
    return list(plans.values()), left_out


def _convert_all(source: str, workspace: Path) -> list[ServerPlan]:
    from forge.project.servers.other_clients import CLIENTS, Converter, list_files, read_file

    files = list_files(source, workspace) if source in CLIENTS else [Path(source)]
    if not files:
        raise Refusal(f"{source} has no servers on this machine\nName its file: forge mcp import FILE")
    plans = []
    for path in files:
        found = read_file(path, workspace)
        converter = Converter(workspace, found.inputs)
        plans += [converter.convert(name, said) for name, said in found.servers.items()]
    if not plans:
        raise Refusal(f"{', '.join(map(str, files))}: there are no servers\nName a file with mcpServers or servers.")
    return plans
