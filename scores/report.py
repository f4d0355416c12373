"""Holds the result of a suite, and writes all of them as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

NONE_KNOWN = "none known"
MOST_FAILURES = 40  # kept for one row; all of them are in .cache/scores/failures

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "scores" / "results.json"
PAGE = ROOT / "docs" / "scores.md"


class Missing(Exception):
    """The suite cannot be had on this machine; the message says why."""


class NotGiven(Missing):
    """The suite needs something that only a person can give, such as a folder; the message says how."""


@dataclass(frozen=True, slots=True)
class Row:
    """One score: how many of how many cases, what others reach, and every failure with its reason."""

    measure: str
    passed: int
    cases: int
    others: str = ""  # measured in the same run, else published
    failures: Sequence[str] = ()
    fewer_is_better: bool = False
    more_failures: int = 0  # beyond those that are kept
    measured: str = ""  # the day; "" in a run that is under way

    @property
    def rate(self) -> float:
        return self.passed / self.cases if self.cases else 0.0


@dataclass(frozen=True, slots=True)
class Score:
    """What one suite said of Forge."""

    suite: str
    source: str  # the package and its version
    measures: str
    rows: Sequence[Row] = ()
    missing: str = ""  # why there are no rows, or why they are those of an earlier run
    not_given: bool = False  # missing because nobody named it: no reason to fail a check
    notes: Sequence[str] = field(default_factory=tuple)


def read_results() -> dict[str, Score]:
    """The scores of the last runs, by suite."""
    if not RESULTS.exists():
        return {}
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {name: _score(value) for name, value in stored.items()}


def date_rows(score: Score, day: str) -> Score:
    """The score with the day of its run in every row; a row that was kept from an earlier run has its day."""
    return replace(score, rows=[replace(row, measured=row.measured or day) for row in score.rows])


def merge_results(before: Mapping[str, Score], after: Mapping[str, Score]) -> dict[str, Score]:
    """The new scores; a suite that could not be had keeps the rows of its last run, and the reason."""
    kept = {
        name: replace(before[name], missing=score.missing, not_given=score.not_given)
        for name, score in after.items()
        if score.missing and not score.rows and name in before and before[name].rows
    }
    return {**before, **after, **kept}


def write_results(scores: Mapping[str, Score], order: Sequence[str]) -> None:
    """Store the scores, and write the page: every suite of the order, also one that was never run."""
    kept = {name: scores[name] if name in scores else _never_run(name) for name in order}
    content = json.dumps({name: asdict(score) for name, score in kept.items()}, indent=1, ensure_ascii=False)
    RESULTS.write_text(content + "\n", encoding="utf-8")
    PAGE.write_text(render_page(list(kept.values())), encoding="utf-8")


def keep_failures(score: Score) -> Score:
    """Write all failures of a suite to the cache, and keep the first of each row."""
    folder = ROOT / ".cache" / "scores" / "failures"
    folder.mkdir(parents=True, exist_ok=True)
    said = [f"{row.measure}: {failure}" for row in score.rows for failure in row.failures]
    (folder / f"{score.suite}.txt").write_text("".join(f"{line}\n" for line in said), encoding="utf-8")
    rows = [
        replace(
            row,
            failures=[_one_line(failure) for failure in row.failures[:MOST_FAILURES]],
            more_failures=max(0, len(row.failures) - MOST_FAILURES),
        )
        for row in score.rows
    ]
    return replace(score, rows=rows)


def find_drops(before: Mapping[str, Score], after: Mapping[str, Score]) -> list[str]:
    """Every row that is worse than it was, is gone, or has fewer cases."""
    drops = []
    for name, score in after.items():
        known = before[name].rows if name in before else ()
        if known and score.missing:
            drops += [] if score.not_given else [f"{name}: could not be run: {score.missing}"]
            continue
        rows = {row.measure: row for row in score.rows}
        for old in known:
            row = rows.get(old.measure)
            if row is None:
                drops.append(f"{name}: {old.measure}: gone, was {_figure(old)}")
            elif row.cases < old.cases or (row.rate > old.rate if row.fewer_is_better else row.rate < old.rate):
                drops.append(f"{name}: {row.measure}: {_figure(row)}, was {_figure(old)}")
    return drops


def render_page(scores: Sequence[Score]) -> str:
    lines = [
        "# Scores",
        "",
        "Test suites and data that other people wrote, run against Forge by `make scores`. One suite alone:",
        "`make scores SUITE=bfcl`. The data comes from packages by name and is not part of this repository. A suite",
        "that cannot be had on a machine keeps its last figures, with the day on which they were measured; one that",
        "was never measured is listed as missing. Others: measured in the same run, or published.",
        "",
        "| suite | from | measure | Forge | others |",
        "|---|---|---|---|---|",
    ]
    for score in scores:
        if score.missing and not score.rows:
            lines.append(
                f"| {score.suite} | {score.source} | {score.measures} | **missing**: {score.missing} | {NONE_KNOWN} |"
            )
        for row in score.rows:
            mark = " (fewer is better)" if row.fewer_is_better else ""
            kept = f", measured on {row.measured or 'an earlier day'}" if _is_kept(row, score) else ""
            figures = f"{_figure(row)}{kept} | {row.others or NONE_KNOWN}"
            lines.append(f"| {score.suite} | {score.source} | {row.measure}{mark} | {figures} |")
    for score in scores:
        lines += ["", f"## {score.suite}", "", f"{score.measures} From {score.source}."]
        lines += [line for note in score.notes for line in ("", note)]
        if score.missing and score.rows:
            lines += ["", f"The figures are those of the last run. In the run after it: {score.missing}."]
        for row in score.rows:
            if row.failures:
                lines += ["", f"**{row.measure}**: {_figure(row)}. Failures:", ""]
                lines += [f"- {failure}" for failure in row.failures]
                if row.more_failures:
                    lines.append(f"- … and {row.more_failures:,} more, in `.cache/scores/failures/` after a run")
    return "\n".join(lines) + "\n"


def _never_run(name: str) -> Score:
    module = import_module(f"scores.{name}")
    return Score(name, module.SOURCE, module.MEASURES, missing=f"never run: `make scores SUITE={name}`")


def _is_kept(row: Row, score: Score) -> bool:
    """Whether the row comes from an earlier run than the other rows, or the suite could not be run."""
    return bool(score.missing) or row.measured < max(other.measured for other in score.rows)


def _figure(row: Row) -> str:
    share = f" ({row.rate:.3f})" if row.cases >= 100 else ""
    return f"{row.passed:,} of {row.cases:,}{share}"


def _one_line(text: str) -> str:
    flat = " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")
    return flat if len(flat) <= 300 else f"{flat[:300]}…"


def _score(stored: dict[str, Any]) -> Score:
    return Score(**{**stored, "rows": [Row(**row) for row in stored["rows"]]})
