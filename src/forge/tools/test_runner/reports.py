"""Reads the reports of test frameworks into one form: pytest, unittest, jest, Node, Go and cargo, within bounds."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


MAX_FAILURES = 50  # kept of one run; the rest is counted
MAX_MESSAGE = 2_000  # characters of one
MAX_NAME = 300
LONGEST_FRAME = 1_000  # characters of the end of a line in which a place is looked for

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")  # colours, and what a terminal would obey
_FRAME = re.compile(r"(?:^|[\s(]|file://)(/[^\s():]+):(\d+):\d+\)?$")


class FailedTest(NamedTuple):
    """A failed test, or an error outside a test."""

    name: str
    file: str = ""
    line: int = 0
    message: str = ""


@dataclass(slots=True)
class Report:
    """Counts and the first failures. `errors` count problems outside the tests."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    errors: int = 0
    duration: float | None = None  # seconds, where the framework tells
    failures: list[FailedTest] = field(default_factory=list)
    nothing: bool = False  # the framework says that there are no tests: not that it could not look for them

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.skipped + self.errors

    def fail(self, name: str, file: str = "", line: int = 0, message: str = "") -> None:
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(
                FailedTest(clean(name)[:MAX_NAME], file, line, clip_middle(clean(message).strip("\n")))
            )


ReportReader = Callable[[str, str], Report | None]
"""Reads a framework's output and errors; returns None if it stopped before it reported anything."""


def clean(text: str) -> str:
    return _CONTROL.sub("", text) if text else ""


