"""`forge doctor`: checks a setup and suggests fixes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options, with_named_options
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # loaded when something is looked at
    from forge.project.doctor import Finding

_MARKS = {"ok": ("✓", "green"), "note": ("·", None), "warning": ("!", "yellow"), "broken": ("✗", "red")}


@click.command("doctor")
@with_named_options
def command(options: Options) -> int:
    """Say what Forge finds here, and how to fix what is not right.

    \b
    forge doctor
    forge doctor --config forge.yaml --json | jq '.checks[] | select(.status != "ok")'

    Nothing is started, contacted or changed; of keys it only says whether they are set.

    \b
    With --json: {"ok": …, "checks": [{check, status: ok | note | warning | broken, detail, fix}]}.
    Exit codes: 0 it can be used, notes and warnings or not     1 something is broken
    """
    from forge.project.doctor import examine  # looks at much that other commands do without

    findings = examine(options.workspace, options.config, options.policy, dev=options.dev)
    usable = all(finding.status != "broken" for finding in findings)
    if options.json:
        checks: list[dict[str, Any]] = [finding._asdict() for finding in findings]
        click.echo(json.dumps({"ok": usable, "checks": checks}, ensure_ascii=False))
        return 0 if usable else 1
    listed, unset = _split_unset_keys(findings)
    width = max(len(finding.check) for finding in listed)
    for finding in listed:
        mark, colour = _MARKS[finding.status]
        click.echo(
            f"{click.style(mark, fg=colour)} {_on_one_line(finding.check):<{width}}  {_on_one_line(finding.detail)}"
        )
        if finding.status != "ok" and finding.fix:
            click.echo(click.style(f"  {'':<{width}}  → {_on_one_line(finding.fix)}", dim=finding.status == "note"))
    if unset:
        click.echo(f"· Not set: {', '.join(unset)}; to use one: export NAME=…")
    return 0 if usable else 1


def _split_unset_keys(findings: list[Finding]) -> tuple[list[Finding], list[str]]:
    """Splits off the names of unset keys: they are many and no problem."""
    unset = [one.check for one in findings if one.status == "note" and one.detail == "not set"]
    return [one for one in findings if one.check not in unset], unset


def _on_one_line(text: str) -> str:
    """Puts a text on one line: names of files and servers come from others and must not begin a line."""
    return harmless(" ".join(text.split()))
