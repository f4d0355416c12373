"""Programs that start other programs: whether a deny holds behind each of them, or the line asks."""

from __future__ import annotations

from scores.report import Row, Score
from tests.permissions.judging import decide
from tests.permissions.starters import STARTS, STILL_RUN, lines_of

SOURCE = "GTFOBins' list of functions, written down as facts in tests/permissions/starters.py"
MEASURES = "With `allow execute *` and `deny execute rm *`, a program that starts `rm` is denied, or the line asks."
RULES = ["allow execute *", "deny execute rm *"]


def run() -> Score:
    held = [(line, decide(RULES, "execute", line)) for line in lines_of(STARTS)]
    ran = [(line, decide(RULES, "execute", line)) for line in lines_of(STILL_RUN)]
    slipped = [f"{line}: {said}" for line, said in held if said == "allow"]
    stopped = [f"{line}: {said}" for line, said in ran if said != "allow"]
    rows = [
        Row("ways to start rm that are denied or ask", len(held) - len(slipped), len(held), "", slipped),
        Row("ordinary uses of the same programs that run", len(ran) - len(stopped), len(ran), "", stopped),
    ]
    return Score("starters", SOURCE, MEASURES, rows)
