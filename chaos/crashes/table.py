"""The table of the storm, kept as JSON beside this file and rendered into docs/durable.md."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from chaos.crashes.score import Score

STORED = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "durable.md"
BEGIN, END = "<!-- storm -->\n", "<!-- /storm -->\n"
HEAD = "| system | version | crashes | calls | duplicates | lost | unknown | |\n|---|---|---|---|---|---|---|---|\n"
KINDS = {"injected": "injected", "killed": "`kill -9`"}


class Row(NamedTuple):
    """One system in one storm. A system that could not be run has no crashes, and its note says why."""

    name: str
    version: str
    kind: str  # "injected" or "killed"
    crashes: int
    score: Score
    note: str = ""

    def render(self) -> str:
        if not self.crashes:
            return f"| {self.name} | | | | | | | not run: {' '.join(self.note.split()).replace('|', '/')} |"
        calls, duplicates, lost, unknown = self.score
        share = f"{unknown:,} ({100 * unknown / calls:.1f} %)" if unknown else "0"
        crashes = f"{self.crashes:,} {KINDS[self.kind]}"
        return (
            f"| {self.name} | {self.version} | {crashes} | {calls:,} | {duplicates:,} | {lost:,} | {share}"
            f" | {self.note} |"
        )


class Results:
    """All rows, by kind and name."""

    def __init__(self, rows: dict[str, Any], when: str = "", python: str = "") -> None:
        self.rows, self.when, self.python = rows, when, python

    @classmethod
    def read(cls) -> Self:
        return cls(**json.loads(STORED.read_text(encoding="utf-8"))) if STORED.exists() else cls({})

    def put(self, row: Row) -> None:
        self.rows[f"{row.kind} {row.name}"] = row
        self.when, self.python = time.strftime("%Y-%m-%d"), platform.python_version()

    def write(self) -> None:
        """Stores the rows and writes the table into the page."""
        stored = {"rows": self.rows, "when": self.when, "python": self.python}
        STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}{self.render()}{END}{after}", encoding="utf-8")

    def render(self) -> str:
        rows = [Row(*row)._replace(score=Score(*row[4])) for row in self.rows.values()]
        order = sorted(rows, key=lambda row: row.kind)
        table = HEAD + "".join(f"{row.render()}\n" for row in order)
        return f"{table}\nMeasured on {self.when}, with Python {self.python}.\n"
