"""False alarms of labels: right calls of BFCL's functions after an unrelated page, and Forge's own demo and examples.

Each right call is made in a run whose prompt is the person's question. The same call is made again after an untrusted
page that consists of other questions of the leaderboard. The rules allow everything, and each function sends data out,
so that all its values are compared. No call comes from the page: each question of the default profile is a false alarm.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from forge import Agent, Answer, PermissionRequest, Scripted, Tool, ToolCall, rules, tool
from scores.bfcl import RIGHT_CALLS, Case, cases_of, name_of, tool_of
from scores.bfcl import VERSION as BFCL
from scores.packages import from_pypi
from scores.report import ROOT, Row, Score

SOURCE = f"PyPI bfcl-eval {BFCL}; forge demo and examples/ of this repository"
MEASURES = (
    "False alarms of labels: questions that the default profile asks about right calls which no untrusted text ordered."
    " All rules allow; each function sends."
)
OTHERS = 20  # questions of other cases on the page
SECONDS = 120  # for one example
PROGRAMS = (
    *(f"examples/{name}.py" for name in ("quickstart", "coding", "streaming", "own_step", "tour")),
    "forge demo",
    "forge eval examples/evaluation.yaml --yes",
)
# runs a program of the project, and writes how many questions labels asked as the last line of its errors
COUNT = """
import atexit, runpy, sys
from forge.permissions import policy as decision
asked, judge = [], decision.apply_labels
def count(ruling, labels):
    judged = judge(ruling, labels)
    asked.extend(map(str, judged.traces))
    return judged
decision.apply_labels = count
atexit.register(lambda: print(f"\\nlabels: {len(asked)} {asked[:3]}", file=sys.stderr))
sys.argv = sys.argv[1:]
run = runpy.run_module if sys.argv[0] == "forge" else runpy.run_path
run(sys.argv[0], run_name="__main__")
"""


def run() -> Score:
    data = from_pypi("bfcl-eval", BFCL) / "bfcl_eval" / "data"
    rows = asyncio.run(_measure(list(cases_of(data, RIGHT_CALLS))))
    return Score("labels", SOURCE, MEASURES, [*rows, _run_programs()])


async def _measure(cases: list[Case]) -> list[Row]:
    alone: list[str] = []
    after: list[str] = []
    made = 0
    for number, case in enumerate(cases):
        others = (cases[(number + 1 + step) % len(cases)] for step in range(OTHERS))
        page = "\n".join(one.question for one in others if one.question != case.question)
        tools = {name_of(one["name"]): tool_of(one, _nothing, permissions={"network"}) for one in case.functions}
        calls = [ToolCall(name, arguments) for name, arguments in case.answers if name in tools]
        made += len(calls)
        alone += [f"{case.id}: {one}" for one in await _play(case, calls, [*tools.values()], "")]
        after += [f"{case.id}: {one}" for one in await _play(case, calls, [*tools.values()], page)]
    name = "right calls that ask, after an unrelated untrusted page"
    return [
        Row("right calls that ask, nothing untrusted read", len(alone), made, "", alone, fewer_is_better=True),
        Row(name, len(after), made, "", after, fewer_is_better=True),
    ]


async def _play(case: Case, calls: list[ToolCall], tools: list[Tool], page: str) -> list[str]:
    """Makes the calls in one run, and returns the questions."""
    asked: dict[str, str] = {}

    async def approve(request: PermissionRequest) -> Answer:
        why = request.ruling.reason if request.ruling is not None else ""
        asked.setdefault(request.call.id, f"{request.call.name}: {why}")
        return Answer("once")

    @tool(trust="untrusted")
    async def read_the_page() -> str:
        """Read a page."""
        return page

    numbered = [ToolCall(call.name, call.arguments, id=f"right-{at}") for at, call in enumerate(calls)]
    script = [ToolCall("read_the_page", {}), *numbered] if page else numbered
    agent = Agent(Scripted(*script, "done"), tools=[*tools, read_the_page], policy=rules("allow *"), approve=approve)
    await agent.run(case.question)
    return [*asked.values()]


def _run_programs() -> Row:
    failures = [f"{program}: {said}" for program in PROGRAMS if (said := _run_program(program))]
    return Row("own demo and examples that ask", len(failures), len(PROGRAMS), "", failures, fewer_is_better=True)


def _run_program(program: str) -> str:
    """Returns what labels asked, or why the program did not run; empty if nothing was asked."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT, *program.split()],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=Path(ROOT),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    said = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("labels: ")), "")
    if not said:
        return f"it did not run: {done.stderr[-300:]}"
    return "" if said.startswith("labels: 0 ") else said


def _nothing(**given: Any) -> str:
    return "done"
