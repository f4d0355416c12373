"""The tools page: facts and costs, previews of calls, the call itself, and its text for other programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from forge.agent.tokens import estimate_definition
from forge.console.api.requests import ApiRequest, StatusAnswer
from forge.console.api.runs import call_tool as call_as_run
from forge.console.console_state import ConsoleState
from forge.core.arguments.example import example_arguments
from forge.core.arguments.names import near
from forge.core.arguments.tool_formats import openai
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Next, step_name
from forge.core.executor import ToolExecutor
from forge.core.extras import install_command
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from forge.mcp.client.tools import McpTool
from forge.pipeline.dry_run import describe_effects
from forge.project.preview_call import preview_call
from forge.project.trust import FoundConfig

AROUND_A_PREVIEW = ("redact", "track_files")


def list_tools(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    tools = [_facts(console, tool) for _, tool in sorted(console.registry.items())]
    lacking = sorted(console.registry.unavailable, key=lambda spec: spec.name)
    return {
        "tools": tools,
        "unavailable": [
            {
                "name": one.name,
                "description": one.description,
                "extra": one.extra,
                "install": install_command(one.extra),
            }
            for one in lacking
        ],
        "problems": [console.secrets.mask_all(one) for one in console.problems],
    }


def show_tool(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    tool = _find_tool(console, asked.path["name"])
    spec = tool.spec
    example = example_arguments(spec.parameters)
    return {
        **_facts(console, tool),
        "parameters": spec.parameters,
        "target": spec.target,
        "timeout": spec.timeout,
        "rate": None if spec.rate is None else str(spec.rate),
        "parallel": spec.parallel,
        "repeatable": spec.repeatable,
        "idempotent": spec.idempotent,
        "irreversible": spec.irreversible,
        "example": example,
        "definition": openai(spec),
        "pin": _pin(tool),
        "copy": copy_call_as(console, spec, example),
    }


def call_tool(console: ConsoleState, asked: ApiRequest) -> StatusAnswer:
    tool = _find_tool(console, asked.path["name"])
    arguments = asked.body_object("arguments") or {}
    tool.parse(arguments)
    return call_as_run(console, tool.spec.name, arguments, session=asked.body_text("session", needed=False, most=200))


def check_call(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    return preview_tool_call(console, asked.path["name"], asked.body_object("arguments") or {})


def copy_call(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    return copy_call_as(console, _find_tool(console, asked.path["name"]).spec, asked.body_object("arguments") or {})


def explain_call(console: ConsoleState, asked: ApiRequest) -> dict[str, Any]:
    agent = asked.body_text("agent", needed=False, most=200)
    arguments = asked.body_object("arguments") or {}
    written = asked.body_text("effects", needed=False, most=20_000)
    effects = [line for line in written.splitlines() if line.strip()] if written else None
    return preview_tool_call(console, asked.body_text("tool", most=200), arguments, agent, effects)


def preview_tool_call(
    console: ConsoleState,
    name: str,
    arguments: Mapping[str, Any],
    agent: str = "",
    effects: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Previews a call without making it. `effects`: of a trial run of it, such as `delete src/a.py`."""
    tool = _find_tool(console, name)
    told: dict[str, Any] = {"tool": tool.spec.name, "problems": [], "arguments": arguments, "decision": "", "wants": []}
    try:
        parsed = tool.parse(arguments)
    except ToolError as error:
        return {**told, "problems": [_error_text(error)]}
    scope = replace(console.scope, agent=agent) if agent else console.scope
    try:
        seen = preview_call(console.configuration, console.policy, tool, parsed, scope, effects=effects)
    except ToolError as error:  # what it would do cannot be told: it has not been set up, say
        return {**told, "arguments": parsed, "problems": [_error_text(error)]}
    wants = [
        {
            "permission": str(one.permission) if one.permission else "",
            "target": str(one.target),
            "effect": one.effect,
            "trial": one.trial,
            "tool": one.tool or tool.spec.name,
            "optional": one.optional,
            "decision": str(one.ruling.decision),
            "reason": one.ruling.reason,
            "rule": one.ruling.rule,
            "layer": one.ruling.layer,
        }
        for one in seen.wants
    ]
    return {**told, "arguments": parsed, "decision": str(seen.decision), "wants": wants}


async def preview_effects(console: ConsoleState, call: ToolCall, session: str = "") -> tuple[str, str]:
    """Returns the change that a call would make, and why it would fail, as the gate shows them. Nothing runs."""
    around = [step for step in console.agents[0].steps if step_name(step) in AROUND_A_PREVIEW]

    async def look(ctx: ToolContext, proceed: Next) -> ToolResult:
        return await describe_effects(ctx)

    executor = ToolExecutor(console.registry, [*around, look], secrets=console.secrets)
    scope = replace(console.scope, session_id=session) if session else console.scope
    result = await executor.execute(call, scope)
    return result.for_user, str(result.data.get("problem", ""))


