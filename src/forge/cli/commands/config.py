"""`forge config`: shows the effective configuration, the origin of each value, and the schema of forge.yaml."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from forge.cli.group import CommandGroup
from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals
from forge.cli.terminal.print_result import harmless
from forge.core.errors import ToolError
from forge.project.config import load_configuration
from forge.project.config.declaration import config_schema, organisation_schema
from forge.project.config.reader import on_one_line

if TYPE_CHECKING:  # loaded when it is shown
    from pathlib import Path

    from forge.project.effective_config import EffectiveValue

_LONGEST_VALUE = 100  # characters of a value on a line


@click.group("config", cls=CommandGroup)
def command() -> None:
    """Show the effective configuration and the schema of forge.yaml.

    \b
    Layers; each overrides the ones before it:
      defaults
      user          $XDG_CONFIG_HOME/forge/config.yaml, by default ~/.config/forge/config.yaml
      project       forge.yaml in the workspace, once it is trusted (`forge trust`); or --config FILE
      environment   FORGE_MODEL, FORGE_SANDBOX, FORGE_EGRESS, FORGE_TURNS; FORGE_CONFIG names the file
      flags         --model, --max-turns, --workspace, --policy

    The organisation's /etc/forge/policy.yaml (permissions, egress, sandbox, guardrails) overrides all of them. A
    project cannot loosen a setting of the user or the organisation: denies stay, and the stricter sandbox and egress
    apply.

    \b
    Examples:
      forge config show --explain
      forge config schema > forge.schema.json
    """


@command.command()
@with_options("policy")
@click.option("--explain", is_flag=True, help="Show the origin and the meaning of each value.")
def show(options: Options, explain: bool) -> None:
    """Show the effective values. Secrets are never shown: variables appear by name.

    With --json: {"values": {…}}, with --explain also {"origins": {place: who}, "descriptions": {place: what},
    "notes": […]}.

    \b
    Examples:
      forge config show
      forge config show --explain
      forge config show --config other.yaml --json
    """
    from forge.project.effective_config import effective_values, nest_values

    flags = {"workspace.root": options.workspace, "permissions.rules (session)": options.policy}
    with refusals():
        configuration = load_configuration(options.config, resolve=False)
        values = effective_values(
            configuration,
            {key_path: os.path.abspath(value) for key_path, value in flags.items() if value},
            _find_workspace(options.workspace, configuration.root),
        )
    if options.json:
        document: dict[str, object] = {"values": nest_values(values)}
        if explain:
            document |= {
                "origins": {one.key_path: one.origin for one in values},
                "descriptions": {one.key_path: one.description for one in values if one.description},
                "notes": [*configuration.notes],
            }
        click.echo(json.dumps(document, ensure_ascii=False, default=str))
        return
    _print_values(values, configuration.notes, explain)


def _find_workspace(requested: str | None, configured: Path | None) -> Path | None:
    from forge.project.assemble.access import workspace_root

    try:
        return workspace_root(requested, configured)
    except ToolError:  # the configuration can still be shown
        return None


def _print_values(values: list[EffectiveValue], notes: tuple[str, ...], explain: bool) -> None:
    lines = [harmless(f"{one.key_path}: {on_one_line(one.value)}").replace("\n", "⏎") for one in values]
    clipped = [line if len(line) <= _LONGEST_VALUE else f"{line[:_LONGEST_VALUE]}…" for line in lines]
    width = min(max(map(len, clipped)), 60)
    for line, one in zip(clipped, values, strict=True):
        why = harmless(f"{one.origin}: {one.description}" if one.description else one.origin)
        click.echo(f"{line:<{width}}  {click.style(why, dim=True)}" if explain else line)
    for note in notes if explain else ():
        click.echo(harmless(f"note: {note}"))


@command.command()
@click.option("--organisation", is_flag=True, help="Print the schema of /etc/forge/policy.yaml instead.")
def schema(organisation: bool) -> None:
    """Print the JSON Schema of forge.yaml, for editors.

    \b
    Examples:
      forge config schema > forge.schema.json
      # then, in the first line of forge.yaml:
      # yaml-language-server: $schema=forge.schema.json
    """

    click.echo(json.dumps(organisation_schema() if organisation else config_schema(), indent=2, ensure_ascii=False))
