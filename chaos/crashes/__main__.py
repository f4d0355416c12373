"""`python -m chaos.crashes`: crashes around calls, here and in other systems. --write writes the table of the docs.

Exit code 1 where Forge repeats or loses a call, or more than one in a hundred is unknown.
"""

from __future__ import annotations

import argparse
import os
import sys

from chaos.crashes.storms import run_storms
from chaos.crashes.systems import SYSTEMS
from chaos.crashes.table import Results, Row
from chaos.processes import exit_when_terminated

MOST_UNKNOWN = 0.01  # of the calls


def main(arguments: list[str]) -> int:
    modules = [system.module for system in SYSTEMS]
    parser = argparse.ArgumentParser(prog="python -m chaos.crashes", description=__doc__)
    parser.add_argument(
        "--points",
        type=int,
        default=10_000,
        help="crashes injected in this process; 0: none",
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=300,
        help="workers of each system killed with -9; 0: none",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=60.0,
        help="that each storm takes at most; the rows say how many crashes there were",
    )
    parser.add_argument(
        "--systems",
        nargs="*",
        choices=modules,
        default=modules,
        help="whose workers are killed",
    )
    parser.add_argument(
        "--database",
        default="",
        help="postgresql://… to make a database on; by default a server here",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="storms at once")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the rows into the table of docs/durable.md",
    )
    given = parser.parse_args(arguments)
    results, holds = Results.read(), True
    for row in run_storms(given):
        print(row.render(), flush=True)
        results.put(row)
        holds = holds and _holds(row)
        if given.write:
            results.write()
    return 0 if holds else 1


def _holds(row: Row) -> bool:
    if not row.name.startswith("Forge"):
        return True
    limit = MOST_UNKNOWN if "with `" in row.name else 1.0
    score = row.score
    return bool(score.calls) and not score.duplicates and not score.lost and score.unknown <= limit * score.calls


if __name__ == "__main__":
    exit_when_terminated()
    sys.exit(main(sys.argv[1:]))