def _error_text(error: ToolError) -> str:
    return "\n".join(filter(None, (error.message, error.suggestion)))


def _find_tool(console: ConsoleState, name: str) -> Tool:
    tool = console.registry.find(name)
    if tool.spec.name in console.registry:
        return tool
    hints = " or ".join(near(name, list(console.registry)))
    hint = f"Did you mean {hints}?" if hints else "The Tools page lists all tools."
    raise ToolError(f"there is no tool {name[:80]!r}", ErrorKind.NOT_FOUND, hint)


def _facts(console: ConsoleState, tool: Tool) -> dict[str, Any]:
    spec = tool.spec
    return {
        "name": spec.name,
        "category": str(spec.category),
        "description": spec.description,
        "permissions": sorted(map(str, spec.permissions)),
        "optional_permissions": sorted(map(str, spec.optional_permissions - spec.permissions)),
        "aliases": list(spec.aliases),
        "origin": spec.origin,
        "source": spec.origin if ":" in spec.origin else str(spec.category),
        "pin": str(getattr(tool, "state", "")),
        "tokens": estimate_definition(spec),
        "sent": not console.registry.is_deferred(spec),
        "groups": sorted(spec.groups),
        "hidden": spec.hidden,
        "confirm": spec.confirm,
        "ends_turn": spec.ends_turn,
    }


def _pin(tool: Tool) -> dict[str, Any] | None:
    if not isinstance(tool, McpTool):
        return None
    pin = tool.offer.pin
    return {
        "state": str(tool.state),
        "diff": tool.difference(),
        "approved": pin.approved if pin is not None else "",
        "by": pin.by if pin is not None else "",
        "server": tool.spec.origin,
    }


# Writes a tool call for other programs: a command line, Python, MCP, curl, JSON and Markdown.


def command_options(console: ConsoleState) -> list[str]:
    """Returns the options with which a `forge` command is about this project, from any directory."""
    config = console.project.options.config
    words = ["--workspace", str(console.workspace)]
    if config is not None and not isinstance(config, FoundConfig):  # one that is found is found again
        words += ["--config", str(Path(config).absolute())]
    return words


def copy_call_as(console: ConsoleState, spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Returns the same call of the same project for other programs; arguments cannot end their quotes."""
    text = json.dumps(arguments, ensure_ascii=False)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": spec.name, "arguments": arguments}}
    copies = {
        "cli": shlex.join(["forge", "tool", "call", spec.name, text, *command_options(console)]),
        "python": _write_python(console, spec, arguments),
        "mcp": json.dumps(request, ensure_ascii=False, indent=2),
    }
    curl = _write_curl(spec.name, arguments)
    return {**copies, "curl": curl} if curl else copies


def _write_python(console: ConsoleState, spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Uses the project's own tools, sources and rules: a registry of built-in tools would lack most tools."""
    config = console.project.options.config
    named = f", config={str(Path(config).absolute())!r}" if config is not None else ""
    return (
        "import asyncio\n\n"
        "from forge import load_project\n\n"
        f"agent = load_project({str(console.workspace)!r}{named}).agent(with_model=False)\n\n\n"
        "async def main() -> None:\n"
        "    async with agent:\n"
        f"        print((await agent.call({spec.name!r}, {dict(arguments)!r})).for_llm)\n\n\n"
        "asyncio.run(main())\n"
    )


def _write_curl(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns the request of a call of `http_request` or `webhook_call`; empty for other tools."""
    if name not in ("http_request", "webhook_call") or not isinstance(arguments.get("url"), str):
        return ""
    headers = arguments.get("headers")
    named = dict(headers) if isinstance(headers, Mapping) else {}
    payload = arguments.get("payload") if name == "webhook_call" else arguments.get("json")
    body = str(arguments.get("body") or "")
    if payload is not None:
        body = json.dumps(payload, ensure_ascii=False)
        if not any(str(one).lower() == "content-type" for one in named):
            named["Content-Type"] = "application/json"
    method = "POST" if name == "webhook_call" else str(arguments.get("method") or "GET")
    words = ["curl", "--head"] if method == "HEAD" else ["curl", "--request", method]
    for key, value in named.items():
        words += ["--header", f"{key}: {value}"]
    if body:
        words += ["--data-raw", body]
    return shlex.join([*words, "--url", arguments["url"]])
