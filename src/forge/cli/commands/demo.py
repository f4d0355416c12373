"""`forge demo`: shows an agent that works with real tools and a scripted model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

FILES = Path(__file__).parents[1] / "demo_files"
PROMPT = "How did our regions do in the first quarter? Is anything wrong?"
REFUSED = """
The report was not written: the answer to its question was no. Without a terminal, nobody can be asked.
"""
NEXT = """
The demo worked on a copy, which is deleted now; its session cannot be resumed. Next:
  forge init helper && cd helper     start a project of your own
  forge run "What is here?"          run an agent; it tells you how to get a model
"""


@click.command("demo")
def command() -> int:
    """Watch an agent work. Needs no model, no key and no network.

    \b
    forge demo

    The model follows a script. Everything else is real: the tools, the rules, the sub-agent, and the question before a
    file is written. Without a terminal, the answer to that question is no.

    \b
    Exit codes: 0 the run ended     1 the run failed     130 interrupted
    """
    from forge.cli.commands.run import command as run  # the whole agent, which showing the help does without

    click.echo(f'$ forge run "{PROMPT}"\n')
    with tempfile.TemporaryDirectory(prefix="forge-demo-") as folder:
        shutil.copy(FILES / "sales.csv", folder)
        model, policy = f"scripted:{FILES / 'conversation.yaml'}", str(FILES / "rules")
        given = ["--model", model, "--policy", policy, "--workspace", folder]
        code = run.main([PROMPT, *given], prog_name="forge run", standalone_mode=False)
        is_written = Path(folder, ".forge/files/first-quarter.md").exists()
    click.echo(NEXT if is_written else REFUSED + NEXT, nl=False)
    return int(code or 0)
