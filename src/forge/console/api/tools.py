"""Tools: what each is and costs, what a call of it would be allowed, and the call itself."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from forge.agent.tokens import estimate
from forge.console.api.asking import Asked, Made
from forge.console.api.runs import call_tool as call_as_run
from forge.console.console_state import Home
from forge.core.arguments.checks import near
from forge.core.arguments.example import example_arguments
from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from forge.project.preview_call import preview_call
from forge.project.trust import FoundConfig


def list_tools(home: Home, asked: Asked) -> dict[str, Any]:
    tools = [_facts(tool) for _, tool in sorted(home.registry.items())]
    return {"tools": tools, "problems": [home.secrets.mask_all(one) for one in home.problems]}


def show_tool(home: Home, asked: Asked) -> dict[str, Any]:
    tool = _named(home, asked.path["name"])
    spec = tool.spec
    example = example_arguments(spec.parameters)
    return {
        **_facts(tool),
        "parameters": spec.parameters,
        "target": spec.target,
        "timeout": spec.timeout,
        "rate": None if spec.rate is None else str(spec.rate),
        "parallel": spec.parallel,
        "repeatable": spec.repeatable,
        "idempotent": spec.idempotent,
        "example": example,
        "definition": spec.to_function(),
        "pin": _pin(tool),
        "copy": _copies(home, spec, example),
    }


def call_tool(home: Home, asked: Asked) -> Made:
    tool = _named(home, asked.path["name"])
    arguments = asked.given("arguments") or {}
    tool.parse(arguments)
    return call_as_run(home, tool.spec.name, arguments, session=asked.said("session", needed=False, most=200))


def check_call(home: Home, asked: Asked) -> dict[str, Any]:
    return judged(home, asked.path["name"], asked.given("arguments") or {})


def copy_call(home: Home, asked: Asked) -> dict[str, Any]:
    return _copies(home, _named(home, asked.path["name"]).spec, asked.given("arguments") or {})


def explain_call(home: Home, asked: Asked) -> dict[str, Any]:
    agent = asked.said("agent", needed=False, most=200)
    return judged(home, asked.said("tool", most=200), asked.given("arguments") or {}, agent)


def judged(home: Home, name: str, arguments: Mapping[str, Any], agent: str = "") -> dict[str, Any]:
    """What would happen to a call, without making it."""
    tool = _named(home, name)
    told: dict[str, Any] = {"tool": tool.spec.name, "problems": [], "arguments": arguments, "decision": "", "wants": []}
    try:
        parsed = tool.parse(arguments)
    except ToolError as error:
        return {**told, "problems": [_in_words(error)]}
    scope = replace(home.scope, agent=agent) if agent else home.scope
    try:
        seen = preview_call(home.configuration, home.policy, tool, parsed, scope)
    except ToolError as error:  # what it would do cannot be told: it has not been set up, say
        return {**told, "arguments": parsed, "problems": [_in_words(error)]}
    wants = [
        {
            "permission": str(permission) if permission else "",
            "target": str(target),
            "optional": optional,
            "decision": str(ruling.decision),
            "reason": ruling.reason,
            "rule": ruling.rule,
            "layer": ruling.layer,
        }
        for permission, target, ruling, optional in seen.wants
    ]
    return {**told, "arguments": parsed, "decision": str(seen.decision), "wants": wants}


def _in_words(error: ToolError) -> str:
    return "\n".join(filter(None, (error.message, error.suggestion)))


def _named(home: Home, name: str) -> Tool:
    tool = home.registry.find(name)
    if tool.spec.name in home.registry:
        return tool
    hints = " or ".join(near(name, list(home.registry)))
    way = f"Did you mean {hints}?" if hints else "The list shows all there are."
    raise ToolError(f"there is no tool {name[:80]!r}", ErrorKind.NOT_FOUND, way)


def _facts(tool: Tool) -> dict[str, Any]:
    spec = tool.spec
    definition = json.dumps(spec.to_function(), ensure_ascii=False)
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
        "tokens": estimate(definition),
        "groups": sorted(spec.groups),
        "hidden": spec.hidden,
        "confirm": spec.confirm,
        "ends_turn": spec.ends_turn,
    }


def _pin(tool: Tool) -> dict[str, Any] | None:
    from forge.sources.mcp.tools import McpTool  # a project without servers does without

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


def _copies(home: Home, spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The same call of the same project from elsewhere; nothing in the arguments can end what quotes them."""
    text = json.dumps(arguments, ensure_ascii=False)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": spec.name, "arguments": arguments}}
    config = home.project.options.config
    words = ["forge", "tool", "call", spec.name, text, "--workspace", str(home.workspace)]
    if config is not None and not isinstance(config, FoundConfig):  # one that is found is found again
        words += ["--config", str(Path(config).absolute())]
    return {
        "cli": shlex.join(words),
        "python": _python(home, spec, arguments),
        "mcp": json.dumps(request, ensure_ascii=False, indent=2),
    }


def _python(home: Home, spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """With the project's own tools, sources and rules: a registry of the built-in ones would lack most tools."""
    config = home.project.options.config
    named = f", config={str(Path(config).absolute())!r}" if config is not None else ""
    return (
        "import asyncio\n\n"
        "from forge import load_project\n\n"
        f"agent = load_project({str(home.workspace)!r}{named}).agent(with_model=False)\n\n\n"
        "async def main() -> None:\n"
        "    async with agent:\n"
        f"        print((await agent.call({spec.name!r}, {dict(arguments)!r})).for_llm)\n\n\n"
        "asyncio.run(main())\n"
    )
