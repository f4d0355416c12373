"""Reads the JSON events of go test."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from forge.tools.test_runner.report import Report, read_number

MAX_OUTPUT = 20_000  # characters kept of what one test writes

_PLACE = re.compile(r"^[ \t]*(\S+\.go):(\d+)(?::\d+)?: ", re.MULTILINE)
_NOISE = ("=== ", "--- ", "FAIL", "PASS", "ok  ", "exit status")
_ENDS = {"pass", "fail", "skip"}

Key = tuple[str, str]  # the package, and the test in it; no test: the package as a whole


def read_go(output: str, errors: str) -> Report | None:
    written: dict[Key, str] = defaultdict(str)
    ended: dict[Key, str] = {}
    seconds, events = 0.0, 0
    for event in _events(output):
        events += 1
        key = (str(event.get("Package") or event.get("ImportPath") or ""), str(event.get("Test") or ""))
        action = str(event["Action"])
        if action in ("output", "build-output") and len(written[key]) < MAX_OUTPUT:
            written[key] += str(event.get("Output") or "")
        elif action in _ENDS:
            ended[key] = action
            elapsed = event.get("Elapsed")
            seconds += elapsed if not key[1] and isinstance(elapsed, int | float) else 0.0
    if not events:
        return None
    return _count_tests(Report(duration=round(seconds, 3)), ended, written, errors)


def _count_tests(report: Report, ended: Mapping[Key, str], written: Mapping[Key, str], errors: str) -> Report:
    below: dict[Key, set[str]] = defaultdict(set)  # how the parts of a test ended, and the tests of a package
    for (package, test), how in ended.items():
        if test:
            below[package, ""].add(how)
            below[package, test.rpartition("/")[0]].add(how)
    for (package, test), how in ended.items():
        said, parts = _remove_noise(written.get((package, test), "")), below.get((package, test), set())
        if not test:
            if how == "fail" and "fail" not in parts:  # it was not built, or ended before its tests did
                report.errors += 1
                told = said or _find_build_error(written, package) or errors
                report.fail(package, *_find_location(told), told)
        elif how == "fail" and ("fail" not in parts or _PLACE.search(said)):
            report.failed += 1
            report.fail(f"{package}.{test}", *_find_location(said), said)
        elif not parts:  # otherwise its parts are counted themselves
            report.passed += how == "pass"
            report.skipped += how == "skip"
    return report


def _events(output: str) -> Iterator[dict[str, Any]]:
    for line in output.split("\n"):
        if line.startswith("{"):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):  # what a program wrote between them, or a line that was cut
                continue
            if isinstance(event, dict) and "Action" in event:
                yield event


def _find_build_error(written: Mapping[Key, str], package: str) -> str:
    """Returns a package's build error, which is reported for `package [package.test]`."""
    return next((text for (name, _), text in written.items() if text and name.startswith(f"{package} [")), "")


def _remove_noise(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip() and not line.lstrip().startswith(_NOISE))


def _find_location(text: str) -> tuple[str, int]:
    found = _PLACE.search(text)
    return (found[1], read_number(found[2])) if found else ("", 0)
