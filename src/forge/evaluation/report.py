"""The report of an evaluation: rows for a table, JSON, JUnit XML, and a comparison of two configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any
from xml.etree import ElementTree

from forge.core.plain_values import visible
from forge.evaluation.cases import EvalCase, EvalRun

HEADINGS = ("CASE", "PASSED", "TURNS", "TOKENS", "COST", "SECONDS")


@dataclass(slots=True)
class Summary:
    """Runs of one case, or of all: their number, how many passed, and averages of one run."""

    runs: int
    passes: int
    turns: float
    tokens: float
    cost: float | None
    seconds: float

    @property
    def rate(self) -> float:
        """The share of runs that passed."""
        return self.passes / self.runs if self.runs else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns the summary as JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {**values, "pass_rate": self.rate}


@dataclass(slots=True)
class EvalReport:
    """The runs of an evaluation. `evaluate` returns it.

    Args:
        cases: the cases that were to be run.
        runs: the runs that are over.

    Example:
        >>> report = EvalReport([EvalCase(name="a", prompt="Hi")], [EvalRun(case="a", turns=2)])
        >>> report.passed, report.summarise("a").turns
        (True, 2)
    """

    cases: Sequence[EvalCase] = ()
    runs: list[EvalRun] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Returns whether every case ran, and every run passed."""
        return self.holds(1.0)

    @property
    def setups(self) -> list[str]:
        """The names of the configurations, in the order in which they ran."""
        return list(dict.fromkeys(run.setup for run in self.runs)) or [""]

    def holds(self, rate: float) -> bool:
        """Returns whether at least this share of the runs of each case passed, with the first configuration."""
        summaries = [self.summarise(case.name, self.setups[0]) for case in self.cases]
        return bool(summaries) and all(one.runs and one.rate >= rate for one in summaries)

    def summarise(self, case: str = "", setup: str | None = None) -> Summary:
        """Summarises the runs of a case; without a name, those of all cases."""
        runs = [one for one in self.runs if (not case or one.case == case) and (setup is None or one.setup == setup)]
        costs = [one.cost for one in runs if one.cost is not None]
        return Summary(
            runs=len(runs),
            passes=sum(one.passed for one in runs),
            turns=mean(one.turns for one in runs) if runs else 0.0,
            tokens=mean(one.tokens for one in runs) if runs else 0.0,
            cost=mean(costs) if runs and len(costs) == len(runs) else None,
            seconds=mean(one.seconds for one in runs) if runs else 0.0,
        )

    def sort(self) -> None:
        """Puts the runs in the order of the cases."""
        order = {case.name: at for at, case in enumerate(self.cases)}
        self.runs.sort(key=lambda one: (order.get(one.case, 0), one.time))

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yields the cells of a table: its headings, a row for each case, and one for all of them."""
        setups = self.setups
        several = len(setups) > 1
        yield (*HEADINGS[:1], *(("SETUP",) if several else ()), *HEADINGS[1:])
        for name in [*(case.name for case in self.cases), ""]:
            for setup in setups:
                cells = _render(self.summarise(name, setup))
                yield (visible(name or "all"), *((visible(setup),) if several else ()), *cells)

    def comparison(self) -> str:
        """Says in one line how the second configuration differs from the first; nothing where there is one."""
        if len(self.setups) < 2:
            return ""
        first, second = (self.summarise("", setup) for setup in self.setups[:2])
        parts = [f"passed {100 * (second.rate - first.rate):+.0f} points"]
        for name in ("turns", "tokens", "cost", "seconds"):
            before, after = getattr(first, name), getattr(second, name)
            if before and after is not None:
                parts.append(f"{name} {100 * (after / before - 1):+.0f} %")
        return f"{visible(self.setups[1])} compared with {visible(self.setups[0])}: {', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as JSON."""
        entries = []
        for setup in self.setups:
            cases = {case.name: self.summarise(case.name, setup).to_dict() for case in self.cases}
            entries.append({"setup": setup, "all": self.summarise("", setup).to_dict(), "cases": cases})
        skipped = {case.name: list(case.skipped) for case in self.cases if case.skipped}
        return {
            "passed": self.passed,
            "setups": entries,
            "skipped_evaluators": skipped,
            "runs": [one.to_dict() for one in self.runs],
        }

    def to_junit(self) -> str:
        """Returns the report as JUnit XML, a test case for each run."""
        failed = sum(not one.passed for one in self.runs)
        suite = ElementTree.Element("testsuite", name="forge eval", tests=str(len(self.runs)), failures=str(failed))
        for one in self.runs:
            name = f"{one.case} [{one.time}]"
            label = visible(one.setup) or "forge eval"
            entry = ElementTree.SubElement(
                suite, "testcase", classname=label, name=visible(name), time=f"{one.seconds:.3f}"
            )
            if one.failures:
                words = visible("\n".join(one.failures))
                ElementTree.SubElement(entry, "failure", message=words.splitlines()[0]).text = words
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _render(summary: Summary) -> tuple[str, ...]:
    if not summary.runs:
        return ("not run", "", "", "", "")
    cost = "?" if summary.cost is None else f"{summary.cost:.4f}"
    passes = f"{summary.passes}/{summary.runs} {100 * summary.rate:.0f} %"
    return (passes, f"{summary.turns:.1f}", f"{summary.tokens:,.0f}", cost, f"{summary.seconds:.1f}")
