"""Reads documents of MCP servers from a file, a URL or a registry, and searches a registry."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.yaml.bounded_yaml import Unreadable, bounded_text
from forge.network.client import fetch
from forge.network.egress import Egress
from forge.network.limits import Limits
from forge.project.servers.plan import URL
from forge.project.servers.registry_document import RegistryServer, read_document

VARIABLE = "FORGE_MCP_REGISTRY"
DEFAULT = "https://registry.modelcontextprotocol.io"
LARGEST = 4 * 1024 * 1024  # bytes of an answer
MOST = 100  # servers of one answer
_LIMITS = Limits(read=20.0, total=30.0, size=LARGEST)


def registry_url(given: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """Returns the URL of the registry: as given, of the variable FORGE_MCP_REGISTRY, or the official one."""
    return (given or environment.get(VARIABLE, "") or DEFAULT).rstrip("/")


async def search_registry(word: str, registry: str, *, limit: int = 20) -> list[RegistryServer]:
    """Returns the newest versions of servers whose name contains a word. Raises `ToolError`."""
    query = urlencode({"search": word, "version": "latest", "limit": min(limit, MOST)})
    answer = await _get(f"{registry}/v0/servers?{query}")
    listed = answer.get("servers") if isinstance(answer, Mapping) else None
    if not isinstance(listed, list):
        raise _failed(registry, "it answered without a list of servers")
    found = []
    for one in listed[:limit]:
        try:
            found.append(read_document(one))
        except ToolError:  # one bad document does not affect the others
            continue
    return found


async def load_document(where: str, registry: str) -> RegistryServer:
    """Loads the document of a server: from a file, a URL, or by its name in the registry. Raises `ToolError`."""
    if URL.match(where):
        return read_document(await _get(where))
    if where.endswith(".json") or where.startswith((".", "/")):
        found: RegistryServer = await in_thread(lambda: _read_file(Path(where)))
        return found
    return read_document(await _get(f"{registry}/v0/servers/{quote(where, safe='')}/versions/latest"))


def _read_file(path: Path) -> RegistryServer:
    try:
        return read_document(json.loads(bounded_text(path, LARGEST)))
    except (Unreadable, ValueError, RecursionError) as error:
        raise ToolError(
            f"{path} cannot be read: {str(error)[:300]}", ErrorKind.USER, "Name a server.json of an MCP registry."
        ) from None


async def _get(url: str) -> Any:
    """Returns the JSON at a URL that a person named; only its own server is asked."""
    answer = await fetch(
        "GET", url, headers={"accept": "application/json"}, egress=Egress.only(url), limits=_LIMITS, follow="same-host"
    )
    if answer.status == 404:
        raise _failed(url, "there is no such server", "Find it with `forge mcp search WORD`.")
    if answer.status != 200:
        raise _failed(url, f"the server answered {answer.status}")
    if answer.truncated:
        raise _failed(url, f"the answer has more than {LARGEST // 1024 // 1024} MiB")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise _failed(url, "the answer is not JSON") from None


def _failed(url: str, problem: str, advice: str = "") -> ToolError:
    return ToolError(
        f"{url[:200]} cannot be used: {problem}",
        ErrorKind.USER,
        advice or f"Name another registry with --registry or {VARIABLE}.",
    )
