"""What a day of runs asks of Postgres: `python -m scripts.scale [--measure]` writes the tables of docs/scale.md.

Without `--measure` the costs are those that were measured when the page was written; with it they are measured now, on
a Postgres of its own (two minutes), or on a fresh database of yours with `--database URL`.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Iterator
from dataclasses import astuple, replace

from scripts.scale.log_parts import log_table
from scripts.scale.measured import Cost, Measured, measured, server
from scripts.scale.processes import process_table
from scripts.scale.simulated import DAY, Day, Load, simulated

KNOWN = Measured(  # 2026-11-16, Postgres 16
    step=Cost(1.0, 1.0, 6_400, 3.5, 5_700),
    run=Cost(44, 8.7, 1_600, 6.5, 11_000),
    idle=Cost(13.5, 4.8, 180, 0, 0),  # this one and the next two: 2026-11-18
    busy=Cost(22, 13.4, 160, 0, 0),
    round=Cost(8.6, 8.6, 0, 0, 0),
    connections=7,
)
SHARE = 5  # rounds of housekeeping a second, however many workers there are
RESULT = 2_000  # bytes of a tool's answer
CAPACITY = 20_000  # transactions a second of one Postgres: an assumption, for short ones on 16 cores and fast disks
LARGE = 100  # runs at a time, on a worker that has room
SERVERS = 200  # connections that one Postgres should have at work; what is more waits in a pooler


def main() -> None:
    asked = _asked()
    if asked.processes or asked.log:
        for line in process_table(asked.processes) if asked.processes else log_table():
            print(line, flush=True)
        return
    costs = KNOWN
    if asked.database:
        costs = asyncio.run(measured(asked.database, RESULT))
    elif asked.measure:
        with server() as url:
            costs = asyncio.run(measured(url, RESULT))
    load = Load(runs=asked.runs, workers=asked.workers, concurrency=asked.concurrency)
    for line in (*cost_table(costs), "", *day_table(load, costs)):
        print(line)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure the costs now, on a Postgres of its own")
    parser.add_argument("--database", default="", help="measure them on this fresh Postgres database")
    parser.add_argument("--log", action="store_true", help="measure of what the write-ahead log of a step consists")
    parser.add_argument("--processes", type=int, nargs="+", help="measure `forge worker --processes N` for each N")
    parser.add_argument("--runs", type=int, default=1_000_000, help="a day")
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=10, help="runs at a time on one worker")
    return parser.parse_args()


def cost_table(costs: Measured) -> Iterator[str]:
    yield "| what | statements | transactions | write-ahead log, bytes | rows | stored, bytes |"
    yield "|---|---|---|---|---|---|"
    for name, cost in {
        "a step": costs.step,
        "a run, without its steps": costs.run,
        "an idle worker, per second": costs.idle,
        "an active worker, per second, without the steps": costs.busy,
        "a round of housekeeping": costs.round,
    }.items():
        statements, transactions, log, rows, stored = astuple(cost)
        yield f"| {name} | {statements:.1f} | {transactions:.1f} | {log:,.0f} | {rows:.1f} | {stored:,.0f} |"


def day_table(load: Load, costs: Measured) -> Iterator[str]:
    """The fleet that was asked for, and two with twice the places that are needed: small workers, and large ones."""
    day = simulated(load)
    sizes = (load.concurrency, LARGE)
    fleets = [load, *(replace(load, workers=math.ceil(2 * day.most_at_work / one), concurrency=one) for one in sizes)]
    heads = [f"{one.workers:,} workers, {one.concurrency} runs each" for one in fleets]
    yield f"| {' | '.join([f'{load.runs:,} runs a day, {load.steps:.0f} steps each', *heads])} |"
    yield f"|{'---|' * (len(fleets) + 1)}"
    columns = [dict(_figures(one, day, costs)) for one in fleets]
    for name in columns[0]:
        yield f"| {' | '.join([name, *(column[name] for column in columns)])} |"


def _figures(load: Load, day: Day, costs: Measured) -> Iterator[tuple[str, str]]:
    per_run = costs.run + costs.step * load.steps
    busy = min(load.workers, day.most_at_work)  # each run on a worker of its own, where there are enough of them
    most = per_run * day.most_runs + _workers(costs, busy, load.workers - busy)
    quiet = min(load.workers, round(day.mean_at_work))
    mean = per_run * (load.runs / DAY) + _workers(costs, quiet, load.workers - quiet)
    stored = per_run * load.runs
    yield "run slots", f"{load.workers * load.concurrency:,}"
    yield "… used at the peak", f"{day.most_at_work:,}"
    yield "runs a second, mean and peak", f"{load.runs / DAY:.1f}, {day.most_runs:.1f}"
    yield "steps a second, mean and peak", f"{load.runs / DAY * load.steps:,.0f}, {day.most_runs * load.steps:,.0f}"
    yield "transactions a second, mean and peak", f"{mean.transactions:,.0f}, {most.transactions:,.0f}"
    yield "… needed by the runs, at the peak", f"{(per_run * day.most_runs).transactions:,.0f}"
    yield "statements a second, mean and peak", f"{mean.statements:,.0f}, {most.statements:,.0f}"
    yield "write-ahead log, GB a day", f"{mean.log * DAY / 1e9:,.0f}"
    yield "rows a day", f"{stored.rows / 1e6:,.0f} million"
    yield "stored, GB a day", f"{stored.stored / 1e9:,.0f}"
    yield "connections of the workers, at rest", f"{load.workers * costs.connections:,}"
    yield "databases needed for the transactions", f"{math.ceil(most.transactions / CAPACITY)}"
    yield "connections from the poolers to these databases", f"{math.ceil(most.transactions / CAPACITY) * SERVERS:,}"


def _workers(costs: Measured, busy: float, idle: float) -> Cost:
    return costs.busy * busy + costs.idle * idle + costs.round * min(SHARE, busy + idle)


if __name__ == "__main__":
    main()
