"""Finds the interpreter of a script's language, where the model cannot have put it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn, Protocol

from forge.core.errors import ErrorKind, ToolError
from forge.process.environment import find_trusted_program
from forge.process.running.output import Capture, OutputPlan
from forge.process.running.run import run
from forge.process.sandbox.layout import Confinement

STRIPS_TYPES = ((22, 18), (23, 6))  # versions of Node from which it runs TypeScript by itself

_VERSION = re.compile(r"v(\d+)\.(\d+)")
_QUIET = ("--disable-warning=ExperimentalWarning", "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON")
_DENO = ("run", "--quiet", "--allow-all", "--no-prompt", "--no-lock", "--no-config")  # the sandbox confines it
_NO_CACHE = {"DENO_DIR": os.devnull, "DENO_NO_UPDATE_CHECK": "1"}  # nothing is left in the workspace


class ScriptLocation(Protocol):
    @property
    def path(self) -> Path: ...


class RunnableScript(Protocol):
    """A script, as its runner needs it."""

    @property
    def path(self) -> str:
        """The path for people."""

    @property
    def location(self) -> ScriptLocation: ...
    @property
    def digest(self) -> str:
        """The digest of its content."""

    @property
    def suffix(self) -> str:
        """The language, such as `.py`; "" for what runs by itself."""


@dataclass(frozen=True, slots=True)
class ScriptCommand:
    """The command that starts a script."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to the environment of every program
    is_interpreted: bool = True  # False: `argv` is the script itself
    bundler: str = ""  # this esbuild must first bundle the script; the bundle's path is then appended to `argv`


def command_for(script: RunnableScript, python: str, writable: Sequence[Path]) -> ScriptCommand:
    """Returns the command for a script. Raises `ToolError` if no interpreter is found. `writable`: folders of the
    model.

    JavaScript needs Node, whose `require` Deno does not have; TypeScript uses the fastest runtime.
    """
    path = str(script.location.path)
    if script.suffix == ".py":
        program = _python(python, writable)
        return ScriptCommand((program, path), {"PYTHONIOENCODING": "utf-8", **_environment_of(program)})
    if not script.suffix:
        return ScriptCommand((path,), is_interpreted=False)
    if script.suffix == ".sh":
        shell = find_trusted_program("bash", writable) or find_trusted_program("sh", writable)
        return ScriptCommand((shell, path)) if shell else _raise_no_runtime("shell scripts", "bash")
    deno, node = find_trusted_program("deno", writable), find_trusted_program("node", writable)
    if script.suffix == ".js":
        if node:
            return ScriptCommand((node, path))
        return (
            ScriptCommand((deno, *_DENO, path), _NO_CACHE)
            if deno
            else _raise_no_runtime("JavaScript", "Node.js or Deno")
        )
    if deno:
        return ScriptCommand((deno, *_DENO, path), _NO_CACHE)
    if node and runs_typescript(_version_of(node, _modified_time(node))):
        return ScriptCommand((node, *_QUIET, path))
    esbuild = find_trusted_program("esbuild", writable)
    if node and esbuild:
        return ScriptCommand((node,), bundler=esbuild)
    old = f" (Node.js {_format_version(node)} is installed, but too old without esbuild)" if node else ""
    return _raise_no_runtime("TypeScript", f"Deno, Node.js 24, or esbuild with an older Node.js{old}")


def runs_typescript(version: tuple[int, int]) -> bool:
    """Returns whether it is Node 22.18 or later of 22, or 23.6 or any after it."""
    return version >= STRIPS_TYPES[1] or (version[0] == 22 and version >= STRIPS_TYPES[0])


def _python(setting: str, writable: Sequence[Path]) -> str:
    found = setting if "/" in setting else find_trusted_program(setting, writable) if setting else sys.executable
    if found:
        return found
    raise ToolError(
        f"the Python {setting!r} was not found", ErrorKind.CONFIG, "Change the setting `python` of the scripts."
    )


