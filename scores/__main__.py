"""Runs the suites: `python -m scores [SUITE …]`; without a name, all of them."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from datetime import UTC, datetime
from importlib import import_module

from scores.published import add_published
from scores.report import (
    PAGE,
    Missing,
    NotGiven,
    Score,
    date_rows,
    find_drops,
    keep_failures,
    merge_results,
    read_results,
    write_results,
)

FAILED = "it failed"
UNSTEADY = ("real",)  # its answers depend on the processor's arithmetic: a check runs it only by name
SUITES = (
    "mcp",
    "json_schema",
    "bfcl",
    "tau2",
    "agentdojo",
    "threats",
    "langchain",
    "labels",
    "openapi",
    "codex",
    "starters",
    "shell",
    "schemathesis",
    "models",
    "doors",
    "patches",
    "real",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make scores", description="Run other people's test suites against Forge.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"one of {', '.join(SUITES)}; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a score dropped")
    given = parser.parse_args()
    if unknown := set(given.suites) - set(SUITES):
        parser.error(f"unknown suite: {', '.join(sorted(unknown))}. Choose from {', '.join(SUITES)}.")
    before = read_results()
    names = given.suites or [name for name in SUITES if not (given.check and name in UNSTEADY)]
    after = {name: _run(name) for name in names}
    drops = find_drops(before, after)
    for drop in drops:
        print(f"== worse: {drop}")
    if given.check:
        return 1 if drops else 0
    write_results(merge_results(before, after), SUITES)
    print(f"== written: {PAGE}")
    return 1 if any(score.missing.startswith(FAILED) for score in after.values()) else 0


def _run(name: str) -> Score:
    print(f"== {name}", flush=True)
    module = import_module(f"scores.{name}")
    start = time.monotonic()
    try:
        score: Score = module.run()
    except Missing as missing:
        score = Score(
            name, module.SOURCE, module.MEASURES, missing=str(missing), not_given=isinstance(missing, NotGiven)
        )
        print(f"   missing: {missing}")
    except Exception as error:  # the suites after it still run, and keep what they found
        traceback.print_exc()
        score = Score(name, module.SOURCE, module.MEASURES, missing=f"{FAILED}: {type(error).__name__}")
    for row in score.rows:
        print(f"   {row.measure}: {row.passed:,} of {row.cases:,}")
    print(f"   {time.monotonic() - start:.0f} s", flush=True)
    return date_rows(keep_failures(add_published(score)), f"{datetime.now(UTC):%Y-%m-%d}")


if __name__ == "__main__":
    sys.exit(main())
