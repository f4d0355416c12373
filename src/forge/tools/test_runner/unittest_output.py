"""Reads the output of Python's unittest."""

from __future__ import annotations

import re

from forge.tools.test_runner.report import Report, read_number

_RAN = re.compile(r"^Ran (\d+) tests? in ([\d.]+)s$", re.MULTILINE)
_ENDED = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \(([^)\n]*)\))?$", re.MULTILINE)
_BLOCK = re.compile(r"^={70}\n(FAIL|ERROR|UNEXPECTED SUCCESS): ", re.MULTILINE)
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
    _, *blocks = _BLOCK.split(errors[: last.start()].removesuffix(f"{'-' * 70}\n"))
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
    file, line = _find_location(rest, name)
    said = "It passed, and was expected to fail." if kind == "UNEXPECTED SUCCESS" else _message(rest)
    report.fail(f"{full}{more}", file, line, said)
    return "" if name in ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule") else full


def _find_location(text: str, name: str) -> tuple[str, int]:
    found = _FILE.findall(text)
    if not found:
        return "", 0
    file, line, _ = next((one for one in reversed(found) if one[2] == name), found[-1])
    return file, read_number(line)


def _message(text: str) -> str:
    """Returns the text after the last frame, without its source line and marks."""
    end = max((match.end() for match in _FILE.finditer(text)), default=0)
    lines = text[end:].strip("\n").split("\n")
    while len(lines) > 1 and lines[0].startswith("    "):
        del lines[0]
    return "\n".join(lines)
