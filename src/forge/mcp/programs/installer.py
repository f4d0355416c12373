"""Resolves the packages of a server (PyPI, npm) to exact versions, and installs them into the user's data."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.core.untrusted import one_line
from forge.mcp.programs.fetching import FetchedProgram, Package
from forge.mcp.programs.installed import (
    LARGEST_RECORD,
    LockedProgram,
    installation_folder,
    is_installed_here,
    record_path,
)
from forge.process.running.output import Capture, OutputPlan
from forge.process.running.run import run
from forge.workspace.state import replace_file


async def resolve_program(fetched: FetchedProgram) -> LockedProgram:
    """Chooses exact versions of a package and of all that it needs. Raises `ToolError`. Nothing is installed."""
    with scratch_folder() as folder:
        return await (resolve_npm if fetched.registry == "npm" else resolve_pypi)(fetched, folder)


async def install_program(locked: LockedProgram) -> None:
    """Installs exactly the locked packages; does nothing if they are installed. Raises `ToolError`."""
    if is_installed_here(locked.integrity):
        return
    folder = installation_folder() / f"{locked.integrity.removeprefix('sha256:')[:16]}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True, mode=0o700)
    try:
        program, runtime = await (install_npm if locked.registry == "npm" else install_pypi)(locked, folder)
        record = {"integrity": locked.integrity, "folder": folder.name, "program": program, "runtime": runtime}
        replace_file(record_path(locked.integrity), json.dumps(record))  # the last step: it is complete now
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def remove_program(integrity: str) -> bool:
    """Removes an installation. Returns whether there was one."""
    path = record_path(integrity)
    try:
        folder = str(json.loads(read_regular(path, LARGEST_RECORD))["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    path.unlink(missing_ok=True)
    if os.path.basename(folder) == folder and folder not in ("", ".", ".."):
        shutil.rmtree(installation_folder() / folder, ignore_errors=True)
    return True


# --- Resolves and installs packages of PyPI into an environment of their own. Only wheels: no code runs meanwhile.


_WHEELS = ("--only-binary", ":all:")
_PYPI_ENVIRONMENT = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "UV_NO_PROGRESS": "1"}
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
        await run_installer(
            [uv, "pip", "install", "--quiet", "--python", str(python), *asked], folder, **_PYPI_ENVIRONMENT
        )
    else:
        await run_installer([str(python), "-m", "pip", "install", "--quiet", *asked], folder, **_PYPI_ENVIRONMENT)
    script = _find_script(locked, folder)
    return [os.path.join(_ENVIRONMENT, "bin", "python"), os.path.join(_ENVIRONMENT, "bin", script)], ""


def _find_base_python() -> str:
    """Returns the interpreter that Forge's own environment was made of."""
    found = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return found if os.access(found, os.X_OK) else sys.executable


async def _make_environment(folder: Path) -> Path:
    base = _find_base_python()
    if uv := shutil.which("uv"):
        await run_installer([uv, "venv", "--quiet", "--python", base, _ENVIRONMENT], folder, **_PYPI_ENVIRONMENT)
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
    base = _find_base_python()
    words = ["--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--universal", "--python", base]
    written = await run_installer(["uv", "pip", "compile", "wanted.txt", *words, *_WHEELS], folder, **_PYPI_ENVIRONMENT)
    whole = re.sub(r"\\\n\s*", "", written)
    return [" ".join(line.split()) for line in whole.splitlines() if line.strip() and not line.startswith(("#", "-"))]


async def _compile_with_pip(folder: Path) -> list[str]:
    python = await _make_environment(folder)
    words = ("--dry-run", "--ignore-installed", "--quiet", "--report", "report.json", "-r", "wanted.txt")
    await run_installer([str(python), "-m", "pip", "install", *_WHEELS, *words], folder, **_PYPI_ENVIRONMENT)
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


# --- Resolves and installs packages of npm. Scripts of packages are not run.


_NPM_OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--loglevel=error")
_ROOT = "forge-mcp-program"
_KEPT = ("version", "integrity", "dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta")
_ALSO_KEPT = ("bin", "engines", "os", "cpu", "libc", "optional", "peer", "inBundle", "hasInstallScript")


async def resolve_npm(fetched: FetchedProgram, folder: Path) -> LockedProgram:
    """Chooses exact versions with npm, without installing anything."""
    npm = find_installer("npm", "packages of npm")
    wanted = {one.name: one.wanted or "latest" for one in (fetched.package, *fetched.also)}
    _write_manifest(folder, wanted)
    await run_installer(
        [npm, "install", "--package-lock-only", "--omit-lockfile-registry-resolved", *_NPM_OPTIONS], folder
    )
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
    await run_installer([npm, "ci", *_NPM_OPTIONS], folder)
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


# --- Runs installers, such as npm and pip, in a folder of their own.


PATIENCE = 600.0  # seconds that one step of an installation may take
_OUTPUT = OutputPlan(Capture(2 * 1024 * 1024, 2 * 1024 * 1024))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yields an empty folder beside the installations, and removes it."""
    folder = installation_folder() / f"new-{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise ToolError(
            f"{folder.parent} cannot be used: {error.strerror}", ErrorKind.CONFIG, "Make it writable for you."
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def run_installer(argv: Sequence[str], folder: Path, **variables: str) -> str:
    """Runs a step of an installer with the person's environment and returns its output. Raises `ToolError`."""
    ended = await run(argv, cwd=folder, env={**os.environ, **variables}, timeout=PATIENCE, output=_OUTPUT)
    if ended.timed_out or ended.exit_code != 0:
        how = f"no end after {PATIENCE:g} s" if ended.timed_out else f"exit code {ended.exit_code}"
        said = " ".join(one_line(line, 300) for line in (ended.errors or ended.output).strip().splitlines()[-6:])
        raise ToolError(
            f"the package cannot be installed: {os.path.basename(argv[0])} failed ({how}): {said[-1200:]}",
            ErrorKind.USER,
            "Check the name and the version of the package, and the network.",
        )
    return ended.output


def find_installer(name: str, purpose: str) -> str:
    """Returns the path of an installer. Raises `ToolError` if it is missing."""
    if found := shutil.which(name):
        return found
    raise ToolError(
        f"{purpose} need {name}, which is not installed", ErrorKind.CONFIG, f"Install {name}, or add it to PATH."
    )


def read_json(path: Path) -> Mapping[str, Any]:
    """Reads a file that an installer wrote. Raises `ToolError`."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ToolError(
            f"the package cannot be installed: the installer wrote no usable {path.name}",
            ErrorKind.SYSTEM,
            "Update the installer, and try again.",
        )
    return found
