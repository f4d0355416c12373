"""Resolves and installs packages of PyPI into an environment of their own. Only wheels: no code runs meanwhile."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.metadata import Distribution
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.sources.mcp.programs.fetching import FetchedProgram, Package
from forge.sources.mcp.programs.lock import LockedProgram
from forge.sources.mcp.programs.run_installer import read_json, run_installer

_WHEELS = ("--only-binary", ":all:")
_QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "UV_NO_PROGRESS": "1"}
_ENVIRONMENT = "environment"  # the folder of the virtual environment


async def resolve_pypi(fetched: FetchedProgram, folder: Path) -> LockedProgram:
    """Chooses exact versions with uv if it is installed, else with pip."""
    wanted = [_requirement(one) for one in (fetched.package, *fetched.also)]
    (folder / "wanted.txt").write_text("".join(f"{one}\n" for one in wanted))
    lines = await (_compile_with_uv(folder) if shutil.which("uv") else _compile_with_pip(folder))
    versions = {_normal(line.partition("==")[0]): line.partition("==")[2].split()[0] for line in lines}
    version = versions.get(_normal(fetched.package.name), "")
    if not version or not all("--hash=" in line for line in lines):
        raise ToolError(
            f"the package {fetched.package.name} cannot be pinned: the installer named no hashes",
            ErrorKind.USER,
            "Only packages of a registry can be pinned.",
        )
    return LockedProgram("pypi", fetched.package.name, version, fetched.program, sorted(lines))


async def install_pypi(locked: LockedProgram, folder: Path) -> tuple[list[str], str]:
    """Installs the locked packages; the installer checks their hashes. Returns the program and its runtime."""
    (folder / "locked.txt").write_text("".join(f"{line}\n" for line in locked.packages))
    python = await _make_environment(folder)
    asked = ("--require-hashes", "--no-deps", *_WHEELS, "-r", "locked.txt")
    if uv := shutil.which("uv"):
        await run_installer([uv, "pip", "install", "--quiet", "--python", str(python), *asked], folder, **_QUIET)
    else:
        await run_installer([str(python), "-m", "pip", "install", "--quiet", *asked], folder, **_QUIET)
    script = _find_script(locked, folder)
    return [os.path.join(_ENVIRONMENT, "bin", "python"), os.path.join(_ENVIRONMENT, "bin", script)], ""


async def _make_environment(folder: Path) -> Path:
    base: str = getattr(sys, "_base_executable", "") or sys.executable  # not the one of Forge's own environment
    if uv := shutil.which("uv"):
        await run_installer([uv, "venv", "--quiet", "--python", base, _ENVIRONMENT], folder, **_QUIET)
    else:
        try:
            await run_installer([base, "-m", "venv", _ENVIRONMENT], folder)
        except ToolError as error:
            raise ToolError(
                f"an environment for the package cannot be made: {error.message}",
                ErrorKind.CONFIG,
                "Install uv, or the module venv of Python (on Debian and Ubuntu: python3-venv).",
            ) from None
    return folder / _ENVIRONMENT / "bin" / "python"


async def _compile_with_uv(folder: Path) -> list[str]:
    base: str = getattr(sys, "_base_executable", "") or sys.executable
    words = ["--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--universal", "--python", base]
    written = await run_installer(["uv", "pip", "compile", "wanted.txt", *words, *_WHEELS], folder, **_QUIET)
    whole = re.sub(r"\\\n\s*", "", written)
    return [" ".join(line.split()) for line in whole.splitlines() if line.strip() and not line.startswith(("#", "-"))]


async def _compile_with_pip(folder: Path) -> list[str]:
    python = await _make_environment(folder)
    words = ("--dry-run", "--ignore-installed", "--quiet", "--report", "report.json", "-r", "wanted.txt")
    await run_installer([str(python), "-m", "pip", "install", *_WHEELS, *words], folder, **_QUIET)
    lines = []
    for one in read_json(folder / "report.json").get("install", ()):
        data, info = one["metadata"], one["download_info"]
        digest = info.get("archive_info", {}).get("hashes", {}).get("sha256", "")
        lines.append(f"{data['name']}=={data['version']}" + (f" --hash=sha256:{digest}" if digest else ""))
    return lines


def _requirement(package: Package) -> str:
    return f"{package.name}{package.extras}{package.wanted}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.partition("[")[0].strip()).lower()


def _find_script(locked: LockedProgram, folder: Path) -> str:
    """Returns the name of the package's program."""
    scripts: list[str] = []
    for place in (folder / _ENVIRONMENT / "lib").glob("python*/site-packages/*.dist-info"):
        if _normal(place.name.partition("-")[0]) == _normal(locked.package):
            points = Distribution.at(place).entry_points
            scripts += [point.name for point in points if point.group == "console_scripts"]
    name = locked.program or locked.package
    found = next((one for one in scripts if one == name), scripts[0] if len(scripts) == 1 else "")
    there = folder / _ENVIRONMENT / "bin" / (found or name)
    if os.sep in (found or name) or not there.is_file():
        known = ", ".join(sorted(scripts)) or "none"
        raise ToolError(
            f"the package {locked.package} has no program {name}; its programs: {known[:300]}",
            ErrorKind.USER,
            f"Name one of them: uvx --from {locked.package} PROGRAM",
        )
    return there.name