def _environment_of(python: str) -> dict[str, str]:
    """Returns the virtual environment of a Python, if any: the sandbox mounts this variable's folder."""
    prefix = os.path.dirname(os.path.dirname(python))
    return {"VIRTUAL_ENV": prefix} if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")) else {}


def _raise_no_runtime(language: str, what: str) -> NoReturn:
    raise ToolError(
        f"nothing on this machine can run {language}", ErrorKind.CONFIG, f"The person has to install {what}."
    )


def _format_version(node: str) -> str:
    return ".".join(map(str, _version_of(node, _modified_time(node))))


def _modified_time(program: str) -> int:
    return os.stat(program).st_mtime_ns


@lru_cache(maxsize=16)
def _version_of(node: str, changed: int) -> tuple[int, int]:
    """Returns Node's version; `changed`: the program's modification time, for the cache."""

    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=10, check=False, env={})
    except (OSError, subprocess.SubprocessError):
        return 0, 0
    found = _VERSION.match(said.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


# Bundles TypeScript to JavaScript with esbuild, for a Node that cannot read types: cached by content, outside the
# workspace.


MOST_BUNDLES = 200  # bundles; the oldest go first
MOST_BYTES = 16 * 1024 * 1024  # of one bundle
BUNDLING_SECONDS = 60.0

_REQUIRE = 'import{createRequire as _r}from"node:module";const require=_r(import.meta.url);'
_OPTIONS = (
    *("--bundle", "--platform=node", "--format=esm", "--log-level=error"),
    *("--outfile=/dev/stdout", "--metafile=/dev/stderr", f"--banner:js={_REQUIRE}"),
)


async def bundle_script(
    script: RunnableScript, esbuild: str, *, confinement: Confinement, env: Mapping[str, str]
) -> Path:
    """Returns the file to run instead, alone in its directory. Raises `ToolError` if the script cannot be bundled.

    esbuild runs as confined as the script itself, since imported files become a part of the bundle.
    """
    known = _folder() / _digest(f"{script.digest} {esbuild} {os.stat(esbuild).st_mtime_ns}".encode())
    if (known / "tool.mjs").is_file():
        return known / "tool.mjs"
    finished = await run(
        [esbuild, str(script.location.path), *_OPTIONS],
        cwd=confinement.workspace,
        env=env,
        timeout=BUNDLING_SECONDS,
        output=OutputPlan(Capture(MOST_BYTES, 0)),
        confinement=confinement,
    )
    if finished.exit_code != 0 or finished.cut:
        why = f"more than {MOST_BYTES // 1024 // 1024} MiB" if finished.cut else finished.errors.strip()[:1_000]
        raise ToolError(f"{script.path} cannot be converted to JavaScript: {why}", ErrorKind.USER, "Fix the script.")
    # otherwise an imported file may change while the script does not
    is_alone = len(_parse_inputs(finished.errors)) == 1
    target = known if is_alone else _folder() / _digest(finished.output.encode())
    return _store_bundle(target, finished.output)


def _parse_inputs(said: str) -> list[str]:
    try:
        return list(json.loads(said)["inputs"])
    except (ValueError, KeyError, TypeError):
        return []


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "forge" / "scripts"


def _store_bundle(target: Path, content: str) -> Path:
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _tidy(folder)
    temporary = folder / f".forge-tmp-{secrets.token_hex(8)}"
    temporary.mkdir(mode=0o700)
    (temporary / "tool.mjs").write_text(content, encoding="utf-8")
    try:
        temporary.rename(target)
    except OSError:  # another process made the same
        shutil.rmtree(temporary, ignore_errors=True)
    return target / "tool.mjs"


def _tidy(folder: Path) -> None:
    bundles = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    if len(bundles) >= MOST_BUNDLES:
        for entry in sorted(bundles, key=lambda one: one.stat().st_mtime)[: len(bundles) - MOST_BUNDLES + 1]:
            shutil.rmtree(entry.path, ignore_errors=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
