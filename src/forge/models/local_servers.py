"""Finds model servers on this machine: Ollama, LM Studio, llama.cpp, vLLM. Only loopback addresses are asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

CONNECT = 0.05  # seconds: a connection within this machine takes less than one
ANSWER = 0.5  # seconds for the list of models
MOST_MODELS = 1_000


class LocalServer(NamedTuple):
    """A server that answers, and its chat models."""

    name: str  # the provider's prefix
    base_url: str
    models: tuple[str, ...]


def find_local_servers(addresses: Mapping[str, str]) -> list[LocalServer]:
    """Returns the servers that answer, of those on this machine. All are asked at the same time. Never raises."""
    near = {name: url for name, url in addresses.items() if is_loopback(url)}
    if not near:
        return []
    from concurrent.futures import ThreadPoolExecutor  # only where a server is looked for

    with ThreadPoolExecutor(len(near)) as pool:
        found = [*pool.map(list_models, near.values())]
    return [LocalServer(name, url, models) for (name, url), models in zip(near.items(), found, strict=True) if models]


def is_loopback(url: str) -> bool:
    """Tells whether an address is one of this machine, without resolving its name."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def list_models(base_url: str, key: str = "", connect: float = CONNECT) -> tuple[str, ...]:
    """Returns the chat models of a server, or none; waits only briefly to connect. Never raises."""
    import json
    from http.client import HTTPConnection, HTTPException

    try:
        parts = urlsplit(base_url)
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=connect)
    except (ValueError, HTTPException):
        return ()
    if parts.scheme != "http":
        return ()
    try:
        connection.connect()
        connection.sock.settimeout(ANSWER)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", f"{parts.path.rstrip('/')}/models", headers=headers)
        response = connection.getresponse()
        found = json.loads(response.read(1 << 20)) if response.status == 200 else {}
        return tuple(_read_chat_models(found))[:MOST_MODELS]
    except (OSError, HTTPException, ValueError, RecursionError):
        return ()
    finally:
        connection.close()


def _read_chat_models(found: object) -> Iterator[str]:
    models = found.get("data") if isinstance(found, dict) else None
    for model in models if isinstance(models, list) else ():
        id = model.get("id") if isinstance(model, dict) else None
        if isinstance(id, str) and id.strip() and id.isprintable() and "embed" not in id.lower():
            yield id
