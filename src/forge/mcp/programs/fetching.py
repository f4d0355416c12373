"""Reads command lines that fetch a package when they start: uvx, pipx run, npx, bunx and their like."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from forge.core.errors import ErrorKind, ToolError

Registry = Literal["npm", "pypi"]

_STARTERS: dict[tuple[str, ...], Registry] = {
    ("uvx",): "pypi",
    ("uv", "tool", "run"): "pypi",
    ("uv", "x"): "pypi",
    ("pipx", "run"): "pypi",
    ("npx",): "npm",
    ("npm", "exec"): "npm",
    ("npm", "x"): "npm",
    ("bunx",): "npm",
    ("bun", "x"): "npm",
    ("pnpx",): "npm",
    ("pnpm", "dlx"): "npm",
    ("yarn", "dlx"): "npm",
}
_PACKAGE_OPTIONS = ("--from", "--spec", "-p", "--package")  # they name the package; the first word is its program
_ALSO_OPTIONS = ("--with",)  # they name a further package
_IGNORED = frozenset(("-y", "--yes", "-q", "--quiet", "--silent", "--bun", "--no-cache", "--isolated", "--refresh"))
_NPM = re.compile(
    r"(?P<name>(?:@[a-z0-9~_.-]+/)?[a-z0-9~_][a-z0-9~_.-]*)(?:@(?P<version>[\w.^~<>=*+-]*))?", re.IGNORECASE
)
_PYPI = re.compile(
    r"(?P<name>[A-Z0-9](?:[A-Z0-9._-]*[A-Z0-9])?)(?P<extras>\[[\w, .-]*\])?"
    r"(?:@(?P<at>[\w.!+-]*)|(?P<bounds>[<>=!~][<>=!~\w.*+, -]*))?",
    re.IGNORECASE,
)


class Package(NamedTuple):
    """A package as a command names it. `wanted` is a version, a range or a tag; "" for the newest."""

    name: str
    wanted: str = ""
    extras: str = ""


class FetchedProgram(NamedTuple):
    """A command that fetches a package and starts a program of it."""

    registry: Registry
    package: Package
    also: tuple[Package, ...] = ()  # further packages
    program: str = ""  # "": the package's own
    arguments: tuple[str, ...] = ()  # of the program


def is_fetching(command: Sequence[str]) -> bool:
    """Returns whether a command fetches its package when it starts."""
    return bool(_find_starter(command))


def how_to_pin(name: str, command: Sequence[str]) -> str:
    """Returns the advice for a command that fetches its package when it starts."""
    line = shlex.join(command)[:200]
    return f"Install and pin it: forge mcp add {name} --replace -- {line}"


def read_command(command: Sequence[str]) -> FetchedProgram:
    """Reads a command that fetches a package. Raises `ToolError` if it cannot be pinned."""
    starter = _find_starter(command)
    registry = _STARTERS[starter]
    named: list[str] = []
    also: list[str] = []
    words = list(command[len(starter) :])
    while words and words[0].startswith("-"):
        option, assigned, value = words.pop(0).partition("=")
        if option == "--":
            break
        if option in _IGNORED and not assigned:
            continue
        if option not in (*_PACKAGE_OPTIONS, *_ALSO_OPTIONS):
            raise _unreadable(command, f"Forge does not know its option {option}")
        if not assigned and not words:
            raise _unreadable(command, f"{option} needs a value")
        (also if option in _ALSO_OPTIONS else named).append(value if assigned else words.pop(0))
    if not words:
        raise _unreadable(command, "it names no package")
    program = words[0]
    if named:  # the program comes from the first package; further packages are installed beside it
        return FetchedProgram(
            registry,
            read_package(registry, named[0]),
            _read_all(registry, (*named[1:], *also)),
            _program_name(program),
            tuple(words[1:]),
        )
    return FetchedProgram(registry, read_package(registry, program), _read_all(registry, also), "", tuple(words[1:]))


def read_package(registry: Registry, text: str) -> Package:
    """Reads the name and the wanted version of a package. Raises `ToolError` for a URL, a path or a repository."""
    found = (_NPM if registry == "npm" else _PYPI).fullmatch(text.strip())
    if found is None:
        raise ToolError(
            f'"{text[:200]}" is not the name of a package with a version',
            ErrorKind.VALIDATION,
            "Only packages of npm and PyPI can be pinned. Install another program yourself, and add its command.",
        )
    if registry == "npm":
        return Package(found["name"], found["version"] or "")
    at = "" if found["at"] in (None, "latest") else f"=={found['at']}"
    return Package(found["name"], at or (found["bounds"] or "").replace(" ", ""), found["extras"] or "")


def pin_command(fetched: FetchedProgram, version: str, command: Sequence[str]) -> list[str]:
    """Returns the same command with the exact version, which other clients can run too."""
    starter = _find_starter(command)
    package = fetched.package
    if fetched.registry == "npm":
        exact = f"{package.name}@{version}"
        also = [word for one in fetched.also for word in ("-p", f"{one.name}@{one.wanted}".rstrip("@"))]
        if fetched.program or also:
            return [*starter, "-y", "-p", exact, *also, fetched.program or package.name, *fetched.arguments]
        return [*starter, "-y", exact, *fetched.arguments]
    exact = f"{package.name}{package.extras}=={version}"
    also = [word for one in fetched.also for word in ("--with", f"{one.name}{one.extras}{one.wanted}")]
    source = "--spec" if starter[0] == "pipx" else "--from"
    return [*starter, source, exact, *also, fetched.program or package.name, *fetched.arguments]


def _find_starter(command: Sequence[str]) -> tuple[str, ...]:
    """Returns the first words of a command that fetches a package; () for another command."""
    words = (os.path.basename(command[0]), *command[1:3]) if command else ()
    return next((starter for starter in _STARTERS if words[: len(starter)] == starter), ())


def _read_all(registry: Registry, texts: Iterable[str]) -> tuple[Package, ...]:
    return tuple(read_package(registry, text) for text in texts)


def _program_name(text: str) -> str:
    if not re.fullmatch(r"[\w.@/+-]+", text) or ".." in text:
        raise ToolError(
            f'"{text[:200]}" is not the name of a program', ErrorKind.VALIDATION, "Name one of the package."
        )
    return text


def _unreadable(command: Sequence[str], problem: str) -> ToolError:
    return ToolError(
        f"the command {' '.join(command)[:200]} cannot be pinned: {problem}",
        ErrorKind.VALIDATION,
        "Write it as `uvx PACKAGE==VERSION …` or `npx PACKAGE@VERSION …`.",
    )
