"""`forge doctor`: checks a setup and suggests fixes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options, with_options
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # loaded when something is looked at
    from forge.project.doctor import Finding

_MARKS = {"ok": ("✓", "green"), "note": ("·", None), "warning": ("!", "yellow"), "broken": ("✗", "red")}

MAIN = ("workspace", "configuration", "model", "tools", "sandbox", "trial", "labels")  # shown even if they are fine


@click.command("doctor")
@with_options("policy", "dev", find_config=False)
@click.option("--verbose", "-v", is_flag=True, help="List every check, not only the problems.")
def command(options: Options, verbose: bool) -> int:
    """Check your setup and suggest fixes.

    \b
    forge doctor
    forge doctor --verbose
    forge doctor --config forge.yaml --json | jq '.checks[] | select(.status != "ok")'

    The command changes nothing, and starts nothing but a try of the sandbox and of a trial. It contacts only model
    servers on this machine. It says whether a key is set, but never shows the key.

    \b
    With --json: {"ok": …, "checks": [{check, status: ok | note | warning | broken, detail, fix}]}.
    Exit codes: 0 usable, perhaps with notes and warnings     1 something is broken
    """
    from forge.project.doctor import examine  # looks at much that other commands do without

    findings = examine(options.workspace, options.config, options.policy, dev=options.dev)
    usable = all(finding.status != "broken" for finding in findings)
    if options.json:
        checks: list[dict[str, Any]] = [finding._asdict() for finding in findings]
        click.echo(json.dumps({"ok": usable, "checks": checks}, ensure_ascii=False))
        return 0 if usable else 1
    click.echo(_verdict(findings))
    problems = [one for one in findings if one.status in ("broken", "warning")]
    facts = [one for one in findings if one.check in MAIN and one not in problems]
    if verbose:
        listed, unset = _split_unset_keys(findings)
        _print_findings(listed)
        if unset:
            click.echo(f"· Not set: {', '.join(unset)}; to use one: export NAME=…")
    else:
        _print_findings([*sorted(problems, key=lambda one: one.status != "broken"), *facts])
        click.echo(f"{len(findings)} checks were made. `forge doctor --verbose` lists them all.")
    return 0 if usable else 1


def _verdict(findings: list[Finding]) -> str:
    broken, warnings = (sum(one.status == status for one in findings) for status in ("broken", "warning"))
    counts = [_count(broken, "problem")] * bool(broken) + [_count(warnings, "warning")] * bool(warnings)
    if broken:
        return click.style(f"Forge cannot be used as it is set up here: {' and '.join(counts)}.", fg="red", bold=True)
    if warnings:
        return click.style(f"Forge can be used here, with {counts[0]}.", fg="yellow", bold=True)
    if any(one.check == "model" and one.status != "ok" for one in findings):
        return click.style("Forge's tools are ready to use here; `forge run` needs a model.", fg="yellow", bold=True)
    return click.style("Forge is ready to use here. No problem was found.", fg="green", bold=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print_findings(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.status]
        click.echo(
            f"{click.style(mark, fg=colour)} {_on_one_line(finding.check):<{width}}  {_on_one_line(finding.detail)}"
        )
        if finding.status != "ok" and finding.fix:
            click.echo(click.style(f"  {'':<{width}}  → {_on_one_line(finding.fix)}", dim=finding.status == "note"))


def _split_unset_keys(findings: list[Finding]) -> tuple[list[Finding], list[str]]:
    """Splits off the names of unset keys: they are many and no problem."""
    unset = [one.check for one in findings if one.status == "note" and one.detail == "not set"]
    return [one for one in findings if one.check not in unset], unset


def _on_one_line(text: str) -> str:
    """Puts a text on one line: names of files and servers come from others and must not begin a line."""
    return harmless(" ".join(text.split()))
