"""Shows planned servers to a person, asks, and prints how it ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import PROJECT, Options, workspace_of
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # loaded when it is used
    from forge.project.servers.plan import ServerPlan

NEEDS_PERSON = 3
_LONGEST = 4_000  # characters of one line


def config_of(options: Options) -> str:
    """Returns the file to change: the named one, or the forge.yaml of the workspace."""
    import os

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
        more = f"… ({len(detail) - _LONGEST:,} more characters)" if len(detail) > _LONGEST else ""
        click.echo(f" {mark} {one.kind:<{width}}  {detail[:_LONGEST]}{more}", err=True)
    for note in plan.notes:
        click.echo(f"   {harmless(note)[:_LONGEST]}", err=True)


def ask(options: Options, question: str, way: str) -> int | None:
    """Asks the person. Returns None for yes, else the exit code."""
    if options.yes:
        return None
    if options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"Nothing was changed: there is no terminal to ask at. Without a question: {way}", err=True)
        return NEEDS_PERSON
    return None if click.confirm(question, default=False, err=True) else 1


def print_added(
    options: Options,
    results: Sequence[dict[str, Any]],
    *,
    written: bool,
    needs_trust: bool,
    left_out: Mapping[str, str] | None = None,
) -> None:
    """Prints what was added, and what to do next. `left_out`: servers that an import found and did not add."""
    if options.json:
        document: dict[str, Any] = {"written": written, "needs_trust": needs_trust, "servers": list(results)}
        click.echo(json.dumps(document | ({} if left_out is None else {"left_out": left_out}), ensure_ascii=False))
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
