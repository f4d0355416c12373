"""`forge serve`: offers the project's tools as an MCP server, or its agent to front ends."""

from __future__ import annotations

from typing import Any

import click

from forge.cli.options import Options, with_options


@click.command("serve")
@with_options("policy", "yes", "dev")
@click.option("--http", is_flag=True, help="Use streamable HTTP instead of stdin and stdout.")
@click.option("--agui", is_flag=True, help="Serve the agent to front ends over HTTP (AG-UI) instead of its tools.")
@click.option("--model", metavar="NAME", help="With --agui: the model, such as anthropic:MODEL or scripted:FILE.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="With --http or --agui: address to listen on.",
)
@click.option(
    "--port",
    default=8484,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="With --http or --agui: port; 0 means any free one.",
)
@click.option("--token-env", metavar="NAME", help="With --http or --agui: the environment variable with the token.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="With --http or --agui: another host name that clients use."
)
@click.option("--issuer", metavar="URL", help="With --http: accept access tokens of this authorization server.")
@click.option("--resource", metavar="URL", help="With --issuer: this server's URL, as clients write it.")
@click.option("--require-scope", multiple=True, metavar="SCOPE", help="With --issuer: a scope that every token needs.")
@click.option("--all", "everything", is_flag=True, help="Also list hidden tools before tool_search finds them.")
@click.option("--code", "code_mode", is_flag=True, help="Offer tool_search and run_code; scripts call the other tools.")
@click.option("--print-config", is_flag=True, help="Print the mcpServers entry for a client, and exit.")
@click.option("--audit", metavar="FILE", help="File for the event log. Default: .forge/audit.ndjson.")
@click.option("--no-audit", is_flag=True, help="Write no event log.")
def command(options: Options, **flags: Any) -> int:
    """Offer this project's tools to MCP clients.

    \b
    forge serve                     over stdin and stdout, for the client that starts it
    forge serve --http              at http://127.0.0.1:8484/mcp, for clients with the token
    forge serve --http --issuer https://login.example.com       for clients that log in there
    forge serve --print-config      print the entry for a client's configuration
    forge serve --agui              the agent itself, at http://127.0.0.1:8484/agui, for front ends with the token

    Every call passes the same policy, limits and log as an agent's calls. A call that needs approval is asked through
    the client if the client can show a form. Otherwise it is refused, unless --yes or a rule allows it.

    With --issuer, or `serve.auth` in forge.yaml, clients need an access token that this issuer made for this server
    (OAuth 2.1). --token-env then adds a fixed token.

    With --agui a front end runs the agent, and answers its questions. Its threads are stored as sessions.

    Without a token or an issuer, each start generates a new token and prints it once on stderr. There is no TLS: to
    listen on an address other than this machine's own, set a token or an issuer, and put a TLS proxy in front.

    \b
    Exit codes: 0 the client disconnected, or the server was stopped (SIGTERM)
                2 a flag, the configuration, a policy, the workspace or the port cannot be used
                130 interrupted
    """
    from forge.cli.running.serve_mcp import (  # the whole pipeline, which showing the help does without
        print_config,
        serve,
        serve_agui,
    )

    if flags["agui"]:
        return serve_agui(options, flags)
    return print_config(options, flags) if flags["print_config"] else serve(options, flags)
