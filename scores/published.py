"""The figures of others that are published, and those that our own tables of peers hold."""

from __future__ import annotations

from dataclasses import replace

from scores.report import ROOT, Score

PEERS = ROOT / "benchmarks" / "RESULTS.md"

_TIER = "official SDKs of tier 1: all that are scored, as a condition (modelcontextprotocol.io/community/sdk-tiers)"
_CAMEL = (
    "CaMeL: 77 % with a model, provably secure; without a defence 84 % (arXiv 2503.18813). PRUDENTIA asks up to 1.9"
    " times less than the best before it, FIDES among them (ICLR 2026, openreview.net g0aVCDY3gS)"
)
_GOALS = (
    "with models: two firewalls reach 0 % or the lowest possible (arXiv 2510.05244); Progent 4.2 %, 25.8 % without it"
    " (arXiv 2606.26479); CaMeL (arXiv 2503.18813) and FIDES (arXiv 2505.23643) give guarantees, no such figure in"
    " their abstracts"
)

# the suite, and how the measure begins
_FIGURES = {
    ("mcp", "server"): _TIER,
    ("mcp", "client"): _TIER,
    ("agentdojo", "user tasks that run through without a question"): _CAMEL,
    ("agentdojo", "injected goals reached"): _GOALS,
    ("codex", ""): "codex: all, they are its own",
}


def add_published(score: Score) -> Score:
    """The score with the figures of others, in every row that has not measured one itself."""
    rows = [replace(row, others=row.others or published(score.suite, row.measure)) for row in score.rows]
    return replace(score, rows=rows)


def published(suite: str, measure: str) -> str:
    """The best figure of others that is known for a measure; "" where none is."""
    if (suite, measure) == ("bfcl", "damaged calls repaired to the right call"):
        return peers_repair(PEERS.read_text(encoding="utf-8") if PEERS.exists() else "")
    fitting = (text for (name, begin), text in _FIGURES.items() if name == suite and measure.startswith(begin))
    return next(fitting, "")


def peers_repair(page: str) -> str:
    """How many kinds of damage each system of the peers' table repairs; "" where the page has no such table."""
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in page.partition("| the model sends |")[2].partition("\n\n")[0].splitlines()
    ]
    if len(rows) < 3:
        return ""
    names, kinds = rows[0], rows[2:]
    counts = {name: sum(kind[place] == "repaired" for kind in kinds) for place, name in enumerate(names, 1)}
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    told = ", ".join(f"{name}: {counts[name]}" for name in ranked if counts[name])
    return f"of {len(kinds)} kinds in benchmarks/RESULTS.md: {told}, the others: 0"
