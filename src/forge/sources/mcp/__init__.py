"""MCP servers as a source of tools: `mcp("uvx mcp-server-git")`, `mcp("https://example.com/mcp", headers={…})`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # listing tools imports this package for `mcp_call`, and needs nothing of a server
    from forge.core.provider import Provider
    from forge.core.spec import PermissionName
    from forge.sources.mcp.server import McpServer
    from forge.sources.pins import Pins

__all__ = ["McpServer", "mcp"]


def mcp(
    where: str | Sequence[str],
    *,
    name: str = "",
    prefix: str | None = None,
    headers: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | str | None = None,
    include: Collection[str] = (),
    exclude: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
    timeout: float | None = None,
    permissions: Collection[PermissionName] | None = None,
    pins: Pins | Path | str | None = None,
    hidden: bool | None = None,
    sampling: Provider | None = None,
    connect_timeout: float = 30.0,
) -> McpServer:
    """The tools of an MCP server, named `prefix__tool`. `where` is a command line, its words, or a URL.

    `include` and `exclude` are patterns of the server's own names, `rename` maps such names to others. Programs count
    as `execute` and `network`, servers at a URL as `network`; `permissions` may declare less. `pins` is the file in
    which approved definitions are kept; without one, what the server offers first counts as approved for as long as
    this process lives. More than 40 tools are hidden behind `tool_search`, unless `hidden` says otherwise. With
    `sampling`, the server may ask that model, each time after a yes. Raises `DefinitionError` or `ToolError` for what
    cannot be a server; whether it runs shows when it is opened.
    """
    from forge.sources.mcp.server import McpServer

    return McpServer(
        where,
        name=name,
        prefix=prefix,
        headers=headers,
        environment=environment,
        directory=directory,
        include=include,
        exclude=exclude,
        rename=rename,
        timeout=timeout,
        permissions=permissions,
        pins=pins,
        hidden=hidden,
        sampling=sampling,
        connect_timeout=connect_timeout,
    )


def __getattr__(name: str) -> Any:
    if name == "McpServer":
        from forge.sources.mcp.server import McpServer

        return McpServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
