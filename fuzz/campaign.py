"""Sends lines to a stream, a few at a time, and judges everything that can be seen from outside."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from fuzz.ground import Ground
from fuzz.stream import Size, Stream
from fuzz.verdict import SLACK, grown, wrong_with

AT_ONCE = 8  # calls on their way, so that those that may run side by side do
PATIENCE = 120.0  # seconds for a result; a tool has 20 of its own, on a machine that may be busy
MOST = 20  # findings
SAMPLES = 40  # of memory and descriptors, over a run


class Finding(NamedTuple):
    """What is wrong, and the calls that may have caused it: lines for `forge tool call -`."""

    problem: str
    lines: tuple[bytes, ...] = ()


class Report(NamedTuple):
    calls: int
    seconds: float
    outcomes: Counter[str]
    slowest: list[tuple[float, bytes]]
    sizes: list[Size]
    findings: list[Finding]


def campaign(
    ground: Ground,
    lines: Iterable[bytes],
    count: int,
    say: Callable[[str], None] = lambda _: None,
    *,
    slack: int = SLACK,
) -> Report:
    """Ends early where the process does, or where a result does not come, or after 20 findings."""
    findings: list[Finding] = []
    outcomes: Counter[str] = Counter()
    slowest: list[tuple[float, bytes]] = []
    sizes: list[Size] = []
    waiting: deque[tuple[bytes, float]] = deque()
    started = time.monotonic()
    answered = 0

    with Stream(ground) as stream:
        source = iter(lines)

        def one_answer() -> bool:
            nonlocal answered
            line, sent = waiting[0]
            result = stream.answer(PATIENCE)
            if result is None:
                ended = stream.process.poll()
                problem = f"no result in {PATIENCE:.0f} s" if ended is None else f"the process ended with {ended}"
                findings.append(Finding(problem, tuple(line for line, _ in waiting)))
                return False
            waiting.popleft()
            answered += 1
            outcomes[str(result.get("error_type") or "fine")] += 1
            _note(slowest, time.monotonic() - sent, line)
            if problem := wrong_with(result, line):
                findings.append(Finding(problem, (line,)))
            if answered % max(1, count // SAMPLES) == 0:
                _sample(stream, sizes)
                say(f"{answered:,} of {count:,} calls, {sizes[-1] if sizes else ''}, {len(findings)} findings")
            return len(findings) < MOST

        going_on = True
        for _ in range(count):
            line = next(source)
            waiting.append((line, time.monotonic()))
            try:
                stream.send(line)
            except BrokenPipeError:
                pass  # what was not answered says so
            going_on = len(waiting) < AT_ONCE or one_answer()
            if not going_on:
                break
            if answered and answered % 500 == 0 and (touched := ground.touched()):
                findings.append(
                    Finding(f"touched outside the workspace: {touched}", tuple(line for line, _ in waiting))
                )
                break
        while going_on and waiting:
            going_on = one_answer()
        if going_on:
            findings += _ending(stream, ground)
    findings += [Finding(problem) for problem in (grown(sizes, slack), *_traces(ground)) if problem]
    return Report(answered, time.monotonic() - started, outcomes, sorted(slowest, reverse=True), sizes, findings)


def _sample(stream: Stream, sizes: list[Size]) -> None:
    if (size := stream.size()) is not None:
        sizes.append(size)


def _note(slowest: list[tuple[float, bytes]], seconds: float, line: bytes) -> None:
    slowest.append((seconds, line))
    if len(slowest) > 50:
        slowest.sort(reverse=True)
        del slowest[5:]


def _ending(stream: Stream, ground: Ground) -> list[Finding]:
    code = stream.end(60)
    if code is None:
        return [Finding("the process goes on after its last answer")]
    found = [] if code == 0 else [Finding(f"the process ended with {code}")]
    if left := ground.left_over():
        found.append(Finding(f"left over: {left[:10]}"))
    if alive := _still_there(ground):
        found.append(Finding(f"processes that were left behind: {alive}"))
    return found


def _traces(ground: Ground) -> list[str]:
    touched = ground.touched()
    told = ground.log.read_text(errors="replace") if ground.log.exists() else ""
    return [
        f"touched outside the workspace: {touched}" if touched else "",
        f"it wrote a traceback:\n{told[-2_000:]}" if "Traceback" in told else "",
    ]


def _still_there(ground: Ground) -> list[str]:
    """Processes that work in the ground."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(process / "cwd")
            if Path(where).is_relative_to(ground.root) and int(process.name) != os.getpid():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100])
        except OSError:
            continue
    return found
