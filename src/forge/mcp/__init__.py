"""MCP: `client/` mounts the tools of servers, `server/` serves ours, `oauth/` logs in, `apps` has the pages of tools,
and `programs/` installs and pins.

`mcp("uvx mcp-server-git")`, `mcp(Http("https://example.com/mcp", headers={…}))` make a source of tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge.mcp.client.link import Http, Stdio
    from forge.mcp.client.source import mcp
    from forge.mcp.oauth.login import OAuth

__all__ = ["Http", "OAuth", "Stdio", "mcp"]


def __getattr__(name: str) -> Any:
    """Imports the client on first use: listing `mcp_call` does not need it."""
    if name in __all__:
        from forge.mcp.client import link, source

        return getattr(source, name, None) or getattr(link, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
