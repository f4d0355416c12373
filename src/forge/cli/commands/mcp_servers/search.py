"""`forge mcp search`: finds servers in a registry."""

from __future__ import annotations

import asyncio
import json

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals
from forge.cli.terminal.print_result import harmless


@click.command("search")
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
