"""Reads the output of cargo test, which has no machine-readable form in stable Rust."""

from __future__ import annotations

import re

from forge.tools.test_runner.report import Report, read_number

MAX_BLOCK = 20_000  # characters of what one test wrote

_RESULT = re.compile(
    r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; \d+ measured; \d+ filtered out"
    r"(?:; finished in ([\d.]+)s)?$",
    re.MULTILINE,
)
_BLOCK = re.compile(r"^---- (.+) stdout ----$", re.MULTILINE)
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
    _, *blocks = _BLOCK.split(output)
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
