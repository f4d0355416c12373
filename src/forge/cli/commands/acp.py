"""`forge acp`: the project's agent in an editor."""

from __future__ import annotations

from typing import Any

import click

from forge.cli.options import Options, with_options


@click.command("acp")
@with_options("policy", "yes", "dev", "trial", find_config=False)
@click.option("--model", metavar="NAME", help="The model of new sessions, such as anthropic:MODEL or ollama:MODEL.")
@click.option(
    "--max-turns", metavar="N", type=click.IntRange(min=1), default=None,
    help="Maximum number of turns of a prompt. Default: the configured number, else 50.",
)  # fmt: skip
@click.option("--audit", metavar="FILE", help="File for the event log. Default: .forge/audit.ndjson of each workspace.")
@click.option("--no-audit", is_flag=True, help="Write no event log.")
def command(options: Options, **flags: Any) -> int:
    """Run the agent in an editor that speaks the Agent Client Protocol.

    The editor starts this command and speaks to it over stdin and stdout. Each session works in the directory that the
    editor names, with the forge.yaml there once it is trusted (`forge trust`). Every call passes the same rules, limits
    and log as with forge run; questions appear in the editor. Sessions are stored, so that `forge run --session NAME`
    continues them, and the other way round.

    Zed, JetBrains IDEs, Neovim and Emacs can use it; docs/editors.md has their configuration, with the command:

    \b
    forge acp
    forge acp --model anthropic:MODEL

    \b
    Exit codes: 0 the editor disconnected, or the command was stopped (SIGTERM)
                2 a flag cannot be used, or the extra acp is not installed
                130 interrupted
    """
    from forge.cli.running.serve_acp import serve_editor  # the whole agent, which showing the help does without

    return serve_editor(options, flags)
