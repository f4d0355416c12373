"""Prints every table, floors and peers, and writes them to RESULTS.md: `make bench`.

The peers have an environment of their own, whose Python is named with `--peers`; without it they are left out, and that
is said in the file.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

FILE = Path(__file__).with_name("RESULTS.md")
PACKAGES = ("forge-tools", "pydantic", "httpx2", "mcp", "click")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="the Python of an environment with the peers")
    asked = parser.parse_args()
    floors = shown(sys.executable, "benchmarks")
    peers = shown(asked.peers, "benchmarks.peers") if asked.peers else None
    FILE.write_text("\n".join(document(floors[1], peers[1] if peers else "not measured")), encoding="utf-8")
    print(f"\nwritten to {FILE.name}", file=sys.stderr)
    return floors[0] or (peers[0] if peers else 0)


def shown(python: str, module: str) -> tuple[int, str]:
    """The exit code and the table of a run, which is shown as it comes."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    lines = []
    with subprocess.Popen([python, "-m", module], stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return running.returncode, "".join(lines).strip()


def document(floors: str, peers: str) -> list[str]:
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return [
        "# Results",
        "",
        f"Measured by `make bench` on {datetime.now(UTC):%Y-%m-%d} ({machine}; {versions}). Ratios, side by side",
        "in one run; absolute times are noise.",
        "",
        "## Against floors",
        "",
        floors,
        "",
        "## Against peers",
        "",
        peers,
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
