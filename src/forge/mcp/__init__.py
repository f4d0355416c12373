"""MCP: `client/` mounts the tools of servers, `server/` serves ours, `oauth/` logs in, `programs/` installs and pins.

`mcp("uvx mcp-server-git")`, `mcp("https://example.com/mcp", headers={…})` make a source of tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge.mcp.client.source import McpSource, mcp

__all__ = ["McpSource", "mcp"]


def __getattr__(name: str) -> Any:
    """Imports the server on first use: listing `mcp_call` does not need it."""
    if name in __all__:
        from forge.mcp.client import source

        return getattr(source, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
