"""`forge init`: writes a new project that passes its own checks."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals
from forge.core.errors import ToolError

NAMES = ("minimal", "coding", "ops", "api")


@click.command("init")
@click.argument("directory", required=False)
@click.option(
    "--template", type=click.Choice(NAMES), default="minimal", show_default=True, help="What the project is for."
)
@click.option("--name", metavar="ID", help="The agent's id; the directory's name by default.")
@with_options()
def command(options: Options, directory: str | None, template: str, name: str | None) -> int:
    """Create a project: forge.yaml, a tool with its test, and examples that test its rules.

    \b
    forge init                          here
    forge init helper --template ops    in a new directory
    \b
    minimal  reads files, counts words
    coding   works on the code of the directory
    ops      runs a few programs, reports every morning
    api      works with an API that an OpenAPI document describes

    With --json: {"directory", "template", "files", "kept"}. No file is overwritten. An existing README.md or
    .gitignore is kept. If any other file exists already, the command writes nothing.

    \b
    Exit codes: 0 written     2 a file exists already, or the directory or the name cannot be used
    """
    from forge.project.templates import OFTEN_THERE, files_of, write_new  # showing the help does without

    with refusals():
        if name is not None and (not name or name != _id(name)):
            raise Refusal(f"{name[:80]!r} cannot be the id of an agent\nWrite lower-case letters, digits and hyphens.")
        target = directory or options.workspace or "."
        root = _directory(target)
        existing = [path for path in OFTEN_THERE if os.path.lexists(root / path)]
        files = {path: text for path, text in files_of(template, name or _name(root)).items() if path not in existing}
        write_new(root, files)
        accepted = _accept_project(root)
    if options.json:
        click.echo(json.dumps({"directory": str(root), "template": template, "files": sorted(files), "kept": existing}))
        return 0
    click.echo("".join(f"  {path}\n" for path in sorted(files)), nl=False)
    for path in existing:
        click.echo(f"  {path} is yours, and stays as it is")
    there = "" if target == "." else f"  cd {shlex.quote(target)}\n"
    trust = "" if accepted else "  forge trust\n"
    click.echo(f'Next:\n{there}{trust}  forge tool list\n  forge run "What is in this directory?"')
    return 0


def _accept_project(root: Path) -> bool:
    """Accepts the new project for its author. Returns False if the trust store cannot be written; `forge trust` says
    why.
    """
    from forge.project.trust import accept

    try:
        accept(root)
    except ToolError:
        return False
    return True


def _directory(path: str) -> Path:
    try:
        root = Path(path)
        root.mkdir(parents=True, exist_ok=True)
        return root.resolve(strict=True)
    except (OSError, ValueError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Refusal(f"{path!r} cannot be the project's directory: {problem}\nName another.") from None


def _name(root: Path) -> str:
    return _id(root.name) or "agent"


def _id(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:64]
