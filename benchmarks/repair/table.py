"""Writes the table of damaged calls: for each kind of damage, how each system took the calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.repair.corpus import ROWS
from benchmarks.repair.judge import EXPLAINED, REFUSED, REPAIRED, UNDEFINED, WRONG

BEGIN, END = "<!-- table: make bench-repair -->\n", "<!-- end of the table -->"
_VERDICTS = (REPAIRED, EXPLAINED, REFUSED, WRONG)


def write_page(page: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the page with the new table between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{write_table(found)}\n{END}{rest.partition(END)[2]}"


def write_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Writes one row for each damage, then all of them, then what could not be run."""
    measured = {name: one["counts"] for name, one in found.items() if "counts" in one}
    heads = [f"{name} {found[name].get('version', '')}".strip() for name in measured]
    lines = [f"| damage | calls | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for damage, words in ROWS.items():
        sent = max((sum(counts.get(damage, {}).values()) for counts in measured.values()), default=0)
        cells = " | ".join(write_cell(counts.get(damage)) for counts in measured.values())
        lines.append(f"| {words} | {sent} | {cells} |")
    totals = [_add(counts.values()) for counts in measured.values()]
    sent = max((sum(total.values()) for total in totals), default=0)
    lines.append(f"| **all** | {sent} | {' | '.join(map(write_cell, totals))} |")
    lines += [f"\n{name}: {one['reason']}." for name, one in found.items() if "reason" in one]
    lines += [
        f"\n{name} cannot make a tool of {undefined} of the functions; their calls are not counted as refused."
        for name, total in zip(measured, totals, strict=True)
        if (undefined := total.get(UNDEFINED))
    ]
    return "\n".join(lines) + "\n"


def write_cell(counts: Mapping[str, int] | None) -> str:
    """Writes `repaired / explained / refused / wrong`; a dash where the system does not read the text."""
    if not counts:
        return "–"
    return " / ".join(str(counts.get(one, 0)) for one in _VERDICTS)


def _add(several: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for counts in several:
        for verdict, number in counts.items():
            total[verdict] = total.get(verdict, 0) + number
    return total
