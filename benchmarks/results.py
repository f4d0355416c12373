"""Runs every table, floors and peers, and writes them to RESULTS.md: `make bench`.

`python -m benchmarks.results behaviour` runs one part and keeps the others as they stand in the file.
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
TITLE = "# Results\n\nRatios, side by side in one run; absolute times are noise.\n"
PARTS = {
    "floors": ("benchmarks",),
    "peers": ("benchmarks.peers", "--speed"),
    "behaviour": ("benchmarks.peers", "--behaviour"),
}
HEADINGS = {"floors": "## Against floors", "peers": "## Against peers", "behaviour": "## Default behaviour"}
PACKAGES = ("forge-tools", "pydantic", "httpx2", "mcp", "click")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="floors, peers or behaviour; all if none is named")
    parser.add_argument("--kept", action="store_true", help="the peers' figures of earlier runs, without measuring")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"there is no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    texts, codes = read_parts(), []
    for part in asked.parts or PARTS:
        about = describe_run()
        code, text = run_part(*PARTS[part], *(["--kept"] if asked.kept and part != "floors" else []))
        texts[part] = "\n\n".join([HEADINGS[part], about, text])
        codes.append(code)
    FILE.write_text("\n".join([TITLE, *(f"{text}\n" for text in texts.values())]), encoding="utf-8")
    print(f"\nwritten to {FILE.name}", file=sys.stderr)
    return max(codes)


def read_parts() -> dict[str, str]:
    """The parts that the file has, in order."""
    written = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    starts = {part: written.find(heading) for part, heading in HEADINGS.items()}
    ends = sorted([*starts.values(), len(written)])
    return {
        part: written[start : next(end for end in ends if end > start)].strip()
        if start >= 0
        else f"{HEADINGS[part]}\n\nnot measured"
        for part, start in starts.items()
    }


def run_part(module: str, *options: str) -> tuple[int, str]:
    """The exit code and the table of a run, which is shown as it comes."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", module, *options]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return running.returncode, "".join(lines).strip()


def describe_run() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    about = f"Measured on {datetime.now(UTC):%Y-%m-%d} ({machine}; {versions})."
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    if busy <= cores:  # a measurement just before counts for one or two
        return about
    return (
        f"{about} The machine had other work to do (load {busy:.0f}): milliseconds and times on the clock are too high."
    )


if __name__ == "__main__":
    sys.exit(main())
