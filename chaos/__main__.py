"""`python -m chaos`: workers are killed and paused by chance while runs go on; exit code 1 where one goes wrong."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from chaos.postgres import fresh
from chaos.storm import Plan, Report, storm


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--calls", type=int, default=5, help="of each run")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which workers are killed")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--silent", type=float, default=10.0, help="seconds without a beat before a worker is dead")
    parser.add_argument("--blow", type=float, default=3.0, help="seconds between two blows, on average")
    parser.add_argument("--pauses", type=float, default=0.25, help="share of the blows that pause and do not kill")
    parser.add_argument("--database", default="", help="postgresql://… to make a database on, or sqlite:///…")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--keep", action="store_true", help="keep the logs also where nothing was found")
    parser.add_argument("--quiet", action="store_true", help="say nothing before the end")
    given = vars(parser.parse_args(arguments))
    database, keep, quiet = given.pop("database"), given.pop("keep"), given.pop("quiet")
    plan = Plan(**given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no worker is left behind
    print(f"seed {plan.seed}", flush=True)
    place = Path(tempfile.mkdtemp(prefix="forge-chaos-"))
    with fresh(database) as url:
        report = storm(url, place, plan, silent if quiet else say)
    code = told(report, place)
    if not keep and not code:
        shutil.rmtree(place)
    return code


def told(report: Report, place: Path) -> int:
    """Says what happened; the exit code."""
    print(report.figures())
    for problem in report.problems[:50]:
        print(f"FOUND {problem}")
    if not report.problems:
        print("every run finished, nothing was lost, nothing happened twice")
        return 0
    print(f"{len(report.problems)} problems; what the workers said is in {place}")
    print(
        f"again: python -m chaos --seed {report.plan.seed} --runs {report.plan.runs} --seconds {report.plan.seconds:g}"
    )
    return 1


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def silent(_: str) -> None:
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