def clip_middle(text: str, most: int = MAX_MESSAGE) -> str:
    """Keeps the beginning, usually the expectation, and the end, usually the outcome."""
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}\n[…]\n{text[-(most // 3) :]}"


def find_frames(text: str) -> Iterator[tuple[str, int]]:
    """Returns the files and lines of a JavaScript stack: `at name (file:///a.js:1:2)`, `at /a.js:1:2`."""
    for line in text.split("\n"):
        if found := _FRAME.search(line[-LONGEST_FRAME:]):
            yield found[1], read_number(found[2])


def read_number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0


# Reads the JUnit report of pytest.

_PYTEST_PLACE = re.compile(r"^(\S[^\n:]*):(\d+): ", re.MULTILINE)  # `tests/test_a.py:7: in test_a`
_SAID = re.compile(r"^E {3}(.*)$", re.MULTILINE)


def read_junit(output: str, errors: str) -> Report | None:
    start = errors.find("<?xml")
    if start < 0 or "<!DOCTYPE" in errors or "<!ENTITY" in errors:  # pytest writes none, and they can be bombs
        return None
    report = Report()
    totals: dict[str, str] = {}
    for event, element in _xml_events(errors[start:]):
        if event == "start" and element.tag == "testsuite":
            totals = dict(element.attrib)
            report.duration = _seconds(totals.get("time", ""))
        elif event == "end" and element.tag == "testcase":
            _count_case(report, element)
            element.clear()
    if not totals:
        return None
    return _complete_counts(report, totals)


def _xml_events(text: str) -> Iterator[tuple[str, Any]]:
    """Reads as much of the report as possible: it may be cut."""
    from xml.etree.ElementTree import ParseError, XMLPullParser  # only a call needs it

    parser: Any = XMLPullParser(["start", "end"])
    parser.feed(text.partition("</testsuites>")[0])
    try:
        yield from parser.read_events()
    except ParseError:
        return


def _count_case(report: Report, case: Element) -> None:
    found = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
    if found is None:
        report.passed += 1
    elif found.tag == "skipped":
        report.skipped += 1
    else:
        report.failed += found.tag == "failure"
        report.errors += found.tag == "error"
        text, file = found.text or "", case.get("file", "")
        where, line = _find_pytest_location(text, file)
        report.fail(_name(case), where or file, line or read_number(case.get("line")) + 1, _pytest_message(found, text))


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


def _find_pytest_location(text: str, file: str) -> tuple[str, int]:
    """Returns the last line of the stack in the test's own file, or else the last line."""
    found = _PYTEST_PLACE.findall(text)
    if not found:
        return "", 0
    where, line = next((one for one in reversed(found) if one[0] == file), found[-1])
    return where, read_number(line)


def _pytest_message(found: Element, text: str) -> str:
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


# Reads the output of Python's unittest.

_RAN = re.compile(r"^Ran (\d+) tests? in ([\d.]+)s$", re.MULTILINE)
_ENDED = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \(([^)\n]*)\))?$", re.MULTILINE)
_UNITTEST_BLOCK = re.compile(r"^={70}\n(FAIL|ERROR|UNEXPECTED SUCCESS): ", re.MULTILINE)
_TITLE = re.compile(r"(\S+) \(([^)\n]*)\)")  # `test_a (tests.test_x.Case.test_a)`, before 3.11 without the last name
_FINE = re.compile(r" \.\.\. ok$", re.MULTILINE)
_FILE = re.compile(r'^  File "([^"\n]+)", line (\d+), in (.*)$', re.MULTILINE)


def read_unittest(output: str, errors: str) -> Report | None:
    ran = list(_RAN.finditer(errors))
    if not ran:
        return None
    last = ran[-1]
    ended = _ENDED.search(errors, last.end())
    counts = _counts(ended[1] or "" if ended else "")
    report = Report(
        failed=counts.get("failures", 0) + counts.get("unexpected successes", 0),
        errors=counts.get("errors", 0),
        skipped=counts.get("skipped", 0) + counts.get("expected failures", 0),
        duration=float(last[2]),
    )
    _, *blocks = _UNITTEST_BLOCK.split(errors[: last.start()].removesuffix(f"{'-' * 70}\n"))
    tests = set()
    for kind, block in zip(blocks[::2], blocks[1::2], strict=True):
        tests.add(_fail(report, kind, block))
    broken = len(tests - {""})  # several parts of one test may fail
    total = read_number(last[1])
    fine = min(total - broken, len(_FINE.findall(errors, 0, last.start())))  # Python 3.12.1 leaves skipped ones out
    report.passed = max(0, total - broken - report.skipped, fine)
    return report


def _counts(text: str) -> dict[str, int]:
    pairs = (part.partition("=") for part in text.split(", ") if part)
    return {name: read_number(value) for name, _, value in pairs}


def _fail(report: Report, kind: str, block: str) -> str:
    """Reports a failure and returns its test; nothing for code outside tests, such as `setUpClass`."""
    title, _, rest = block.partition("\n")
    rest = rest.split(f"{'-' * 70}\n", 1)[-1]
    named = _TITLE.match(title)
    name, inside = (named[1], named[2]) if named else (title, "")
    full = inside if inside.endswith(f".{name}") else f"{inside}.{name}" if inside else name
    if inside.startswith("unittest.loader._FailedTest"):
        full = name
    more = title[named.end() :] if named else ""  # of a part: `(i=2)`
    file, line = _find_unittest_location(rest, name)
    said = "It passed, and was expected to fail." if kind == "UNEXPECTED SUCCESS" else _unittest_message(rest)
    report.fail(f"{full}{more}", file, line, said)
    return "" if name in ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule") else full


def _find_unittest_location(text: str, name: str) -> tuple[str, int]:
    found = _FILE.findall(text)
    if not found:
        return "", 0
    file, line, _ = next((one for one in reversed(found) if one[2] == name), found[-1])
    return file, read_number(line)


def _unittest_message(text: str) -> str:
    """Returns the text after the last frame, without its source line and marks."""
    end = max((match.end() for match in _FILE.finditer(text)), default=0)
    lines = text[end:].strip("\n").split("\n")
    while len(lines) > 1 and lines[0].startswith("    "):
        del lines[0]
    return "\n".join(lines)


# Reads the JSON report of jest, which vitest writes, too.

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
        passed=_jest_count(found, "numPassedTests"),
        failed=_jest_count(found, "numFailedTests"),
        skipped=_jest_count(found, "numPendingTests") + _jest_count(found, "numTodoTests"),
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


def _jest_count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    return value if isinstance(value, int) else 0


def _read_head(text: str) -> Report | None:
    """Reads the counts of a report that was cut or is not JSON: the counts come first."""
    counts = {name: read_number(value) for name, value in _COUNT.findall(text[:10_000])}
    if len(counts) < 3:
        return None
    skipped = counts.get("Pending", 0) + counts.get("Todo", 0)
    return Report(passed=counts.get("Passed", 0), failed=counts.get("Failed", 0), skipped=skipped)


# Reads the TAP report of Node's own test runner.

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
        _count_point(report, point, is_parent=point.depth < depth)  # it comes after what is below it
        depth = point.depth
    if found := re.search(r"^# duration_ms ([\d.]+)$", output, re.MULTILINE):
        report.duration = round(float(found[1]) / 1000, 3)
    return report


def _count_point(report: Report, point: _Point, *, is_parent: bool) -> None:
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


# Reads the JSON events of go test.

MAX_OUTPUT = 20_000  # characters kept of what one test writes

_GO_PLACE = re.compile(r"^[ \t]*(\S+\.go):(\d+)(?::\d+)?: ", re.MULTILINE)
_NOISE = ("=== ", "--- ", "FAIL", "PASS", "ok  ", "exit status")
_ENDS = {"pass", "fail", "skip"}

Key = tuple[str, str]  # the package, and the test in it; no test: the package as a whole


def read_go(output: str, errors: str) -> Report | None:
    written: dict[Key, str] = defaultdict(str)
    ended: dict[Key, str] = {}
    seconds, events = 0.0, 0
    for event in _go_events(output):
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
                report.fail(package, *_find_go_location(told), told)
        elif how == "fail" and ("fail" not in parts or _GO_PLACE.search(said)):
            report.failed += 1
            report.fail(f"{package}.{test}", *_find_go_location(said), said)
        elif not parts:  # otherwise its parts are counted themselves
            report.passed += how == "pass"
            report.skipped += how == "skip"
    return report


def _go_events(output: str) -> Iterator[dict[str, Any]]:
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


def _find_go_location(text: str) -> tuple[str, int]:
    found = _GO_PLACE.search(text)
    return (found[1], read_number(found[2])) if found else ("", 0)


# Reads the output of cargo test, which has no machine-readable form in stable Rust.

MAX_BLOCK = 20_000  # characters of what one test wrote

_RESULT = re.compile(
    r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; \d+ measured; \d+ filtered out"
    r"(?:; finished in ([\d.]+)s)?$",
    re.MULTILINE,
)
_CARGO_BLOCK = re.compile(r"^---- (.+) stdout ----$", re.MULTILINE)
_PANIC = re.compile(r"^thread '.*?'(?: \(\d+\))? panicked at ([^\n']+?):(\d+):\d+:\n", re.MULTILINE)
_OLD_PANIC = re.compile(r"^thread '.*?' panicked at '(.*)', (\S+):(\d+):\d+$", re.MULTILINE)
_END = re.compile(r"^(?:stack backtrace:|note: |failures:$)", re.MULTILINE)
_AT = re.compile(r" at (\S+\.rs):(\d+):\d+")


def read_cargo(output: str, errors: str) -> Report | None:
    report = Report(duration=0.0)
    results = _RESULT.findall(output)
    for passed, failed, ignored, seconds in results:
        report.passed += read_number(passed)
        report.failed += read_number(failed)
        report.skipped += read_number(ignored)
        report.duration = round((report.duration or 0.0) + float(seconds or 0), 3)
    if not results:
        return None
    _, *blocks = _CARGO_BLOCK.split(output)
    for name, block in zip(blocks[::2], blocks[1::2], strict=True):
        report.fail(name.partition(" - should panic")[0], *_read_block(_cut_block(block)))
    broken = re.findall(r"^error: could not compile .*$", errors, re.MULTILINE)
    report.errors = len(broken)
    for words in broken:
        report.fail("cargo test", "", 0, words)
    return report


def _cut_block(block: str) -> str:
    """Cuts the list of all failures, which follows the last block of a crate."""
    return re.split(r"^failures:$", block[:MAX_BLOCK], maxsplit=1, flags=re.MULTILINE)[0].strip("\n")


def _read_block(block: str) -> tuple[str, int, str]:
    if found := _PANIC.search(block):
        said, note = _END.split(block[found.end() :])[0], re.search(r"^note: panic did not.*", block, re.M | re.S)
        return found[1], read_number(found[2]), f"{said.rstrip()}\n{note[0]}" if note else said.rstrip()
    if old := _OLD_PANIC.search(block):
        return old[2], read_number(old[3]), old[1]
    location = _AT.search(block)
    return (location[1], read_number(location[2]), block) if location else ("", 0, block)
