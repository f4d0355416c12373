"""How soon an idle worker begins what was submitted or answered: `python -m benchmarks.durable_latency`."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time

from benchmarks.durable_processes import databases, read_moment, say, start_process
from benchmarks.timing import Measure
from forge.durable.client import Runs
from forge.permissions.questions import Answer

TIMES = 40  # of each kind
LONGEST = 0.15  # seconds, for 19 of 20


def latency(database: str, url: str) -> list[Measure]:
    """From before the call of `submit` or `answer` here to the beginning of the segment in another process."""
    started: list[float] = []
    resumed: list[float] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        Runs(url) as runs,
        start_process(url, directory, "--tell", "--idle") as worker,
    ):
        say(worker, "go")
        for number in range(TIMES + 2):  # the first two also connect and compile their statements
            moment = time.time()
            run = runs.submit("sign 1", version="0", run_id=f"latency-{number}-{moment}")
            started.append(_begun(worker, moment))
            _await_question(runs, run.id)
            moment = time.time()
            runs.answer(run.id, Answer.ONCE)
            resumed.append(_begun(worker, moment))
            runs.wait(run.id, 60)
    return [
        *_spread(f"durable, {database}: submitted to begun on an idle worker", started[2:]),
        *_spread(f"durable, {database}: answered to begun on an idle worker", resumed[2:]),
    ]


def _begun(worker: subprocess.Popen[str], since: float) -> float:
    return read_moment(worker, "begun") - since


def _await_question(runs: Runs, run_id: str) -> None:
    until = time.monotonic() + 60
    while runs.get(run_id).status != "waiting":
        assert time.monotonic() < until, "the run did not ask"
        time.sleep(0.01)


def _spread(label: str, seconds: list[float]) -> list[Measure]:
    p95 = statistics.quantiles(seconds, n=20)[-1]
    return [
        Measure(f"{label}, median", "", 0.0, statistics.median(seconds) * 1e3, "ms", None, absolute=True),
        Measure(f"{label}, 95th percentile", "", 0.0, p95 * 1e3, "ms", LONGEST * 1e3, absolute=True),
    ]


if __name__ == "__main__":
    with databases() as urls:
        for name, url in urls.items():
            for measure in latency(name, url):
                print(f"{measure.ours:8.1f} {measure.unit}  {measure.name}", flush=True)
