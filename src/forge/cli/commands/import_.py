"""`forge import`: takes over the settings of another program."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forge.cli.commands.mcp_servers import ask, config_of, describe_plan, print_added, print_plan, try_servers
from forge.cli.options import Options, with_options, workspace_of
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import colour_diff, harmless
from forge.core.errors import ToolError

if TYPE_CHECKING:
    from forge.project.servers.change import Changed
    from forge.project.servers.plan import ServerPlan
    from forge.project.take_over import ImportPlan

PARTS = ("servers", "rules", "hooks", "agents", "commands", "skills", "settings")
_LONGEST_SHOWN = 4_000  # characters of a new file in the preview


@click.command("import")
@click.argument("source", required=False, metavar="[claude-code|claude-desktop|codex|cursor|opencode|vscode|FILE]")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Import only this; may be repeated.")
@click.option("--no-home", is_flag=True, help="Read only the files of the project, not those of your home.")
@click.option("--only", metavar="NAME", multiple=True, help="Import only this server; may be repeated.")
@click.option("--network", metavar="NAME", multiple=True, help="Give this server a network; may be repeated.")
@click.option(
    "--sandbox", type=click.Choice(["required", "auto", "off"]), default=None, help="The sandbox of the servers."
)
@click.option("--replace", is_flag=True, help="Replace servers of the same names.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@with_options("yes", find_config=False, yes="Import without a question.")
def command(
    options: Options, source: str | None, parts: tuple[str, ...], no_home: bool, dry_run: bool, **said: Any
) -> int:
    """Take over the settings of another program.

    Reads MCP servers, permissions, hooks, slash commands, agents, skills and the model of Claude Code, Codex and
    opencode, and the MCP servers of Claude Desktop, Cursor and VS Code: of the project, and of your home. Shows what
    would change in forge.yaml and which files would be written, and asks.

    Nothing becomes looser than it was there. What is not taken over is listed with the reason. Values of secrets are
    not copied: the entry names a variable that you set. Servers that fetch a package are installed and pinned, as with
    `forge mcp add`. A server that cannot be started yet is imported all the same, with the reason. No file is
    overwritten, and a second import changes nothing. Without a source, lists what there is.

    \b
    Examples:
      forge import                                    list what there is
      forge import claude-code --dry-run
      forge import codex --part servers --only github --network github
      forge import ./mcp.json --yes

    With --json: {written, needs_trust, read, diff, files: [], servers, left_out: {server: why}, not_taken: [{file,
    key, reason}]}; without a source: {found: [{client, files, servers}]}.

    \b
    Exit codes: 0 imported, or nothing is new       1 you answered no
                2 there is nothing to import        3 it needs an answer, but there is no terminal
    """
    workspace = Path(workspace_of(options)).absolute()
    with refusals():
        if source is None:
            return _list_found(options, workspace)
        from forge.project.take_over import plan_import, write_import  # showing the help does without

        config = config_of(options)
        plan = plan_import(source, workspace, config, parts=parts or PARTS, with_home=not no_home)
        servers, left_out = asyncio.run(_plan_servers(plan, **said))
        results = [describe_plan(one) for one in servers]
        report: dict[str, Any] = {
            "read": plan.read,
            "diff": plan.diff,
            "files": sorted(plan.files),
            "left_out": left_out,
            "not_taken": [one._asdict() for one in plan.not_taken],
        }
        if not options.json:
            _print_preview(plan, servers, left_out)
        is_empty = plan.before == plan.after and not plan.files and not servers
        if is_empty and not plan.read:
            raise Refusal("nothing can be imported")
        if dry_run or is_empty:
            return _finish(options, report, results, None, is_empty=is_empty and not dry_run)
        if (code := ask(options, "Import this?", "forge import SOURCE --yes")) is not None:
            if options.json:
                _finish(options, report, results, None)
            return code
        changed = write_import(plan, workspace, partial(_write, options, servers, results))
    return _finish(options, report, results, changed)


def _write(
    options: Options, servers: list[ServerPlan], results: list[dict[str, Any]], config: str, text: str
) -> Changed:
    """Writes the configuration with the servers, once they are installed and were tried."""
    from forge.project.servers.change import add_servers, write_config

    if not servers:
        return write_config(config, text)
    try_all = partial(try_servers, options._replace(config=config), servers, results, must_start=False)
    return asyncio.run(add_servers(config, servers, try_all, text))


async def _plan_servers(
    plan: ImportPlan, only: tuple[str, ...], network: tuple[str, ...], sandbox: str | None, replace: bool
) -> tuple[list[ServerPlan], dict[str, str]]:
    """Returns the servers to add, pinned, and those that cannot be imported, with the reason."""
    from forge.project.servers.change import read_servers
    from forge.project.servers.plan import check_entry, pin_entry

    existing = {} if replace else read_servers(plan.config)
    chosen: dict[str, ServerPlan] = {}
    left_out: dict[str, str] = {}
    for one in plan.servers:
        if only and one.name not in only:
            left_out[one.name] = "it was not named with --only"
            continue
        if one.name in existing or one.name in chosen:
            left_out.setdefault(one.name, "there is a server of this name already; use --replace, or rename it")
            continue
        entry = dict(one.entry)
        if "command" in entry:
            entry |= {"network": True} if one.name in network else {}
            entry |= {"sandbox": sandbox} if sandbox else {}
        try:
            check_entry(one.name, entry)
            chosen[one.name] = await pin_entry(one._replace(entry=entry))
        except ToolError as error:
            left_out[one.name] = " ".join(filter(None, (error.message, error.suggestion)))
    return list(chosen.values()), left_out


def _print_preview(plan: ImportPlan, servers: list[ServerPlan], left_out: dict[str, str]) -> None:
    click.echo(f"Read: {harmless(', '.join(plan.read))}", err=True)
    if plan.diff:
        click.echo(colour_diff(harmless(plan.diff)), err=True)
    for path, text in plan.files.items():
        more = f"\n… ({len(text) - _LONGEST_SHOWN:,} more characters)" if len(text) > _LONGEST_SHOWN else ""
        click.echo(f"\n{click.style(harmless(path), bold=True)} would be written:", err=True)
        click.echo(harmless(text[:_LONGEST_SHOWN]).rstrip() + more, err=True)
    for one in servers:
        print_plan(one, plan.config)
    for name, why in left_out.items():
        click.echo(f"{harmless(name)} is left out: {harmless(why)}", err=True)
    if plan.not_taken:
        click.echo(f"\n{click.style('Not taken over, or changed:', bold=True)}", err=True)
    for row in plan.not_taken:
        click.echo(f"  {harmless(row.file)}  {harmless(row.key)}: {harmless(row.reason)}", err=True)


def _finish(
    options: Options,
    report: dict[str, Any],
    results: list[dict[str, Any]],
    changed: Changed | None,
    *,
    is_empty: bool = False,
) -> int:
    """Prints how it ended. `changed` is None if nothing was written."""
    if options.json:
        done = {"written": changed is not None, "needs_trust": changed is not None and changed.needs_trust}
        click.echo(json.dumps({**done, "servers": results, **report}, ensure_ascii=False))
    elif changed is not None:
        for path in report["files"]:
            click.echo(f"Wrote {harmless(path)}.")
        if report["diff"]:
            click.echo(f"Changed {harmless(changed.file)}.")
        print_added(options, results, written=True, needs_trust=changed.needs_trust)
    elif is_empty:
        click.echo("There is nothing new to import.")
    return 0


def _list_found(options: Options, workspace: Path) -> int:
    from forge.project.take_over import find_sources

    found = find_sources(workspace)
    rows = [
        {"client": source, "files": one.read, "servers": sorted({plan.name for plan in one.servers})}
        for source, one in found.items()
    ]
    if options.json:
        click.echo(json.dumps({"found": rows}, ensure_ascii=False))
        return 0
    for source, one in found.items():
        names = ", ".join(sorted({plan.name for plan in one.servers}))
        click.echo(f"{source:<15} {harmless(', '.join(one.read))}{harmless(f'; servers: {names}') if names else ''}")
    click.echo("Import one with: forge import SOURCE" if rows else "No other program has settings here.", err=True)
    return 0
