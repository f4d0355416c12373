"""`forge serve`: offers the project's tools as an MCP server."""

from __future__ import annotations

from typing import Any

import click

from forge.cli.options import Options, with_options


@click.command("serve")
@with_options
@click.option("--http", is_flag=True, help="Streamable HTTP instead of the standard streams.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="With --http: where to listen.")
@click.option(
    "--port", default=8484, show_default=True, type=click.IntRange(0, 65535), help="With --http; 0 takes a free one."
)
@click.option("--token-env", metavar="NAME", help="With --http: the variable that holds the token clients must send.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="With --http: a further name clients may ask for.")
@click.option("--all", "everything", is_flag=True, help="List hidden tools too, and not only what tool_search found.")
@click.option("--print-config", is_flag=True, help="Print the entry for another client's mcpServers, and end.")
@click.option("--audit", metavar="FILE", help="Where the log of events goes; .forge/audit.ndjson by default.")
@click.option("--no-audit", is_flag=True, help="Keep no log of events.")
def command(options: Options, **flags: Any) -> int:
    """Offer this project's tools to MCP clients.

    \b
    forge serve                     to the client that starts it, over the standard streams
    forge serve --http              to clients that have the token, at http://127.0.0.1:8484/mcp
    forge serve --print-config      what to write into a client's configuration

    Every call passes the same policy, limits and log as an agent's. What asks is asked through the client where it
    can show a form, and refused otherwise, unless --yes or a rule says yes.

    Without --token-env a new token is made at every start and printed on the standard error, once. There is no TLS: to
    listen on another address than this machine's own, give a token, and put a proxy with TLS in front.

    \b
    Exit codes: 0 the client has gone, or the server was told to end (SIGTERM)
                2 a flag, the configuration, a policy, the workspace or the port cannot be used
                130 interrupted
    """
    from forge.cli.running.serve_mcp import (  # the whole pipeline, which showing the help does without
        print_config,
        serve,
    )

    return print_config(options, flags) if flags["print_config"] else serve(options, flags)
