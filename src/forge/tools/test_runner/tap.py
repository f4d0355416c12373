"""Reads the TAP report of Node's own test runner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from forge.tools.test_runner.report import Report, find_frames, read_number

MAX_COMMENTS = 30  # lines that are kept until it is known whether they explain a failure

_POINT = re.compile(r"( *)(not ok|ok) \d+(?: - (.*?))?( # (?:SKIP|TODO)\b.*)?$")
_ENTRY = re.compile(r"(\w+): ?(.*)$")
_LOCATION = re.compile(r"(.*):(\d+):\d+")


@dataclass(slots=True)
class _Point:
    """One `ok` or `not ok`, and its details."""

    depth: int
    ok: bool
    name: str
    skipped: bool
    comments: list[str]
    said: dict[str, str] = field(default_factory=dict)


def read_tap(output: str, errors: str) -> Report | None:
    if not output.startswith("TAP version") and "\nTAP version" not in output:
        return None
    report = Report()
    depth = 0
    for point in _points(output):
        _count(report, point, is_parent=point.depth < depth)  # it comes after what is below it
        depth = point.depth
    if found := re.search(r"^# duration_ms ([\d.]+)$", output, re.MULTILINE):
        report.duration = round(float(found[1]) / 1000, 3)
    return report


def _count(report: Report, point: _Point, *, is_parent: bool) -> None:
    kind = point.said.get("failureType", "")
    if point.skipped:
        report.skipped += 1
    elif point.ok:
        report.passed += not is_parent
    elif kind == "subtestsFailed" or (is_parent and point.said.get("type") == "suite" and not point.said.get("stack")):
        return  # they are counted themselves
    elif "exitCode" in point.said:  # a file that broke as a whole
        report.errors += 1
        report.fail(point.name, point.name, _line(point), _explain_failure(point))
    else:
        report.failed += 1
        report.fail(point.name, _file(point), _line(point), point.said.get("error", ""))


def _points(text: str) -> Iterator[_Point]:
    comments: list[str] = []
    point: _Point | None = None
    key = ""
    inside = False  # the YAML block below a point
    for line in text.split("\n"):
        if inside and point is not None:
            indent = " " * (point.depth + 2)
            if line == f"{indent}...":
                inside = False
            elif found := _ENTRY.match(line.removeprefix(indent)) if not line.startswith(f"{indent} ") else None:
                key = found[1]
                point.said[key] = _value(found[2])
            elif key:
                point.said[key] += f"{line.removeprefix(f'{indent}  ')}\n"
        elif found := _POINT.match(line):
            if point is not None:
                yield point
            name = _decode_escapes(found[3] or "")
            point = _Point(len(found[1]), found[2] == "ok", name, bool(found[4]), comments)
            comments = []
        elif point is not None and line == f"{' ' * (point.depth + 2)}---":
            inside, key = True, ""
        elif line.lstrip().startswith("# ") and not line.lstrip().startswith("# Subtest: "):
            comments = [*comments[-MAX_COMMENTS:], _decode_escapes(line.lstrip()[2:])]
    if point is not None:
        yield point


def _value(text: str) -> str:
    if text in ("|-", "|", ">-"):
        return ""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace("\\'", "'").replace("\\n", "\n")
    return text


def _file(point: _Point) -> str:
    found = _LOCATION.fullmatch(point.said.get("location", ""))
    return found[1] if found else ""


def _line(point: _Point) -> int:
    """Returns the line of the failure if it is in the test's file, or else the line of the test."""
    file = _file(point)
    found = _LOCATION.fullmatch(point.said.get("location", ""))
    otherwise = read_number(found[2]) if found else 0
    return next((line for where, line in find_frames(point.said.get("stack", "")) if where == file), otherwise)


def _explain_failure(point: _Point) -> str:
    """Explains a broken file by its last output, without most frames."""
    said = [line for line in point.comments if line.strip() and not line.lstrip().startswith(("at ", "Node.js v"))]
    return "\n".join(said) or point.said.get("error", "")


def _decode_escapes(text: str) -> str:
    return text.replace("\\#", "#").replace("\\\\", "\\")
