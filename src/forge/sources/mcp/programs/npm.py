"""Resolves and installs packages of npm. Scripts of packages are not run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.sources.mcp.programs.fetching import FetchedProgram
from forge.sources.mcp.programs.lock import LockedProgram
from forge.sources.mcp.programs.run_installer import find_installer, read_json, run_installer

_QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--loglevel=error")
_ROOT = "forge-mcp-program"
_KEPT = ("version", "integrity", "dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta")
_ALSO_KEPT = ("bin", "engines", "os", "cpu", "libc", "optional", "peer", "inBundle", "hasInstallScript")


async def resolve_npm(fetched: FetchedProgram, folder: Path) -> LockedProgram:
    """Chooses exact versions with npm, without installing anything."""
    npm = find_installer("npm", "packages of npm")
    wanted = {one.name: one.wanted or "latest" for one in (fetched.package, *fetched.also)}
    _write_manifest(folder, wanted)
    await run_installer([npm, "install", "--package-lock-only", "--omit-lockfile-registry-resolved", *_QUIET], folder)
    packages = read_json(folder / "package-lock.json").get("packages", {})
    found = packages.get(f"node_modules/{fetched.package.name}", {})
    locked = {path: _keep(path, one) for path, one in packages.items() if path}
    return LockedProgram("npm", fetched.package.name, str(found.get("version", "")), fetched.program, locked)


async def install_npm(locked: LockedProgram, folder: Path) -> tuple[list[str], str]:
    """Installs the locked packages; npm checks their hashes. Returns the program and its runtime."""
    npm = find_installer("npm", "packages of npm")
    tops = _find_tops(locked)
    _write_manifest(folder, tops)
    packages = {"": {"name": _ROOT, "dependencies": tops}, **locked.packages}
    lock = {"name": _ROOT, "lockfileVersion": 3, "packages": packages}
    (folder / "package-lock.json").write_text(json.dumps(lock))
    await run_installer([npm, "ci", *_QUIET], folder)
    return [_find_program(locked, folder)], "node"


def _write_manifest(folder: Path, dependencies: dict[str, str]) -> None:
    manifest = {"name": _ROOT, "version": "1.0.0", "private": True, "dependencies": dependencies}
    (folder / "package.json").write_text(json.dumps(manifest))


def _keep(path: str, package: Any) -> dict[str, Any]:
    """Returns what identifies a package. Raises `ToolError` for a package without a hash."""
    kept = {key: package[key] for key in (*_KEPT, *_ALSO_KEPT) if key in package}
    if not kept.get("version") or not (kept.get("integrity") or kept.get("inBundle")):
        raise ToolError(
            f"the package cannot be pinned: {path.rpartition('node_modules/')[2][:200]} has no version with a hash",
            ErrorKind.USER,
            "Only packages of a registry can be pinned.",
        )
    return kept


def _find_tops(locked: LockedProgram) -> dict[str, str]:
    """Returns the packages that no other package brings: the server's own, and those named beside it."""
    paths = [path.removeprefix("node_modules/") for path in locked.packages]
    needed = {
        name
        for one in locked.packages.values()
        for kind in ("dependencies", "optionalDependencies", "peerDependencies")
        for name in one.get(kind, {})
    }
    tops = [path for path in paths if path == locked.package or ("node_modules/" not in path and path not in needed)]
    return {name: locked.packages[f"node_modules/{name}"]["version"] for name in tops}


def _find_program(locked: LockedProgram, folder: Path) -> str:
    """Returns the path of the program, below the folder."""
    place = Path("node_modules", locked.package)
    said = read_json(folder / place / "package.json").get("bin")
    short = locked.package.rpartition("/")[2]
    programs: dict[str, Any] = {short: said} if isinstance(said, str) else dict(said or {})
    name = locked.program or (short if short in programs else next(iter(programs), "") if len(programs) == 1 else "")
    path = programs.get(name)
    real = os.path.realpath(folder / place / str(path)) if isinstance(path, str) else ""
    if not real.startswith(os.path.realpath(folder / place) + os.sep) or not os.path.isfile(real):
        known = ", ".join(sorted(programs)) or "none"
        raise ToolError(
            f"the package {locked.package} has no program {name or short}; its programs: {known[:300]}",
            ErrorKind.USER,
            f"Name one of them: npx -p {locked.package} PROGRAM",
        )
    return os.path.relpath(real, os.path.realpath(folder))
