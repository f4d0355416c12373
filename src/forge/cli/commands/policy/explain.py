"""`forge policy explain`: shows which rule would decide about a call. No tool is called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from forge.agent.labels import LabelHistory
from forge.agent.session import SessionStore
from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals
from forge.cli.running.tool_names import complete_name, find_tool, project_tools
from forge.core.tool import UnavailableTool
from forge.permissions.policy import explain_tool
from forge.permissions.questions import show_invisible
from forge.project.assemble.access import project_policy, project_scope
from forge.project.config import load_configuration
from forge.project.preview_call import preview_call

if TYPE_CHECKING:  # completing a name does without
    from forge.core.context import Scope
    from forge.permissions.labels.provenance import Provenance
    from forge.project.config.declaration import Configuration

_STRICTNESS = ("allow", "ask", "deny")


@click.command("explain")
@click.argument("name", shell_complete=complete_name)
@click.argument("arguments", metavar="[JSON]", required=False)
@click.option("--after", metavar="SESSION", help="Judge it as the next call of a stored session, with its labels.")
@click.option(
    "--effect", "effects", metavar="EFFECT", multiple=True,
    help='Judge it as a trial run with this effect, such as "delete src/a.py"; may be repeated.',
)  # fmt: skip
@with_options("policy", "session")
def command(options: Options, name: str, arguments: str | None, after: str | None, effects: tuple[str, ...]) -> None:
    """Show which rule decides about a call, and why.

    \b
    forge policy explain bash '{"command": "git push"}'
    forge policy explain bash '{"command": "make"}' --effect "write build/app" --effect "delete src/a.py"
    forge policy explain http_request '{"url": "https://example.com"}' --after cli

    With --after, Forge reads what this session has read: then conditions about labels can hold, and the answer shows
    the words from which a value comes.

    A call through `mcp_call` or `openapi_call` also shows the rulings on the tool that it calls. No server is started
    for it: a tool of a server is known by its approved definition.

    A program that only the default asks about runs as a trial, where one is possible here: then the answer is "trial".
    With --effect, the answer shows how the rules judge the effects of a trial run. An effect is write, create, change,
    delete or mode, and a path.

    With --json: {tool, decision, rulings: [{permission, target, effect, trial, tool, optional, decision, reason, rule,
    layer, traces}]}; `trial` says how a trial is made here, and the decision stays ask, since its effects are judged.
    The strictest ruling decides. Optional permissions are only asked for while the tool runs, if it needs them.
    """
    with refusals():
        rulings = _rulings(options, name, arguments, after, effects or None)
    strictest = max((one["decision"] for one in rulings if not one["optional"]), key=_STRICTNESS.index)
    if options.json:
        click.echo(json.dumps({"tool": name, "decision": strictest, "rulings": rulings}, ensure_ascii=False))
        return

    for one in rulings:
        permission = f"effects {one['effect']}" if one["effect"] else one["permission"] or "run"
        what = f"{permission} {show_invisible(one['target'])}".strip()
        inner = f" by {show_invisible(one['tool'])}" if one["tool"] != name else ""
        later = " (if it asks for it)" if one["optional"] else ""
        click.echo(f"{'trial' if one['trial'] else one['decision']:<6}{what}{inner}{later}: {one['reason']}")


def _rulings(
    options: Options, name: str, arguments: str | None, after: str | None, effects: tuple[str, ...] | None
) -> list[dict[str, Any]]:
    configuration = load_configuration(options.config)
    tool = find_tool(name, project_tools(options, name))
    scope = project_scope(options.workspace, configuration, options.session)
    policy = project_policy(configuration, options.policy)
    tool = tool.original if isinstance(tool, UnavailableTool) else tool  # its rules count all the same
    origins = _read_origins(configuration, scope, after) if after is not None else None
    if arguments is None and effects is None and tool.spec.parameters.get("required"):
        wants = explain_tool(policy, tool, scope)
    else:
        parsed = tool.parse(arguments) if arguments is not None else {}
        wants = preview_call(configuration, policy, tool, parsed, scope, origins, effects).wants
    return [
        {
            "permission": str(one.permission) if one.permission else None,
            "target": one.target,
            "effect": one.effect,
            "trial": one.trial,
            "tool": one.tool or name,
            "optional": one.optional,
            "decision": str(one.ruling.decision),
            "reason": one.ruling.reason,
            "rule": one.ruling.rule,
            "layer": one.ruling.layer,
            "traces": [trace._asdict() for trace in one.ruling.traces],
        }
        for one in wants
    ]


def _read_origins(configuration: Configuration, scope: Scope, session: str) -> Provenance | None:
    """Returns the texts that a stored session has read; None where labels are off. Raises `ToolError`."""

    if not configuration.labels.enabled:
        return None
    history = LabelHistory()
    with SessionStore.of(scope.workspace) as store:
        history.follow(store.show(session).messages)
    return history
