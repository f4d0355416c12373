"""`forge tool list`: lists every tool of the project, without building a schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals
from forge.cli.running.tool_names import NO_PERMISSION, describe_permissions, project_tools
from forge.core.extras import install_command
from forge.core.registry import ToolRegistry
from forge.core.spec import Category, Permission, ToolSpec
from forge.project.assemble.choose_tools import defer_tools
from forge.project.config.load import load_configuration
from forge.tools.run_code import enter_code_mode


@click.command("list")
@with_options("dev")
@click.option("--category", type=click.Choice([str(one) for one in Category]), help="Only tools of this category.")
@click.option(
    "--permission",
    type=click.Choice([*map(str, Permission), NO_PERMISSION]),
    help="Only tools that need this permission, or none.",
)
@click.option("--tokens", is_flag=True, help="Show what each definition costs, and what is sent by default.")
def command(options: Options, category: str | None, permission: str | None, tokens: bool) -> None:
    """List the tools, sorted by name.

    \b
    forge tool list --permission write

    A tool that needs an extra of Forge which is not installed is listed as unavailable, with the command that installs
    the extra. No model sees it.

    With --tokens, each tool has the estimated tokens of its definition. `yes` under SENT: the definition is in every
    request. The model finds the other tools with `tool_search`; their definitions cost nothing until then.

    With --json: {"tools": [{name, category, description, permissions, aliases, origin}], "unavailable": [the same with
    extra, install]}. With --tokens, each tool also has tokens and sent, and "tokens" is {sent, deferred}: the sums.
    """
    registry = project_tools(options)
    costs = _count_costs(registry, options) if tokens else None
    specs = [tool.spec for _, tool in sorted(registry.items())]
    chosen = [spec for spec in specs if _is_selected(spec, category, permission)]
    lacking = sorted(registry.unavailable, key=lambda spec: spec.name)
    unavailable = [spec for spec in lacking if _is_selected(spec, category, permission)]
    if options.json:
        listed: dict[str, Any] = {
            "tools": [{**facts(spec), **_cost_facts(spec, costs)} for spec in chosen],
            "unavailable": [*map(_unavailable_facts, unavailable)],
        }
        if costs is not None:
            listed["tokens"] = {"sent": costs.sum_sent(), "deferred": costs.sum_deferred()}
        click.echo(json.dumps(listed, ensure_ascii=False))
        return
    click.echo("\n".join(_table(chosen, costs)) if chosen else "No tool matches.")
    if costs is not None:
        click.echo(f"\n{costs.summary()}")
    for line in _unavailable_lines(unavailable):
        click.echo(line)


def facts(spec: ToolSpec) -> dict[str, Any]:
    """Returns the fields of a tool that programs see, without its schema."""
    return {
        "name": spec.name,
        "category": str(spec.category),
        "description": spec.description,
        "permissions": sorted(map(str, spec.permissions)),
        "aliases": list(spec.aliases),
        "origin": spec.origin,
    }


def _count_costs(registry: ToolRegistry, options: Options) -> ToolCosts:
    return count_costs(registry, options)


def _cost_facts(spec: ToolSpec, costs: ToolCosts | None) -> dict[str, Any]:
    return {} if costs is None else {"tokens": costs.tokens[spec.name], "sent": spec.name in costs.sent}


def _unavailable_facts(spec: ToolSpec) -> dict[str, Any]:
    return {**facts(spec), "extra": spec.extra, "install": install_command(spec.extra)}


def _unavailable_lines(specs: list[ToolSpec]) -> list[str]:
    """Returns a line for each unavailable tool. No line is clipped, so that its command can be copied."""
    width = max((len(spec.name) for spec in specs), default=0)
    lines = [f"{spec.name:<{width}}  unavailable: {install_command(spec.extra)}" for spec in specs]
    return ["", *lines] if lines else []


def origin(spec: ToolSpec) -> str:
    """Returns `builtin`, `dev`, or the source of other tools: `mcp:git`, `script:tools/weather.py`."""
    return spec.origin if ":" in spec.origin else str(spec.category)


def _is_selected(spec: ToolSpec, category: str | None, permission: str | None) -> bool:
    if category is not None and spec.category != category:
        return False
    if permission is None:
        return True
    wanted = spec.permissions | spec.optional_permissions
    return not wanted if permission == NO_PERMISSION else permission in wanted


def _table(specs: list[ToolSpec], costs: ToolCosts | None = None) -> list[str]:
    """Aligns columns; on a terminal the descriptions are shortened to its width."""
    rows = [("NAME", *(("TOKENS", "SENT") if costs else ()), "ORIGIN", "NEEDS", "DESCRIPTION")]
    for spec in specs:
        cost = (f"{costs.tokens[spec.name]:>6,}", "yes" if spec.name in costs.sent else "") if costs else ()
        rest = (origin(spec), describe_permissions(spec), spec.description.partition("\n")[0])
        rows.append((spec.name, *cost, *rest))
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
        return ["  ".join((*map(str.ljust, row[:-1], widths), row[-1])) for row in rows]
    from forge.cli.terminal.print_result import table_lines  # slow to load: only on a terminal

    head, *lines = table_lines(rows)
    return [click.style(head, bold=True), *lines]


# Counts the tokens that tool definitions cost: those in every request, and those that the model must search.


class ToolCosts(NamedTuple):
    """The estimated tokens of every definition, and the tools whose definitions are in every request."""

    tokens: Mapping[str, int]
    sent: Collection[str]

    def sum_sent(self) -> int:
        return sum(self.tokens[name] for name in self.sent)

    def sum_deferred(self) -> int:
        return sum(self.tokens.values()) - self.sum_sent()

    def summary(self) -> str:
        """Renders the sums in two lines."""
        deferred = len(self.tokens) - len(self.sent)
        return (
            f"In every request: {_count(len(self.sent))}, {self.sum_sent():,} tokens.\n"
            f"Found with tool_search: {_count(deferred)}, {self.sum_deferred():,} tokens."
        )


def count_costs(registry: ToolRegistry, options: Options) -> ToolCosts:
    """Counts the definitions of a project's tools. The registry then sends what the project's agent sends."""
    from forge.agent.tokens import estimate_definition

    with refusals():
        configuration = load_configuration(options.config)
        if configuration.agent.code_mode:
            enter_code_mode(registry)
        else:
            defer_tools(registry, configuration, ends_by_call=False)
    tokens = {tool.spec.name: estimate_definition(tool.spec) for tool in registry.values()}
    return ToolCosts(tokens, frozenset(spec.name for spec in registry.specs()))


def _count(definitions: int) -> str:
    return f"{definitions:,} definition{'' if definitions == 1 else 's'}"
