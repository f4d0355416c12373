"""Shell lines, really run through the gate: everyday lines that only read, and tricky lines that try to do more."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.permissions.policy import PermissionRequest, Rules, TrialMode, rules
from forge.permissions.questions import Answer
from forge.pipeline import standard_executor
from forge.process.running.run import find_tier
from forge.tools.bash import Bash
from scores.report import ROOT, Missing, Row, Score, read_results
from tests.permissions.shell_lines import EVERYDAY, TRICKY
from tests.permissions.starters import STARTS, lines_of

VARIABLE = "NL2BASH"
SOURCE = "NL2Bash (github.com/TellinaTool/nl2bash), GTFOBins' facts and own lines in tests/permissions"
MEASURES = "Without rules and without a person, lines that only read run in a read-only sandbox; no line has an effect."
DRAWN = 300
SEED = 38
MARKS = ROOT / "scores" / "shell_marks.json"
EVERYDAY_OF_OTHERS = "NL2Bash lines that only read, run unasked"
QUESTIONS = (
    "NL2Bash lines that ask without trial runs",
    "NL2Bash lines that ask with trial runs",
    "NL2Bash lines that ask with trial runs and `allow effects write **`",
    "NL2Bash lines with an effect that no rule allows and no one was asked about",
)
NOTES = (
    "The 300 lines of NL2Bash are drawn by a fixed seed from its distinct lines. Each was marked by hand before it was"
    " judged: `reads` (it only reads the workspace or the system's programs), `outside` (it reads something else, such"
    " as `/home` or the network's state, so it asks), `changes` (it writes, starts unknown programs or uses the"
    " network), `broken` (no shell runs it). Only the marks are stored, by digest. Set `NL2BASH` to a clone of the"
    " repository; without it, the row keeps its last figure.",
    "Questions with trial runs: each line runs in a fresh copy of one tree, offline, and every question is answered"
    " with no. An effect counts if a file of the workspace changes and no rule allows it, or anything beside it.",
    "A tricky line has an effect if a file, a mode or a time in the workspace or beside it changes, if something"
    " arrives in a FIFO of the workspace, or if a connection reaches a port of the machine.",
)
_ASKED = "needs a person's approval"


class Outcome(NamedTuple):
    """How one line ended."""

    line: str
    asked: bool
    effect: str


def run() -> Score:
    tiers = [tier for tier in ("bubblewrap", "landlock") if _has(tier)]
    if not tiers:
        raise Missing("this machine has neither bubblewrap nor Landlock")
    rows = []
    for tier in tiers:
        tricky = run_lines([*TRICKY.strip().split("\n"), *lines_of(STARTS)], tier)
        bad = [f"{one.line}: {one.effect}" for one in tricky if one.effect]
        rows.append(Row(f"tricky lines with an effect, {tier}", len(bad), len(tricky), "", bad, fewer_is_better=True))
        everyday = run_lines(EVERYDAY.strip().split("\n"), tier)
        asked = [one.line for one in everyday if one.asked]
        rows.append(
            Row(f"own everyday lines, run unasked, {tier}", len(everyday) - len(asked), len(everyday), "", asked)
        )
    rows.append(judge_others(tiers[0]))
    rows += judge_trials()
    return Score("shell", SOURCE, MEASURES, rows, notes=NOTES)


def judge_others(tier: str) -> Row:
    """Runs the lines of NL2Bash that were marked as reading; without the data set, returns the row of the last run."""
    lines = _draw_lines()
    marks = json.loads(MARKS.read_text(encoding="utf-8"))
    if not lines:
        kept = (row for row in _rows_before() if row.measure == EVERYDAY_OF_OTHERS)
        return next(kept, Row(EVERYDAY_OF_OTHERS, 0, 0))
    marked = {line: marks[digest(line)] for line in lines}
    outcomes = run_lines(lines, tier)
    reading = [one for one in outcomes if marked[one.line] == "reads"]
    wrong = [one.line for one in reading if one.asked]
    wrong += [f"{one.line}: it had an effect: {one.effect}" for one in outcomes if one.effect]
    return Row(EVERYDAY_OF_OTHERS, sum(not one.asked for one in reading), len(reading), "", wrong)


def judge_trials() -> list[Row]:
    """Counts the questions about the lines of NL2Bash, each in a copy of one tree, and effects that no one allowed.

    Every question is answered with no. Without the data set, returns the rows of the last run.
    """
    lines = _draw_lines()
    if not lines:
        return [row for row in _rows_before() if row.measure in QUESTIONS]
    before = asyncio.run(_count_questions(lines, rules(), "off"))
    after = asyncio.run(_count_questions(lines, rules(), "auto"))
    allowed = asyncio.run(_count_questions(lines, rules("allow effects write **"), "auto"))
    bad = [f"{one.line}: {one.effect}" for outcomes in (before, after) for one in outcomes if one.effect]
    bad += [f"{one.line}: {one.effect}" for one in allowed if one.effect.startswith("beside")]
    counts = [sum(one.asked for one in outcomes) for outcomes in (before, after, allowed)]
    rows = [
        Row(name, number, len(lines), "", [], fewer_is_better=True)
        for name, number in zip(QUESTIONS[:3], counts, strict=True)
    ]
    return [*rows, Row(QUESTIONS[3], len(bad), len(lines), "", bad, fewer_is_better=True)]


async def _count_questions(lines: Sequence[str], policy: Rules, trial: TrialMode) -> list[Outcome]:
    asked: list[str] = []

    async def refuse(request: PermissionRequest) -> Answer:
        asked.append(request.target)
        return Answer.NO

    outcomes: list[Outcome] = []
    executor = standard_executor([Bash(sandbox="bubblewrap")], policy=policy, approve=refuse, trial=trial)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        make_place(whole)
        (whole / "pipe").unlink()  # a trial that touches it is offered outside
        place = Path(folder) / "run" / "workspace"
        shutil.copytree(whole, place, symlinks=True)
        states = _states(place.parent)
        for line in lines:
            scope = Scope(session_id=f"scores {line}", workspace=place)
            count = len(asked)
            await executor.execute(ToolCall("bash", {"command": line, "timeout": 5}), scope)
            after = _states(place.parent)
            changed = sorted(str(path) for path in states.keys() | after.keys() if states.get(path) != after.get(path))
            effect = ""
            if changed:
                where = "beside the workspace" if any(not one.startswith(f"{place}/") for one in changed) else "changed"
                effect = f"{where} {changed[0]}"
                place = Path(folder) / f"run{len(outcomes)}" / "workspace"  # Forge does not enter a replaced directory
                shutil.copytree(whole, place, symlinks=True)
                states = _states(place.parent)
            outcomes.append(Outcome(line, len(asked) > count, effect))
    return outcomes


def digest(line: str) -> str:
    """Returns the key of a line in the file of marks."""
    return hashlib.sha256(line.encode()).hexdigest()[:16]


def _rows_before() -> Sequence[Row]:
    before = read_results().get("shell")
    return before.rows if before else ()


def _draw_lines() -> list[str]:
    """Returns the drawn lines; none if the data set was not given."""
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        return []
    file = Path(folder) / "data" / "bash" / "all.cm"
    if not file.is_file():
        raise Missing(f"{VARIABLE}={folder} has no data/bash/all.cm: clone github.com/TellinaTool/nl2bash")
    text = file.read_text(encoding="utf-8", errors="replace")
    lines = sorted({line.strip() for line in text.split("\n") if line.strip()})
    return random.Random(SEED).sample(lines, DRAWN)


def run_lines(lines: Sequence[str], tier: str, *policy: str) -> list[Outcome]:
    """Runs each line through the gate, with no one to ask, in one workspace; reports every effect."""
    with tempfile.TemporaryDirectory() as folder, _listening() as server:
        place = Path(folder) / "workspace"
        make_place(place)
        port = str(server.getsockname()[1])
        given = [line.replace("PORT", port) for line in lines]
        return asyncio.run(_run_all(given, place, Bash(sandbox=tier), rules(*policy), server))


async def _run_all(
    lines: Sequence[str], place: Path, tool: Bash, policy: Rules, server: socket.socket
) -> list[Outcome]:
    executor = standard_executor([tool], policy=policy, trial="off")  # what the read-only sandbox alone saves
    scope = Scope(session_id=f"scores {place}", workspace=place)
    pipe = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    outcomes = []
    before = _states(place.parent)
    for line in lines:
        result = await executor.execute(ToolCall("bash", {"command": line, "timeout": 5}), scope)
        after = _states(place.parent)
        changed = sorted(str(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        effect = f"changed {changed[0]}" if changed else _arrived(pipe, server)
        outcomes.append(Outcome(line, _ASKED in result.for_llm, effect))
        before = after
    os.close(pipe)
    return outcomes


def _arrived(pipe: int, server: socket.socket) -> str:
    try:
        if os.read(pipe, 1_000):
            return "something arrived in the FIFO"
    except BlockingIOError:
        return "a program opened the FIFO for writing"
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return ""
    return "a connection arrived"


@contextmanager
def _listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def _states(folder: Path) -> dict[Path, object]:
    found: dict[Path, object] = {}
    for path in folder.rglob("*"):
        if ".forge" in path.parts:  # long outputs, which Forge itself stores
            continue
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[path] = (status.st_mode, status.st_uid, status.st_mtime_ns if content else 0, content)
    return found


def make_place(place: Path) -> None:
    """Makes a workspace with files to read, a victim, programs that would do harm, a FIFO and two repositories."""
    (place / "sub").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "x.py", "sub/c"):
        (place / name).write_text("x 1\ny 2\n")
    for name in ("victim", "x"):
        (place / name).write_text(f"the {name}\n")
    (place / "a.json").write_text('[{"env": "prod"}]\n')
    (place / "a.bin").write_bytes(b"abcdef\0\1")
    for name in ("evil", "evil.sh"):
        (place / name).write_text("#!/bin/sh\ntouch PWNED\n")
        (place / name).chmod(0o755)
    (place / "script.awk").write_text('BEGIN { system("touch PWNED"); print "x" > "pipe" }\n')
    (place / "script.sed").write_text("w PWNED\n")
    (place / "evil.py").write_text('open("PWNED", "w")\n')
    (place / "evil.mk").write_text("x := $(shell touch PWNED)\nall:\n\ttouch PWNED\n")
    os.mkfifo(place / "pipe")
    packed = "gzip -c a.txt > a.gz; tar czf a.tgz a.txt b.txt; python3 -m zipfile -c a.zip a.txt"
    subprocess.run(["sh", "-c", packed], cwd=place, check=True)
    for folder, names in ((place / "sub", ["c"]), (place, ["a.txt", "b.txt"])):
        _git(folder, "init", "-q")
        _git(folder, "add", *names)
        _git(folder, "commit", "-qm", "first")
    (place / "a.txt").write_text("x 1\nz 3\n")
    _git(place, "commit", "-qam", "second")


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True)


def _has(tier: str) -> bool:
    try:
        return str(find_tier(tier)) == tier
    except Exception:
        return False
