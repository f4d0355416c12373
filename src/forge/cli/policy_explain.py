"""`forge policy explain`: which rule would decide about a call, and why. Nothing is called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from forge.cli.names import complete_name, project_tools, tool_named
from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals

if TYPE_CHECKING:  # loaded when a call is explained
    from forge.app.config import Configuration

_STRICTNESS = ("allow", "ask", "deny")
_JUDGED = ("http_request", "web_fetch", "webhook_call")  # by the egress, too


@click.command("explain")
@click.argument("name", shell_complete=complete_name)
@click.argument("arguments", metavar="[JSON]", required=False)
@with_options
def command(options: Options, name: str, arguments: str | None) -> None:
    """Say which rule decides about a call, and why.

    With --json: {tool, decision, rulings: [{permission, target, optional, decision, reason, rule, layer}]}. The
    strictest decides; what is optional is asked for while the tool runs, if at all.
    """
    with refusals():
        rulings = _rulings(options, name, arguments)
    strictest = max((one["decision"] for one in rulings if not one["optional"]), key=_STRICTNESS.index)
    if options.json:
        click.echo(json.dumps({"tool": name, "decision": strictest, "rulings": rulings}, ensure_ascii=False))
        return
    from forge.permissions.display import visible

    for one in rulings:
        what = f"{one['permission'] or 'run'} {visible(one['target'])}".strip()
        click.echo(f"{one['decision']:<6}{what}{' (if it asks for it)' if one['optional'] else ''}: {one['reason']}")


def _rulings(options: Options, name: str, arguments: str | None) -> list[dict[str, Any]]:
    from forge.app.config import load_configuration  # the rules and the schema, which completing a name does without
    from forge.app.policy import project_policy
    from forge.app.workspace import project_scope
    from forge.permissions.explain import explained

    configuration = load_configuration(options.config)
    tool = tool_named(name, project_tools(options, name))
    scope = project_scope(options.workspace, configuration, options.session)
    policy = project_policy(configuration, options.policy)
    parsed = tool.parse(arguments) if arguments is not None else {}
    rulings = [
        {
            "permission": str(permission) if permission else None,
            "target": target,
            "optional": optional,
            "decision": str(ruling.decision),
            "reason": ruling.reason,
            "rule": ruling.rule,
            "layer": ruling.layer,
        }
        for permission, target, ruling, optional in explained(policy, tool, parsed, scope)
    ]
    if tool.spec.name in _JUDGED and "url" in parsed:
        rulings += _outside_the_egress(configuration, parsed["url"])
    return rulings


def _outside_the_egress(configuration: Configuration, url: str) -> list[dict[str, Any]]:
    """No rule allows what the egress refuses; where a name leads is only known when it is asked."""
    from forge.app.egress import project_egress
    from forge.core.errors import ToolError
    from forge.network.egress import Egress
    from forge.network.url import read_url

    egress = project_egress(configuration) or Egress()
    try:
        egress.judge(read_url(url))
    except ToolError as error:
        told = {"decision": "deny", "reason": f"{error.message}. {error.suggestion}", "rule": "", "layer": "egress"}
        return [{"permission": "network", "target": url, "optional": False, **told}]
    return []
