"""Finds and reads the configurations of other MCP clients."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.yaml.bounded_yaml import Unreadable, bounded_text

LARGEST = 16 * 1024 * 1024  # bytes: Claude Code keeps much else in its file
CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode")
_SKIPPED = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)


class ClientFile(NamedTuple):
    """The servers of one file, as another client writes them. `inputs` are the questions of VS Code, by id."""

    path: Path
    servers: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]]


def list_files(client: str, workspace: Path, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the files in which a client has its servers, as far as they exist: the project's first."""
    home = Path(environment.get("HOME", "") or "/")
    support = home / "Library" / "Application Support" if sys.platform == "darwin" else home / ".config"
    places = {
        "claude-desktop": [support / "Claude" / "claude_desktop_config.json"],
        "claude-code": [workspace / ".mcp.json", home / ".claude.json"],
        "cursor": [workspace / ".cursor" / "mcp.json", home / ".cursor" / "mcp.json"],
        "vscode": [
            workspace / ".vscode" / "mcp.json",
            support / "Code" / "User" / "mcp.json",
            support / "Code" / "User" / "settings.json",
        ],
    }
    return [path for path in places[client] if path.is_file()]


def read_file(path: Path, workspace: Path) -> ClientFile:
    """Reads a file with servers; comments and trailing commas are fine. Raises `ToolError`."""
    try:
        document = json.loads(_strip(bounded_text(path, LARGEST)))
    except (Unreadable, ValueError, RecursionError) as error:
        raise ToolError(
            f"{path} cannot be read: {str(error)[:300]}", ErrorKind.USER, "Name a file with MCP servers as JSON."
        ) from None
    if not isinstance(document, dict):
        raise ToolError(f"{path} has no servers", ErrorKind.USER, "Name a file with mcpServers or servers.")
    servers: dict[str, Any] = {}
    for found in _find_servers(document, workspace):
        servers |= {str(name): one for name, one in found.items()}
    inputs = document.get("inputs") or _mapping(document.get("mcp")).get("inputs") or ()
    return ClientFile(
        path, servers, {str(one["id"]): one for one in inputs if isinstance(one, Mapping) and one.get("id")}
    )


def _find_servers(document: Mapping[str, Any], workspace: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the mappings of servers; those of this project of Claude Code last, since they count more."""
    yield _mapping(document.get("servers"))
    yield _mapping(_mapping(document.get("mcp")).get("servers"))
    yield _mapping(document.get("mcpServers"))
    project = _mapping(_mapping(document.get("projects")).get(str(workspace)))
    yield _mapping(project.get("mcpServers"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _strip(text: str) -> str:
    """Removes comments and trailing commas outside of strings."""
    plain = _SKIPPED.sub(lambda found: found[1] or " ", text)
    return _COMMA.sub(lambda found: found[1] or "", plain)
