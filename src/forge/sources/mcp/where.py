"""Where a server is, as a person wrote it: read, and shown without what may be secret."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence

from forge.core.errors import DefinitionError
from forge.core.secrets import MASK, SHORTEST, Secrets
from forge.sources.mcp.names import is_url

TELLING = re.compile(r"auth|token|secret|passw|key|cookie|credential", re.IGNORECASE)
"""Names whose values are nobody's business."""

_LONG_SEGMENT = re.compile(r"(?<=/)[\w.~%-]{20,}(?=/|$)")  # of a path: some services put their token there


def read_where(where: str | Sequence[str]) -> tuple[tuple[str, ...], str]:
    """A command or a URL. Raises `DefinitionError` or `ToolError`."""
    if isinstance(where, str) and is_url(where):
        from forge.network.url import read_url  # programs need nothing of the network

        read_url(where.strip())
        return (), where.strip()
    try:
        command = tuple(shlex.split(where)) if isinstance(where, str) else tuple(map(str, where))
    except ValueError as error:
        raise DefinitionError(f"mcp({where!r:.100}): {error}; write it as a list of words") from None
    if not command or not command[0]:
        raise DefinitionError(f"mcp({where!r:.100}): expected a command such as 'uvx mcp-server-git', or a URL")
    return command, ""


def shown(command: Sequence[str], url: str, secrets: Collection[str]) -> str:
    """The one of the two that there is."""
    if command:
        told = [value for value in _told_in(command) if len(value) >= SHORTEST]
        return Secrets((*secrets, *told)).mask_all(shlex.join(command))
    place = re.split(r"[?#]", url, maxsplit=1)[0]
    return Secrets(secrets).mask_all(_LONG_SEGMENT.sub(MASK, place))


def origin_of(url: str) -> str:
    from forge.network.url import read_url

    return read_url(url).origin


def _told_in(command: Sequence[str]) -> list[str]:
    """What such an option or variable has among its words: `--token X`, `--api-key=X`, `-e TOKEN=X`."""
    found = []
    for word, following in zip(command, (*command[1:], ""), strict=True):
        name, assigned, value = word.partition("=")
        if not TELLING.search(name):
            continue
        if assigned:
            found.append(value)
        elif name.startswith("-") and not following.startswith("-"):
            found.append(following)
    return found
