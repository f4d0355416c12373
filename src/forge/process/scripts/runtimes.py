"""What runs a script: the interpreter for its language, found where the model cannot have put it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn, Protocol

from forge.core.errors import ErrorKind, ToolError
from forge.process.find_program import trusted_program

STRIPS_TYPES = ((22, 18), (23, 6))  # versions of Node from which it runs TypeScript by itself

_VERSION = re.compile(r"v(\d+)\.(\d+)")
_QUIET = ("--disable-warning=ExperimentalWarning", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON")
_DENO = ("run", "--quiet", "--allow-all", "--no-prompt", "--no-lock", "--no-config")  # the sandbox confines it
_NO_CACHE = {"DENO_DIR": os.devnull, "DENO_NO_UPDATE_CHECK": "1"}  # nothing is left in the workspace


class Location(Protocol):
    @property
    def path(self) -> Path: ...


class Runnable(Protocol):
    """A script, as it is known to whoever runs it."""

    @property
    def path(self) -> str:
        """For people."""

    @property
    def place(self) -> Location: ...
    @property
    def digest(self) -> str:
        """Of its content."""

    @property
    def suffix(self) -> str:
        """The language, such as `.py`; "" for what runs by itself."""


@dataclass(frozen=True, slots=True)
class Command:
    """How a script is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # beside what every program gets
    is_interpreted: bool = True  # False: `argv` is the script itself
    bundler: str = ""  # the script must be made JavaScript by this esbuild first, and that put at the end of `argv`


def command_for(script: Runnable, python: str, writable: Sequence[Path]) -> Command:
    """Raises `ToolError` where nothing is there that could run it. `writable`: where the model can put programs.

    JavaScript is for Node, whose `require` Deno does not have; TypeScript for whoever starts fastest.
    """
    path = str(script.place.path)
    if script.suffix == ".py":
        program = _python(python, writable)
        return Command((program, path), {"PYTHONIOENCODING": "utf-8", **_environment_of(program)})
    if not script.suffix:
        return Command((path,), is_interpreted=False)
    if script.suffix == ".sh":
        shell = trusted_program("bash", writable) or trusted_program("sh", writable)
        return Command((shell, path)) if shell else _nothing_for("shell scripts", "bash")
    deno, node = trusted_program("deno", writable), trusted_program("node", writable)
    if script.suffix == ".js":
        if node:
            return Command((node, path))
        return Command((deno, *_DENO, path), _NO_CACHE) if deno else _nothing_for("JavaScript", "Node.js or Deno")
    if deno:
        return Command((deno, *_DENO, path), _NO_CACHE)
    if node and runs_typescript(_version_of(node, _changed(node))):
        return Command((node, *_QUIET, path))
    esbuild = trusted_program("esbuild", writable)
    if node and esbuild:
        return Command((node,), bundler=esbuild)
    old = f" (Node.js {_said(node)} is here, and too old without esbuild)" if node else ""
    return _nothing_for("TypeScript", f"Deno, Node.js 24, or esbuild beside an older Node.js{old}")


def runs_typescript(version: tuple[int, int]) -> bool:
    """Node 22.18 and later of 22, 23.6 and all after it."""
    return version >= STRIPS_TYPES[1] or (version[0] == 22 and version >= STRIPS_TYPES[0])


def _python(setting: str, writable: Sequence[Path]) -> str:
    found = setting if "/" in setting else trusted_program(setting, writable) if setting else sys.executable
    if found:
        return found
    raise ToolError(
        f"there is no Python {setting!r} here", ErrorKind.CONFIG, "Name another in the setting `python` of the scripts."
    )


def _environment_of(python: str) -> dict[str, str]:
    """The virtual environment it belongs to, if it does: the sandbox shows what this variable names."""
    prefix = os.path.dirname(os.path.dirname(python))
    return {"VIRTUAL_ENV": prefix} if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")) else {}


def _nothing_for(language: str, what: str) -> NoReturn:
    raise ToolError(
        f"nothing on this machine can run {language}", ErrorKind.CONFIG, f"The person has to install {what}."
    )


def _said(node: str) -> str:
    return ".".join(map(str, _version_of(node, _changed(node))))


def _changed(program: str) -> int:
    return os.stat(program).st_mtime_ns


@lru_cache(maxsize=16)
def _version_of(node: str, changed: int) -> tuple[int, int]:
    """`changed`: another program may have been put there since."""
    import subprocess  # once a process, in a thread; what it runs is not the model's

    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=10, check=False, env={})
    except (OSError, subprocess.SubprocessError):
        return 0, 0
    found = _VERSION.match(said.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
