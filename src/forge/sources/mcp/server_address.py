"""Reads the command or URL of a server, and displays it without secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence

from forge.core.errors import DefinitionError
from forge.core.secrets import MASK, SHORTEST, Secrets
from forge.sources.mcp.names import is_url

SECRET_NAMES = re.compile(r"auth|token|secret|passw|key|cookie|credential", re.IGNORECASE)
"""Names whose values are secret."""

_LONG_SEGMENT = re.compile(r"(?<=/)[\w.~%-]{20,}(?=/|$)")  # of a URL path: some services put their token there


def read_target(where: str | Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Reads a command or a URL. Raises `DefinitionError` or `ToolError`."""
    if isinstance(where, str) and is_url(where):
        from forge.network.address import read_url  # programs do not need the network

        read_url(where.strip())
        return (), where.strip()
    try:
        command = tuple(shlex.split(where)) if isinstance(where, str) else tuple(map(str, where))
    except ValueError as error:
        raise DefinitionError(f"mcp({where!r:.100}): {error}; write it as a list of words") from None
    if not command or not command[0]:
        raise DefinitionError(f"mcp({where!r:.100}): expected a command such as 'uvx mcp-server-git', or a URL")
    return command, ""


def display_target(command: Sequence[str], url: str, secrets: Collection[str]) -> str:
    """Displays the command or the URL, whichever is set, with secrets masked."""
    if command:
        secret_values = [value for value in find_secret_values(command) if len(value) >= SHORTEST]
        return Secrets((*secrets, *secret_values)).mask_all(shlex.join(command))
    url_path = re.split(r"[?#]", url, maxsplit=1)[0]
    return Secrets(secrets).mask_all(_LONG_SEGMENT.sub(MASK, url_path))


def origin_of(url: str) -> str:
    from forge.network.address import read_url

    return read_url(url).origin


def find_secret_values(command: Sequence[str]) -> list[str]:
    """Returns the secret values in a command line: `--token X`, `--api-key=X`, `-e TOKEN=X`."""
    found = []
    for word, following in zip(command, (*command[1:], ""), strict=True):
        name, assigned, value = word.partition("=")
        if not SECRET_NAMES.search(name):
            continue
        if assigned:
            found.append(value)
        elif name.startswith("-") and not following.startswith("-"):
            found.append(following)
    return found
