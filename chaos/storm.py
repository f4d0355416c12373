"""The chaos itself: runs are submitted, signatures answered, workers killed and paused, until all runs are over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from chaos.fleet import Fleet
from chaos.orders import REFUSED, Turns, orders, prompt
from chaos.taken import Takeovers
from chaos.verdict import Verdict
from forge.core.errors import ToolError
from forge.durable.client import Runs
from forge.permissions.questions import Answer

LOOK = 0.1  # seconds between two looks
LONGEST = 60.0  # seconds until a dead worker's run is in its queue again: 30 as documented, and room for a busy machine
PATIENCE = 180.0  # seconds for what is left when the killing is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What shall happen. `blow`: seconds between two blows, on average; every fourth is a pause."""

    seed: int
    runs: int = 200
    calls: int = 5
    seconds: float = 60.0
    workers: int = 3
    blow: float = 3.0
    pauses: float = 0.25
    silent: float = 10.0
    concurrency: int = 10
    longest: float = 0.8  # seconds that a call takes


@dataclass(slots=True)
class Report:
    """What did happen."""

    plan: Plan
    kills: int = 0
    pauses: int = 0
    lost: int = 0  # segments whose worker was taken from them
    signed: int = 0
    seconds: float = 0.0
    takeovers: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    calls: int = 0
    happened: int = 0
    looks: int = 0
    unknown: int = 0
    problems: list[str] = field(default_factory=list)

    def figures(self) -> str:
        return f"""\
{self.plan.runs} runs, {self.calls} calls, {self.plan.workers} workers, {self.seconds:.0f} s
{self.kills} kills, {self.pauses} pauses, {self.lost} segments lost their worker, {len(self.takeovers)} were taken over
seconds until they were back in their queues {_spread(self.queued)}, until another worker went on \
{_spread(self.takeovers)}
{self.happened} things happened once, {self.unknown} calls of unknown state, {self.signed} answers given, \
{self.looks} looks"""


def _spread(seconds: list[float]) -> str:
    found = sorted(seconds)
    return f"{found[len(found) // 2]:.1f} (slowest {found[-1]:.1f})" if found else "-"


def storm(database: str, place: Path, plan: Plan, say: Callable[[str], None]) -> Report:
    asked = orders(plan.seed, plan.runs, plan.calls, plan.longest)
    report = Report(plan)
    settings = {"silent": plan.silent, "every": plan.silent / 5, "concurrency": plan.concurrency}
    started = time.monotonic()
    with Runs(database) as runs:
        runs.store.prepare()
        with Fleet(database, place, plan.workers, settings) as fleet:
            ended = threading.Event()
            others = [
                threading.Thread(target=_submit, args=(runs, asked, plan, ended)),
                threading.Thread(target=_answer, args=(database, report, ended)),
            ]
            for thread in others:
                thread.start()
            try:
                _blow(fleet, runs, report, say)
                _await(fleet, runs, report, asked, say)
            finally:
                ended.set()
                for thread in others:
                    thread.join()
        report.seconds = time.monotonic() - started
        _judge(report, Verdict(runs.store, asked, place))
    return report


def _submit(runs: Runs, asked: dict[str, Turns], plan: Plan, ended: threading.Event) -> None:
    """A third at once, the rest bit by bit until shortly before the killing ends."""
    pause = plan.seconds * 0.8 / len(asked) * 1.5
    for number, (run_id, turns) in enumerate(asked.items()):
        runs.submit(prompt(turns), run_id=run_id, version="1", tenant=f"t{number % 4}")
        if number > len(asked) / 3 and ended.wait(pause):
            return


def _answer(database: str, report: Report, ended: threading.Event) -> None:
    with Runs(database) as runs:
        while not ended.wait(0.3):
            for question in runs.questions():
                name = str(question.request["arguments"]["name"])
                refused = sum(name.encode()) % REFUSED == 0
                try:
                    runs.answer(
                        question.run, Answer.no("not this") if refused else Answer.ONCE, question.id, by="thread"
                    )
                    report.signed += 1
                except ToolError:  # its run went on meanwhile
                    pass


