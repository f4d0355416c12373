"""Gives every system an environment of its own, `.venv-peers/NAME`, and weighs it; uv makes it where there is one."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from benchmarks.peer_systems import OURS, PEERS

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv-peers"
TOOLS = {"pip", "setuptools", "wheel"}  # that an empty environment may have
LONGEST = 600  # seconds
FLOOR = "pydantic"  # needed to measure the floor; not every system brings it


class Environment(NamedTuple):
    python: Path
    version: str
    packages: int
    size: int  # bytes, without compiled modules


class NotInstalledError(Exception):
    """An environment that cannot be made, and why."""


def find_environment(name: str) -> Environment:
    """The environment of a system, made where there is none for this Python; remove it to have newer packages."""
    place = HOME / name
    note = place / f"weight-{platform.python_version()}.json"
    if not note.exists() or (name == OURS and note.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime):
        print(f"installing {name} …", file=sys.stderr)
        make(place, name)
        note.write_text(json.dumps(weigh(place, PEERS[name].packages[0])), encoding="utf-8")
        install(place, FLOOR)
    version, packages, size = json.loads(note.read_text(encoding="utf-8"))
    return Environment(place / "bin" / "python", version, packages, size)


def make(place: Path, name: str) -> None:
    shutil.rmtree(place, ignore_errors=True)
    uv = find_uv()
    maker = [uv, "venv", "--quiet", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    run([*maker, str(place)])
    install(place, *(("--editable", str(ROOT)) if name == OURS else PEERS[name].packages))


def install(place: Path, *packages: str) -> None:
    python, uv = str(place / "bin" / "python"), find_uv()
    quiet = [uv, "pip", "install", "--quiet", "--python", python] if uv else [python, "-m", "pip", "install", "-qq"]
    run([*quiet, *packages])


def find_uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def run(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=True)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"not done after {LONGEST} seconds") from None
    except subprocess.CalledProcessError as error:
        reason = " ".join(str(error.stderr).split()).replace("|", "/")
        raise NotInstalledError(reason[-300:] or "no reason was given") from None


def weigh(place: Path, package: str) -> tuple[str, int, int]:
    """The version of a package; how many distributions are there, and their bytes."""
    found = {dist.name: dist for dist in distributions(path=[str(next(place.glob("lib/python*/site-packages")))])}
    there = [dist for name, dist in found.items() if name.lower() not in TOOLS]
    return found[package].version, len(there), sum(map(count_bytes, there))


def count_bytes(dist: Distribution) -> int:
    files = [Path(str(file.locate())) for file in dist.files or ()]
    if (dist.read_text("direct_url.json") or "").find('"editable"') >= 0:
        files += (ROOT / "src").rglob("*.*")  # an editable distribution lists no modules
    return sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.is_file())
