"""What servers and their tools are called here: safe, unique, and never longer than providers allow."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence

LONGEST = 64  # characters of a tool's whole name
LONGEST_SERVER = 32
SEPARATOR = "__"

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_STARTERS = frozenset("bun bunx deno docker env node npx pipx pnpm podman python python3 uv uvx yarn".split())
_VERBS = frozenset("dlx exec run tool x".split())  # of such a program, before what it starts
_TAKES_VALUE = frozenset(  # options of theirs whose value is another word
    "-e --env -v --volume --mount --name --network -p --package --from --with --python --directory --project".split()
)
_EXTENSION = re.compile(r"\.(?:[cm]?[jt]s|py)$")
_VERSION = re.compile(r"(?<=.)(?:@|==|>=|~=|:|\[).*$")
_VARIABLE = re.compile(r"\w+=(?!=)")
_ABOUT = re.compile(r"^(?:mcp|server)[-_.]+|[-_.]+(?:mcp|server)$", re.IGNORECASE)
_GENERAL = frozenset("api mcp www".split())  # first labels of a host that say nothing


def is_url(where: str) -> bool:
    return re.match(r"https?://", where.strip(), re.IGNORECASE) is not None


def server_name(where: str | Sequence[str]) -> str:
    """A short name for a command or a URL: `uvx mcp-server-git` is `git`."""
    if isinstance(where, str) and is_url(where):
        found = _of_host(where)
    else:
        words = shlex.split(where) if isinstance(where, str) else list(where)
        found = _of_package(_started(words)) if words else ""
    return _begun(_safe(found), "server")[:LONGEST_SERVER].strip("_-") or "server"


def tool_names(
    prefix: str, tools: Iterable[str], rename: Mapping[str, str], approved: Container[str] = ()
) -> dict[str, str]:
    """A name here for every name there: `prefix__tool`. Names that would be equal or too long end in a hash.

    Rules are about names, so none is lost to one that came later: what a person renamed keeps its name first, then what
    a person approved, then what is called so at the server.
    """
    wanted = {tool: f"{prefix}{SEPARATOR}{_safe(rename.get(tool, tool)) or 'tool'}" for tool in tools}
    claims: dict[str, list[tuple[bool, bool, bool]]] = {}
    for tool, name in wanted.items():
        claims.setdefault(name.casefold(), []).append(_claim(tool, rename, approved))
    names = {}
    for tool, name in wanted.items():
        others, own = claims[name.casefold()], _claim(tool, rename, approved)
        is_first = own == max(others) and others.count(own) == 1
        names[tool] = name if is_first and len(name) <= LONGEST else _hashed(name, tool)
    return names


def _claim(tool: str, rename: Mapping[str, str], approved: Container[str]) -> tuple[bool, bool, bool]:
    return tool in rename, tool in approved, _safe(tool) == tool


def safe_prefix(text: str) -> str:
    """A prefix as it may be used; empty if nothing of it may."""
    return _begun(_safe(text), "")[:LONGEST_SERVER].strip("_-")


def _hashed(name: str, tool: str) -> str:
    from hashlib import sha256  # only for names that need it

    mark = sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: LONGEST - len(mark) - 1]}_{mark}"


def _safe(text: str) -> str:
    return re.sub(r"_{2,}", "_", _UNSAFE.sub("_", text)).strip("_-")


def _begun(text: str, otherwise: str) -> str:
    """A name begins with a letter."""
    if text[:1].isalpha():
        return text
    return f"{otherwise or 'n'}_{text}" if text else otherwise


def _of_host(url: str) -> str:
    host = re.split(r"[/?#]", url.strip().split("://", 1)[1], maxsplit=1)[0].rpartition("@")[2].lower()
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if re.fullmatch(r"[0-9.]+|[0-9a-f:.]*:[0-9a-f:.]*", host):
        return f"at_{host}"
    labels = host.split(".")
    return labels[1] if len(labels) > 2 and labels[0] in _GENERAL else labels[0]


def _started(words: Sequence[str]) -> str:
    """What the words really start: a package, a module, a script."""
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


def _of_package(text: str) -> str:
    """`@scope/server-x@1.2` is `x`, `mcp_server_git` is `git`, `tools/server.py` is `server`."""
    found = _VERSION.sub("", text.replace("\\", "/").rstrip("/").rpartition("/")[2])
    found = _EXTENSION.sub("", found)
    while (shorter := _ABOUT.sub("", found)) != found and shorter:
        found = shorter
    return found
