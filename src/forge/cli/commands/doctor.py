"""`forge doctor`: what is here, what is active, and what is broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options, with_named_options
from forge.cli.terminal.show import harmless

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
    shown, unset = _folded(findings)
    width = max(len(finding.check) for finding in shown)
    for finding in shown:
        mark, colour = _MARKS[finding.status]
        click.echo(f"{click.style(mark, fg=colour)} {_line(finding.check):<{width}}  {_line(finding.detail)}")
        if finding.status != "ok" and finding.fix:
            click.echo(click.style(f"  {'':<{width}}  → {_line(finding.fix)}", dim=finding.status == "note"))
    if unset:
        click.echo(f"· Not set: {', '.join(unset)}; to use one: export NAME=…")
    return 0 if usable else 1


def _folded(findings: list[Finding]) -> tuple[list[Finding], list[str]]:
    """Keys that nobody set are many, and no trouble: their names are enough."""
    unset = [one.check for one in findings if one.status == "note" and one.detail == "not set"]
    return [one for one in findings if one.check not in unset], unset


def _line(text: str) -> str:
    """Names of files and servers are other people's: none of them begins a line of its own."""
    return harmless(" ".join(text.split()))
