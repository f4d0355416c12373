"""`python -m fuzz [--seed N] [--calls N] [--keep]`: mutated calls to every tool; exit code 1 where one goes wrong."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.campaign import Report, campaign
from fuzz.ground import Ground
from fuzz.mutate import Mutations
from fuzz.right import right_calls
from fuzz.website import website

LARGE = 64_000  # kilobytes: some of the calls carry megabytes


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--keep", action="store_true", help="keep the workspace also where nothing was found")
    parser.add_argument("--tool", help="only this one")
    parser.add_argument("--quiet", action="store_true", help="say nothing before the end")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    with laid_out(keep=given.keep) as ground:
        right = right_calls(ground.site)
        chosen = {given.tool: right[given.tool]} if given.tool else right
        mutations = Mutations(given.seed, chosen, str(ground.beside), ground.site)
        report = campaign(ground, iter(mutations.line, None), given.calls, silent if given.quiet else say, slack=LARGE)
        return told(report, ground, again=f"python -m fuzz --seed {given.seed} --calls {report.calls + 8}")


@contextmanager
def laid_out(*, keep: bool = False) -> Iterator[Ground]:
    """A ground and its website. It stays where it is asked for, and is removed otherwise."""
    with website() as site:
        ground = Ground(Path(tempfile.mkdtemp(prefix="forge-fuzz-")), site)
        ground.approve_server()
        try:
            yield ground
        finally:
            if not keep:
                ground.remove()


def told(report: Report, ground: Ground, again: str) -> int:
    """Says what happened; the exit code."""
    outcomes = ", ".join(f"{count:,} {what}" for what, count in report.outcomes.most_common())
    print(f"{report.calls:,} calls in {report.seconds:.0f} s: {outcomes}")
    if report.sizes:
        first, last = report.sizes[len(report.sizes) // 4], report.sizes[-1]
        print(f"memory {first.kilobytes // 1024} -> {last.kilobytes // 1024} MiB, ", end="")
        print(f"descriptors {first.descriptors} -> {last.descriptors}, threads {first.threads} -> {last.threads}")
    for seconds, line in report.slowest[:3]:
        print(f"slow: {seconds:.1f} s  {line[:200].decode(errors='replace')}")
    for finding in report.findings:
        print(f"\nFOUND {finding.problem}")
        for line in finding.lines:
            print(f"  {line[:2_000].decode(errors='replace')}")
    if report.findings:
        print(f"\nagain: {again}")
        print("one call: put its line into `forge tool call - --dev --config FILE`, in a ground kept with --keep")
    return 1 if report.findings else 0


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def silent(_: str) -> None:
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
