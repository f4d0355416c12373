"""Reads the JSON report of jest, which vitest writes, too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from forge.tools.test_runner.report import Report, find_frames, read_number

_COUNT = re.compile(r'"num(Passed|Failed|Pending|Todo)Tests": ?(\d+)')
_NONE = ("No tests found", "No test files found")


def read_jest(output: str, errors: str) -> Report | None:
    start = output.find('{"num')
    nothing = any(words in errors or words in output[:start] for words in _NONE)
    if start < 0:
        return Report(nothing=True) if nothing else None
    try:
        found, _ = json.JSONDecoder().raw_decode(output, start)
    except (ValueError, RecursionError):
        return _read_head(output[start:])
    report = Report(
        passed=_count(found, "numPassedTests"),
        failed=_count(found, "numFailedTests"),
        skipped=_count(found, "numPendingTests") + _count(found, "numTodoTests"),
        nothing=nothing,
    )
    files = [one for one in found.get("testResults") or () if isinstance(one, Mapping)]
    for file in files:
        _count_file(report, file)
    begins, ends = found.get("startTime"), [one.get("endTime") for one in files]
    times = [end for end in ends if isinstance(end, int | float)]
    if isinstance(begins, int | float) and times:
        report.duration = max(0.0, round((max(times) - begins) / 1000, 3))
    return report


def _count_file(report: Report, file: Mapping[str, Any]) -> None:
    name = str(file.get("name") or "")
    tests = [one for one in file.get("assertionResults") or () if isinstance(one, Mapping)]
    if not tests and file.get("status") == "failed":  # it could not be loaded
        report.errors += 1
        report.fail(name, name, 0, _remove_title(str(file.get("message") or "")))
    for test in tests:
        if test.get("status") == "failed":
            said = "\n".join(map(str, test.get("failureMessages") or ()))
            report.fail(
                str(test.get("fullName") or test.get("title") or ""), name, _find_line(said, name), _remove_frames(said)
            )


def _find_line(said: str, file: str) -> int:
    return next((line for where, line in find_frames(said) if where == file), 0)


def _remove_frames(said: str) -> str:
    """Drops the stack frames, which are mostly the framework's own."""
    return "\n".join(line for line in said.split("\n") if not line.startswith("    at "))


def _remove_title(said: str) -> str:
    lines = said.strip("\n").split("\n")
    return dedent("\n".join(lines[1:] if "Test suite failed to run" in lines[0] else lines))


def _count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    return value if isinstance(value, int) else 0


def _read_head(text: str) -> Report | None:
    """Reads the counts of a report that was cut or is not JSON: the counts come first."""
    counts = {name: read_number(value) for name, value in _COUNT.findall(text[:10_000])}
    if len(counts) < 3:
        return None
    skipped = counts.get("Pending", 0) + counts.get("Todo", 0)
    return Report(passed=counts.get("Passed", 0), failed=counts.get("Failed", 0), skipped=skipped)