def _blow(fleet: Fleet, runs: Runs, report: Report, say: Callable[[str], None]) -> None:
    plan = report.plan
    chance = Random(plan.seed + 1)
    taken = Takeovers(fleet.store.database)
    ends = time.monotonic() + plan.seconds
    next_blow = time.monotonic() + plan.blow
    # on a busy machine the workers may need all the time to start: there is one blow at least
    while time.monotonic() < ends or (not report.kills + report.pauses and time.monotonic() < ends + PATIENCE):
        time.sleep(LOOK)
        fleet.go_on()
        report.problems += fleet.mend()
        taken.look()
        if time.monotonic() < next_blow:
            continue
        ready = [slot for slot, process in enumerate(fleet.slots) if process.is_ready and process.until is None]
        exposed = _exposed(fleet, ready, plan) if ready else []
        if not exposed:
            continue
        slot = chance.choice(exposed)
        next_blow = time.monotonic() + chance.uniform(0.5, 1.5) * plan.blow
        ids = [one.id for one in fleet.listed() if one.pid == fleet.slots[slot].pid and not one.gone]
        if chance.random() < plan.pauses and len(ready) > 1:
            fleet.slots[slot].pause(plan.silent * chance.uniform(1.3, 1.8))
            report.pauses += 1
        else:
            fleet.kill(slot)
            report.kills += 1
        report.lost += sum(taken.lost(worker) for worker in ids)
        counts = runs.store.counts()
        say(f"{ends - time.monotonic():3.0f} s left: {counts}, {report.kills} kills, {report.pauses} pauses")
    report.takeovers, report.queued, ends = taken.seconds, taken.queued, time.monotonic()
    while taken.open and time.monotonic() < ends + PATIENCE:
        time.sleep(LOOK)
        fleet.go_on()
        report.problems += fleet.mend()
        taken.look()
    for segment, (worker, since) in taken.open.items():
        report.problems.append(f"{segment} of {worker} was not taken over in {time.monotonic() - since:.0f} s")


def _exposed(fleet: Fleet, ready: list[int], plan: Plan) -> list[int]:
    """Whom a blow may strike: the oldest only after a while, for the silence of a dead worker is judged by those who
    heard it for as long. Were nobody to live so long, nobody could tell it from a database that was away."""
    oldest = min(ready, key=lambda slot: fleet.slots[slot].started)
    age = time.monotonic() - fleet.slots[oldest].started
    return ready if age > 2 * plan.silent else [slot for slot in ready if slot != oldest]


def _await(fleet: Fleet, runs: Runs, report: Report, asked: dict[str, Turns], say: Callable[[str], None]) -> None:
    """All runs over, and everybody who was paused back at work: who did something twice has done it by then."""
    fleet.go_on(all_of_them=True)
    until = time.monotonic() + PATIENCE
    spoken = 0.0
    while time.monotonic() < until:
        report.problems += fleet.mend()
        counts = runs.store.counts()
        open_ones = sum(count for status, count in counts.items() if status in ("queued", "running", "waiting"))
        alive = sum(one.state == "working" for one in fleet.listed())
        if (
            not open_ones
            and len(runs.list(parent="", limit=len(asked) + 1)) == len(asked)
            and alive == len(fleet.slots)
        ):
            return
        if time.monotonic() - spoken > 5:
            say(f"killing is over: {counts}, {alive} workers")
            spoken = time.monotonic()
        time.sleep(LOOK)
    report.problems.append(f"after {PATIENCE:.0f} s more: {runs.store.counts()}, workers {fleet.listed()}")


def _judge(report: Report, verdict: Verdict) -> None:
    report.problems += verdict.problems
    report.calls, report.unknown = verdict.calls, len(verdict.unknown)
    report.happened, report.looks = len(verdict.written), verdict.looks
    slow = [seconds for seconds in report.queued if seconds > LONGEST]
    if slow:
        report.problems.append(
            f"{len(slow)} segments were not back in their queues within {LONGEST:.0f} s: {max(slow):.1f} s"
        )
