"""MCP servers as a source of tools: `mcp("uvx mcp-server-git")`, `mcp("https://example.com/mcp", headers={…})`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge.sources.mcp.server import McpServer, mcp

__all__ = ["McpServer", "mcp"]


def __getattr__(name: str) -> Any:
    """On first use: listing `mcp_call` needs nothing of a server."""
    if name in __all__:
        from forge.sources.mcp import server

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
