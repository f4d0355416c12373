"""Forge and its peers at the same work: `make bench-peers`, or `python -m benchmarks.peers NAME…` for a few of them.

`--speed` and `--behaviour` choose one half: what a busy machine disturbs, and what it does not.

Every system has an environment and a process of its own, and is measured there in turns with the floor. A call is timed
from the JSON text of its arguments, which are new every time, to the text the model sees. A loop is timed with a model
that answers at once, from building the agent to its answer, and given a turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.peer_environments import HOME, ROOT, Environment, NotInstalledError, find_environment
from benchmarks.peer_systems import OURS, PEERS
from benchmarks.peer_tables import Found, write_behaviour, write_speeds
from benchmarks.timing import process

LONGEST = 1_800  # seconds on the clock for one system; its measurements are bounded in CPU time
PROCESSES = 5  # fresh ones, of which the median is taken
HALVES = {"speed": write_speeds, "behaviour": write_behaviour}
QUIET = {  # no system sends anything home
    "AGNO_TELEMETRY": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OPENAI_API_KEY": "none",
    "OTEL_SDK_DISABLED": "true",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}; all of them if none is named")
    parser.add_argument("--kept", action="store_true", help="show what the last runs found, and measure nothing")
    parser.add_argument("--speed", action="store_true", help="measure times alone")
    parser.add_argument("--behaviour", action="store_true", help="observe what the systems do, and measure no times")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in PEERS]:
        parser.error(f"there is no peer {', '.join(unknown)}; choose from {', '.join(PEERS)}")
    names = [name for name in PEERS if name in (asked.names or PEERS)]
    texts, codes = [], []
    for half, write in HALVES.items():
        if getattr(asked, half) or not (asked.speed or asked.behaviour):
            found = {name: find(name, half, asked.kept) for name in names if half == "behaviour" or PEERS[name].timed}
            texts.append(write(found))
            codes.append("reason" in found.get(OURS, {}) or all("reason" in one for one in found.values()))
    print("\n\n".join(texts))
    return int(any(codes))


def find(name: str, half: str, is_kept: bool) -> Found:
    return read_kept(name, half) if is_kept else measure(name, half)


def measure(name: str, half: str) -> Found:
    try:
        place = find_environment(name)
    except NotInstalledError as error:
        return {"reason": f"cannot be installed: {error}"}
    print(f"measuring {name} ({half}) …", file=sys.stderr)
    command = [str(place.python), "-W", "ignore", "-m", "benchmarks.peer_measures", name]
    options = ["--behaviour"] if half == "behaviour" else []
    try:
        ended = subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            env=surroundings(),
            cwd=ROOT,
            timeout=LONGEST,
            check=True,
        )
        found: Found = json.loads(ended.stdout.splitlines()[-1])
        if half == "speed":
            found["first_use"] = measure_first_use(name, place)
    except subprocess.TimeoutExpired:
        return {"reason": f"not measured within {LONGEST} seconds"}
    except subprocess.CalledProcessError as error:
        return {"reason": f"failed: {(str(error.stderr).strip().splitlines() or ['no reason was given'])[-1]}"}
    found |= {"version": place.version, "packages": place.packages, "megabytes": place.size / 1e6}
    result_file(name, half).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found


def read_kept(name: str, half: str) -> Found:
    if not result_file(name, half).exists():
        return {"reason": f"not measured yet; run python -m benchmarks.peers {name}"}
    found: Found = json.loads(result_file(name, half).read_text(encoding="utf-8"))
    return found


def result_file(name: str, half: str) -> Path:
    return HOME / f"{name}-{half}.json"


def surroundings() -> dict[str, str]:
    """Compiled modules are kept, whatever the environment says."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | QUIET


def measure_first_use(name: str, place: Environment) -> float:
    """Milliseconds of CPU over bare Python; the first process writes compiled modules and does not count."""
    python, around = str(place.python), surroundings()
    pairs = [
        (
            process("-c", "pass", python=python, environment=around),
            process("-m", "benchmarks.peer_first_use", name, python=python, environment=around),
        )
        for _ in range(PROCESSES + 1)
    ][1:]
    return statistics.median(used for _, used in pairs) - statistics.median(bare for bare, _ in pairs)


if __name__ == "__main__":
    sys.exit(main())
