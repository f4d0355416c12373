"""`forge doctor`: what is here, what is active, and what is broken."""

from __future__ import annotations

import json
from typing import Any

import click

from forge.cli.options import Options, with_options

_MARKS = {"ok": ("✓", "green"), "note": ("·", None), "warning": ("!", "yellow"), "broken": ("✗", "red")}


@click.command("doctor")
@with_options
def command(options: Options) -> int:
    """Say what Forge finds here; exit 1 when something is broken.

    With --json: {"ok": …, "checks": [{check, status: ok | note | warning | broken, detail}]}. Of keys it only says
    whether they are set.
    """
    from forge.app.examine import examine  # looks at much that other commands do without

    findings = examine(options.workspace, options.config, options.policy, dev=options.dev)
    usable = all(finding.status != "broken" for finding in findings)
    if options.json:
        checks: list[dict[str, Any]] = [finding._asdict() for finding in findings]
        click.echo(json.dumps({"ok": usable, "checks": checks}, ensure_ascii=False))
        return 0 if usable else 1
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.status]
        click.echo(f"{click.style(mark, fg=colour)} {finding.check:<{width}}  {finding.detail}")
    return 0 if usable else 1
