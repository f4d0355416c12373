"""A source of tools: MCP servers. `mcp("uvx mcp-server-git")`, `mcp("https://example.com/mcp", headers={…})`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge.sources.mcp.server import McpServer, mcp

__all__ = ["McpServer", "mcp"]


def __getattr__(name: str) -> Any:
    """Imports the server on first use: listing `mcp_call` does not need it."""
    if name in __all__:
        from forge.sources.mcp import server

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
