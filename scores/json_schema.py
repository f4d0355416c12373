"""The JSON-Schema-Test-Suite through tools: each schema as a parameter, and as the root of the parameters."""

from __future__ import annotations

from collections import Counter

from scores.packages import source_from_pypi
from scores.report import Row, Score
from scripts.json_schema_suite import DRAFTS, PLACES, cases, decided, outcome

VERSION = "4.26.0"
SOURCE = f"the source of PyPI jsonschema {VERSION}, which carries the suite"
MEASURES = "No valid instance is changed apart from filled-in defaults or refused, no invalid one is taken."


def run() -> Score:
    source = source_from_pypi("jsonschema", VERSION)
    rows, reasons = [], Counter[str]()
    for draft in DRAFTS:
        for place in PLACES:
            passed, count, failures = 0, 0, []
            for case in cases(source, draft):
                found = outcome(case, place)
                if found is None:
                    continue
                count += 1
                if found.kind in ("right", "repaired"):
                    passed += 1
                elif reason := decided(case, found):
                    reasons[reason] += 1
                    failures.append(f"{case.label}: {found.kind}: decided: {reason}")
                else:
                    failures.append(f"{case.label}: {found.kind}: {found.words}")
            failures.sort(key=lambda said: ": decided: " in said)
            rows.append(Row(f"{draft}, the schema as the {place}", passed, count, failures=failures))
    notes = [f"Decided differences: {count} × {reason}." for reason, count in reasons.most_common()]
    return Score("json_schema", SOURCE, MEASURES, rows, notes=notes)
