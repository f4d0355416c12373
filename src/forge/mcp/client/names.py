"""Names servers and their tools, safe and unique; reads a server's command or URL, and displays it without secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from forge.core.errors import DefinitionError
from forge.core.secrets import MASK, SHORTEST, Secrets

LONGEST_NAME = 64  # characters of a tool's whole name
LONGEST_SERVER = 32
SEPARATOR = "__"

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_STARTERS = frozenset(
    [
        "bun",
        "bunx",
        "deno",
        "docker",
        "env",
        "node",
        "npx",
        "pipx",
        "pnpm",
        "podman",
        "python",
        "python3",
        "uv",
        "uvx",
        "yarn",
    ]
)
_VERBS = frozenset(["dlx", "exec", "run", "tool", "x"])  # subcommands of such programs, before the package
_TAKES_VALUE = frozenset(  # options of such programs whose value is a separate word
    [
        "-e",
        "--env",
        "-v",
        "--volume",
        "--mount",
        "--name",
        "--network",
        "-p",
        "--package",
        "--from",
        "--with",
        "--python",
        "--directory",
        "--project",
    ]
)
_EXTENSION = re.compile(r"\.(?:[cm]?[jt]s|py)$")
_VERSION = re.compile(r"(?<=.)(?:@|==|>=|~=|:|\[).*$")
_VARIABLE = re.compile(r"\w+=(?!=)")
_ABOUT = re.compile(r"^(?:mcp|server)[-_.]+|[-_.]+(?:mcp|server)$", re.IGNORECASE)
_GENERAL = frozenset(["api", "mcp", "www"])  # first labels of a host without meaning


def is_url(where: str) -> bool:
    return re.match(r"https?://", where.strip(), re.IGNORECASE) is not None


def server_name(where: str | Sequence[str]) -> str:
    """Returns a short name for a command or a URL: `uvx mcp-server-git` is `git`."""
    if isinstance(where, str) and is_url(where):
        found = _name_of_host(where)
    else:
        words = shlex.split(where) if isinstance(where, str) else list(where)
        found = _name_of_package(_find_started(words)) if words else ""
    return _start_with_letter(_safe(found), "server")[:LONGEST_SERVER].strip("_-") or "server"


def tool_names(
    prefix: str, tools: Iterable[str], rename: Mapping[str, str], approved: Container[str] = ()
) -> dict[str, str]:
    """Maps every remote name to a local one: `prefix__tool`. Names that would be equal or too long end in a hash.

    Rules refer to names, so that a later tool must not take an earlier one's name. On a conflict a tool that a person
    renamed keeps the name, then a tool that a person approved, then a tool with exactly this name at the server.
    """
    wanted = {tool: f"{prefix}{SEPARATOR}{_safe(rename.get(tool, tool)) or 'tool'}" for tool in tools}
    claims: dict[str, list[tuple[bool, bool, bool]]] = {}
    for tool, name in wanted.items():
        claims.setdefault(name.casefold(), []).append(_claim(tool, rename, approved))
    names = {}
    for tool, name in wanted.items():
        others, own = claims[name.casefold()], _claim(tool, rename, approved)
        is_first = own == max(others) and others.count(own) == 1
        names[tool] = name if is_first and len(name) <= LONGEST_NAME else _add_hash(name, tool)
    return names


def _claim(tool: str, rename: Mapping[str, str], approved: Container[str]) -> tuple[bool, bool, bool]:
    return tool in rename, tool in approved, _safe(tool) == tool


def safe_prefix(text: str) -> str:
    """Returns a safe prefix; "" if no character is usable."""
    return _start_with_letter(_safe(text), "")[:LONGEST_SERVER].strip("_-")


def _add_hash(name: str, tool: str) -> str:
    from hashlib import sha256  # needed only for some names

    mark = sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - len(mark) - 1]}_{mark}"


def _safe(text: str) -> str:
    return re.sub(r"_{2,}", "_", _UNSAFE.sub("_", text)).strip("_-")


def _start_with_letter(text: str, otherwise: str) -> str:
    """Makes a name begin with a letter."""
    if text[:1].isalpha():
        return text
    return f"{otherwise or 'n'}_{text}" if text else otherwise


def _name_of_host(url: str) -> str:
    host = re.split(r"[/?#]", url.strip().split("://", 1)[1], maxsplit=1)[0].rpartition("@")[2].lower()
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if re.fullmatch(r"[0-9.]+|[0-9a-f:.]*:[0-9a-f:.]*", host):
        return f"at_{host}"
    labels = host.split(".")
    return labels[1] if len(labels) > 2 and labels[0] in _GENERAL else labels[0]


def _find_started(words: Sequence[str]) -> str:
    """Returns the package, module or script that a command line starts."""
    program = words[0].replace("\\", "/").rpartition("/")[2]
    if program.removesuffix(".exe").rstrip("0123456789.") not in _STARTERS and program not in _STARTERS:
        return program
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, program)
        if word in _TAKES_VALUE:
            next(rest, None)
        elif not word.startswith("-") and word not in _VERBS and not _VARIABLE.match(word):
            return word
    return program


def _name_of_package(text: str) -> str:
    """Shortens a package: `@scope/server-x@1.2` is `x`, `mcp_server_git` is `git`, `tools/server.py` is `server`."""
    found = _VERSION.sub("", text.replace("\\", "/").rstrip("/").rpartition("/")[2])
    found = _EXTENSION.sub("", found)
    while (shorter := _ABOUT.sub("", found)) != found and shorter:
        found = shorter
    return found


# --- Reads the command or URL of a server, and displays it without secrets.


SECRET_NAMES = re.compile(r"auth|token|secret|passw|key|cookie|credential", re.IGNORECASE)
"""Names whose values are secret."""

_LONG_SEGMENT = re.compile(r"(?<=/)[\w.~%-]{20,}(?=/|$)")  # of a URL path: some services put their token there


def read_command(where: str | Sequence[str]) -> tuple[str, ...]:
    """Reads a command line or its words. Raises `DefinitionError`."""
    try:
        command = tuple(shlex.split(where)) if isinstance(where, str) else tuple(map(str, where))
    except ValueError as error:
        raise DefinitionError(f"mcp({where!r:.100}): {error}; write it as a list of words") from None
    if not command or not command[0]:
        raise DefinitionError(f"mcp({where!r:.100}): expected a command such as 'uvx mcp-server-git', or a URL")
    return command


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
