"""MCP: `client/` mounts the tools of servers, `server/` serves ours, `oauth/` logs in, `apps` has the pages of tools,
and `programs/` installs and pins.

`mcp("uvx mcp-server-git")`, `mcp(Http("https://example.com/mcp", headers={…}))` make a source of tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge.core.client import CallClient as CallClient
    from forge.core.client import ClientRoot as ClientRoot
    from forge.core.client import MissingCapability as MissingCapability
    from forge.mcp.client.link import Http as Http
    from forge.mcp.client.link import Stdio as Stdio
    from forge.mcp.client.source import mcp as mcp
    from forge.mcp.oauth.login import OAuth as OAuth
    from forge.mcp.prompts import Prompt as Prompt
    from forge.mcp.prompts import prompt as prompt
    from forge.mcp.resources import Resource as Resource
    from forge.mcp.resources import resource as resource
else:
    from forge.core.public import expose

    __getattr__, __dir__ = expose(__name__)
