"""Damaged calls through Forge and its peers: `make bench-repair` writes docs/repairs.md (some minutes).

`python -m benchmarks.repair --sample` sends three calls of each kind to Forge alone, and prints the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Any

from benchmarks.peer_environments import ROOT, NotInstalledError, find_environment
from benchmarks.peer_systems import OURS
from benchmarks.peers import surroundings
from benchmarks.repair.corpus import OF_THE_TEXT, make_corpus
from benchmarks.repair.table import BEGIN, END, write_page, write_table
from scores.bfcl import RIGHT_CALLS, VERSION, cases_of
from scores.packages import CACHE, from_pypi

SYSTEMS = (OURS, "pydantic-ai", "langchain", "openai-agents", "smolagents", "fastmcp")
PAGE = ROOT / "docs" / "repairs.md"
MOST = 25  # calls of each kind
LONGEST = 1_200  # seconds for one system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SYSTEMS)}; all of them by default")
    parser.add_argument(
        "--sample", action="store_true", help="three calls of each kind, to Forge alone; writes nothing"
    )
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in SYSTEMS]:
        parser.error(f"there is no system {', '.join(unknown)}; choose from {', '.join(SYSTEMS)}")
    data = from_pypi("bfcl-eval", VERSION) / "bfcl_eval" / "data"
    most = 3 if asked.sample else MOST
    folder = make_corpus(cases_of(data, RIGHT_CALLS), CACHE / f"damaged-{most}", most)
    names = (OURS,) if asked.sample else asked.names or SYSTEMS
    found = {name: judge_in_process(name, folder) for name in names}
    print(write_table(found))
    for name, one in found.items():
        for damage, example in one.get("wrong", {}).items():
            print(f"{name}: {damage}: {example}", file=sys.stderr)
    if set(names) == set(SYSTEMS):
        page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else f"# Repairs, measured\n\n{BEGIN}{END}\n"
        PAGE.write_text(write_page(page, found), encoding="utf-8")
    return int("reason" in found.get(OURS, {}))


def judge_in_process(name: str, folder: Path) -> dict[str, Any]:
    """Judges a system in its own environment. Without one, `reason` says why."""
    try:
        python, version = find_python(name)
    except NotInstalledError as error:
        return {"reason": f"cannot be installed: {error}"}
    print(f"sending damaged calls to {name} …", file=sys.stderr)
    command = [python, "-W", "ignore", "-m", "benchmarks.repair.judge", name, str(folder), *OF_THE_TEXT]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, env=surroundings(), cwd=ROOT, timeout=LONGEST, check=True
        )
    except subprocess.TimeoutExpired:
        return {"reason": f"not done within {LONGEST} seconds"}
    except subprocess.CalledProcessError as error:
        return {"reason": f"failed: {(str(error.stderr).strip().splitlines() or ['no reason was given'])[-1][:200]}"}
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found | {"version": version}


def find_python(name: str) -> tuple[str, str]:
    """The interpreter of a system, and the system's version. Forge is where this program runs."""
    if name == OURS:
        return sys.executable, distribution_version("forge-tools")
    place = find_environment(name)
    return str(place.python), place.version


if __name__ == "__main__":
    sys.exit(main())
