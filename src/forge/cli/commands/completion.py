"""`forge completion`: prints the script with which a shell completes commands, flags and tool names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

HOW = {
    "bash": 'eval "$(forge completion bash)"     # in ~/.bashrc',
    "zsh": 'eval "$(forge completion zsh)"      # in ~/.zshrc',
    "fish": "forge completion fish | source      # in ~/.config/fish/config.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(list(HOW)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    Add the line for your shell to its start-up file:
    """
    complete = get_completion_class(shell)
    assert complete is not None  # click has these three
    click.echo(complete(ctx.find_root().command, {}, "forge", "_FORGE_COMPLETE").source())
