"""The MCP client that the conformance kit tests: Forge mounts the kit's server, and calls what it offers.

The kit starts `python -m scores.mcp_client URL`, and names the scenario and its data in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any

from forge import Egress, Scope, ToolCall, ToolRegistry, mcp
from forge.core.arguments.example import example_arguments
from forge.core.registry import mount_source
from forge.mcp import Http, OAuth
from forge.mcp.client.source import McpSource
from forge.mcp.oauth.login import Browser, Redirect, read_redirect
from forge.permissions.questions import Answer, PermissionRequest
from forge.pipeline import standard_executor

LOCAL = Egress(private=("127.0.0.1", "localhost"))
METADATA_URL = "https://conformance-test.local/client-metadata.json"  # the kit knows it


async def main(url: str) -> int:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    registry = ToolRegistry()
    auth = auth_for(os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), context)
    server = mcp(Http(url, egress=LOCAL, auth=OAuth(**auth), connect_timeout=120.0), name="kit")
    assert server.login is not None
    server.login.browser = obedient_browser()
    async with mount_source(registry, server):
        executor = standard_executor(registry, approve=agree)
        for number, (name, arguments) in enumerate(calls_for(server, context)):
            call = ToolCall(name, arguments, id=f"{name}-{number}")
            result = await executor.execute(call, Scope(session_id="conformance"))
            print(f"{name}: {result.for_llm[:200]}")
    return 0


async def agree(request: PermissionRequest) -> Answer:
    """A person who agrees to everything, and leaves a form as it is."""
    return Answer.ONCE


def auth_for(scenario: str, context: dict[str, Any]) -> dict[str, Any]:
    """The settings of a login that a scenario is about."""
    client: dict[str, Any] = {key: context[key] for key in ("client_id", "client_secret", "issuer") if key in context}
    if "private_key_pem" in context:
        return {**client, "grant": "client_credentials", "private_key": context["private_key_pem"]}
    if "idp_id_token" in context:
        idp = {"id_token": context["idp_id_token"], "idp_token_url": context["idp_token_endpoint"]}
        return {**client, **idp, "grant": "enterprise", "idp_client_id": context["idp_client_id"]}
    if "valid_jwt" in context:
        return {**client, "grant": "workload", "assertion": context["valid_jwt"]}
    if "client-credentials" in scenario:
        return {**client, "grant": "client_credentials"}
    return {"client_metadata_url": METADATA_URL, **client}


def obedient_browser() -> Browser:
    """Opens the URL as a browser would, where everyone is logged in: the server redirects at once."""
    redirected: list[str] = []

    async def show(url: str) -> None:
        import httpx2

        async with httpx2.AsyncClient() as client:
            redirected.append((await client.get(url, follow_redirects=False)).headers["location"])

    async def wait() -> Redirect:
        return read_redirect(redirected.pop())

    return Browser("http://localhost:3000/callback", show, wait)


def calls_for(server: McpSource, context: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the kit asks for, else one call of every tool."""
    tools = {tool.remote: tool for tool in server.tools}
    if wanted := context.get("toolCalls"):
        return [(tools[one["name"]].spec.name, one["arguments"]) for one in wanted]
    return [(tool.spec.name, _arguments(server, name)) for name, tool in tools.items()]


def _arguments(server: McpSource, name: str) -> dict[str, Any]:
    tools = {tool.remote: tool for tool in server.tools}
    if name == "add_numbers":
        return {"a": 5, "b": 3}
    if name == "json_schema_echo":  # it wants to see what reached the client
        return {"schema": tools["json_schema_2020_12_tool"].offer.definition["inputSchema"]}
    return dict(example_arguments(tools[name].spec.parameters))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="forge-kit-") as folder:
        os.environ["XDG_DATA_HOME"] = folder  # no login of another scenario
        sys.exit(asyncio.run(main(sys.argv[-1])))
