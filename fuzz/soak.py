"""`python -m fuzz.soak [--seed N] [--calls N]`: right calls, very many; memory and descriptors must stay flat."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator

from fuzz.__main__ import laid_out, say, silent, told
from fuzz.campaign import campaign
from fuzz.mutate import COSTLY
from fuzz.right import Arguments, right_calls

RARER = 10  # times as rare as when mutated: they take most of the time, and hold nothing afterwards


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--tool", help="only this one")
    parser.add_argument("--keep", action="store_true", help="keep the workspace")
    parser.add_argument("--quiet", action="store_true", help="say nothing before the end")
    given = parser.parse_args(arguments)
    with laid_out(keep=given.keep) as ground:
        right = right_calls(ground.site)
        chosen = {given.tool: right[given.tool]} if given.tool else right
        report = campaign(ground, right_lines(given.seed, chosen), given.calls, silent if given.quiet else say)
        return told(report, ground, again=f"python -m fuzz.soak --seed {given.seed} --calls {given.calls}")


def right_lines(seed: int, right: dict[str, list[Arguments]]) -> Iterator[bytes]:
    """Without end, in an order that the seed decides."""
    pick, names, number = random.Random(seed), sorted(right), 0
    while True:
        name = pick.choice(names)
        if name not in COSTLY or len(names) == 1 or pick.randrange(COSTLY[name] * RARER) == 0:
            number += 1
            yield json.dumps({"name": name, "arguments": pick.choice(right[name]), "id": str(number)}).encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
