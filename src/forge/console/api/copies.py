"""Writes a tool call for other programs: a command line, Python, MCP, curl, JSON and Markdown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forge.console.console_state import ConsoleState
from forge.core.spec import ToolSpec
from forge.project.trust import FoundConfig


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
