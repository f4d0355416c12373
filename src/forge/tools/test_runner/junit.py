"""Reads the JUnit report of pytest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forge.tools.test_runner.report import Report, read_number

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_PLACE = re.compile(r"^(\S[^\n:]*):(\d+): ", re.MULTILINE)  # `tests/test_a.py:7: in test_a`
_SAID = re.compile(r"^E {3}(.*)$", re.MULTILINE)


def read_junit(output: str, errors: str) -> Report | None:
    start = errors.find("<?xml")
    if start < 0 or "<!DOCTYPE" in errors or "<!ENTITY" in errors:  # pytest writes none, and they can be bombs
        return None
    report = Report()
    totals: dict[str, str] = {}
    for event, element in _events(errors[start:]):
        if event == "start" and element.tag == "testsuite":
            totals = dict(element.attrib)
            report.duration = _seconds(totals.get("time", ""))
        elif event == "end" and element.tag == "testcase":
            _count(report, element)
            element.clear()
    if not totals:
        return None
    return _complete_counts(report, totals)


def _events(text: str) -> Iterator[tuple[str, Any]]:
    """Reads as much of the report as possible: it may be cut."""
    from xml.etree.ElementTree import ParseError, XMLPullParser  # only a call needs it

    parser: Any = XMLPullParser(["start", "end"])
    parser.feed(text.partition("</testsuites>")[0])
    try:
        yield from parser.read_events()
    except ParseError:
        return


def _count(report: Report, case: Element) -> None:
    found = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
    if found is None:
        report.passed += 1
    elif found.tag == "skipped":
        report.skipped += 1
    else:
        report.failed += found.tag == "failure"
        report.errors += found.tag == "error"
        text, file = found.text or "", case.get("file", "")
        where, line = _find_location(text, file)
        report.fail(_name(case), where or file, line or read_number(case.get("line")) + 1, _message(found, text))


def _name(case: Element) -> str:
    """Returns the test's name as a pytest argument: `tests/test_a.py::TestA::test_b[1]`."""
    file, name, of = case.get("file", ""), case.get("name", ""), case.get("classname", "")
    module = file.removesuffix(".py").replace("/", ".")
    if not file:
        return f"{of}::{name}"
    if not case.get("line") and module.endswith(name):  # it could not be imported
        return file
    inside = of.removeprefix(module).strip(".").replace(".", "::")
    return "::".join(part for part in (file, inside, name) if part)


def _find_location(text: str, file: str) -> tuple[str, int]:
    """Returns the last line of the stack in the test's own file, or else the last line."""
    found = _PLACE.findall(text)
    if not found:
        return "", 0
    where, line = next((one for one in reversed(found) if one[0] == file), found[-1])
    return where, read_number(line)


def _message(found: Element, text: str) -> str:
    said = found.get("message") or ""
    if found.tag == "failure" and said:
        return said
    lines = "\n".join(_SAID.findall(text))
    about = said.partition(" with ")[0]  # "failed on setup", "collection failure"
    return f"{about}: {lines}" if about and lines else lines or said or text


def _complete_counts(report: Report, totals: dict[str, str]) -> Report:
    """Adds the counts from the report's head if the report was cut."""
    tests = read_number(totals.get("tests"))
    if tests > report.total:
        report.failed, report.errors, report.skipped = (
            read_number(totals.get(name)) for name in ("failures", "errors", "skipped")
        )
        report.passed = max(0, tests - report.failed - report.errors - report.skipped)
    return report


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
