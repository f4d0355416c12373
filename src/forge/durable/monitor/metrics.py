"""Counts what a worker does, reads the load of its database, and writes both in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

import sqlalchemy as sa

from forge.durable.store import RunStore
from forge.durable.store.carried import CarriedState
from forge.durable.store.find import now
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.rows import Outcome, RunInfo
from forge.durable.store.tables import runs

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """The state of a worker, as its own process knows it."""

    version: str
    queues: Sequence[str]
    is_ready: bool
    is_draining: bool
    running: int
    concurrency: int
    heartbeat_age: float
    loop_lag: float


def render_metrics(state: WorkerState, counters: Counters, load: Load | None) -> str:
    """Returns all metrics. `load` is None while the database cannot be read: its metrics are then absent."""
    return "".join([*_worker_metrics(state), *_counter_metrics(counters), *_load_metrics(state, load)])


def _worker_metrics(state: WorkerState) -> Iterable[str]:
    yield _metric("forge_worker_info", "gauge", "The worker, with its version.", [({"version": state.version}, 1)])
    yield _metric("forge_worker_ready", "gauge", "1 if the worker takes runs.", [({}, state.is_ready)])
    yield _metric("forge_worker_draining", "gauge", "1 while the worker drains.", [({}, state.is_draining)])
    yield _metric("forge_worker_runs", "gauge", "Runs that the worker works on.", [({}, state.running)])
    yield _metric("forge_worker_concurrency", "gauge", "Most runs at a time.", [({}, state.concurrency)])
    yield _metric(
        "forge_worker_heartbeat_age_seconds", "gauge", "Time since the last heartbeat.", [({}, state.heartbeat_age)]
    )
    yield _metric(
        "forge_worker_loop_lag_seconds", "gauge", "Longest delay of the event loop in 15 s.", [({}, state.loop_lag)]
    )


def _counter_metrics(counters: Counters) -> Iterable[str]:
    steps = [({"kind": "turn"}, counters.turns), ({"kind": "call"}, counters.calls)]
    yield _metric("forge_steps_total", "counter", "Recorded steps: turns of models and calls.", steps)
    yield _metric("forge_calls_unknown_total", "counter", "Calls whose state is unknown.", [({}, counters.unknown)])
    answers = [({"state": state}, counters.reconciled[state]) for state in ("done", "not_done", "unknown")]
    message = "Answers of tools that were asked whether a call of a lost worker took effect."
    yield _metric("forge_calls_reconciled_total", "counter", message, answers)
    yield _metric(
        "forge_takeovers_total", "counter", "Lost workers whose runs it took over.", [({}, counters.lost_workers)]
    )
    yield _metric(
        "forge_takeover_segments_total", "counter", "Segments that it queued again then.", [({}, counters.requeued)]
    )
    ended = [({"outcome": outcome}, count) for outcome, count in sorted(counters.segments.items())]
    yield _metric("forge_segments_total", "counter", "Segments that ended, by outcome.", ended)
    tokens = [
        ({"agent": agent, "tenant": tenant, "kind": kind}, count)
        for (agent, tenant, kind), count in sorted(counters.tokens.items())
    ]
    yield _metric("forge_tokens_total", "counter", "Tokens, by agent and tenant.", tokens)
    cost = [({"agent": agent, "tenant": tenant}, value) for (agent, tenant), value in sorted(counters.cost.items())]
    yield _metric("forge_cost_total", "counter", "Cost, in the currency of the price.", cost)
    failed = [({"agent": agent}, count) for agent, count in sorted(counters.failed.items())]
    yield _metric("forge_runs_failed_total", "counter", "Runs that failed, by agent.", failed)
    yield _histogram("forge_turn_seconds", "Time of a turn of a model.", [({}, counters.turn_seconds)])
    yield _histogram("forge_call_seconds", "Time of a call.", [({}, counters.call_seconds)])
    waits = [({"queue": queue}, one) for queue, one in sorted(counters.queue_seconds.items())]
    yield _histogram("forge_queue_seconds", "Time that a segment was queued.", waits)


def _load_metrics(state: WorkerState, load: Load | None) -> Iterable[str]:
    yield _metric("forge_database_up", "gauge", "1 if the database could be read.", [({}, load is not None)])
    if load is None:
        return
    queues = _bound({**dict.fromkeys(state.queues, QueueLoad()), **load.queues})
    lengths = [({"queue": name}, one.length) for name, one in queues.items()]
    yield _metric("forge_queue_length", "gauge", "Queued runs.", lengths)
    ages = [({"queue": name}, one.age) for name, one in queues.items()]
    yield _metric("forge_queue_age_seconds", "gauge", "Age of the oldest queued run.", ages)
    yield _metric("forge_runs", "gauge", "Runs that are not over.", [({"status": k}, v) for k, v in load.runs.items()])
    yield _metric(
        "forge_resume_lag_seconds", "gauge", "Time since a run should have been resumed.", [({}, load.due_age)]
    )
    yield _metric("forge_approvals_open", "gauge", "Approvals that runs wait for.", [({}, load.approvals)])
    states = [({"state": name}, count) for name, count in load.workers.items()]
    yield _metric("forge_workers", "gauge", "Workers of the database.", states)
    yield _metric(
        "forge_runs_unattended", "gauge", "Queued runs that no running worker takes.", [({}, load.unattended)]
    )


def _bound(queues: Mapping[str, QueueLoad]) -> dict[str, QueueLoad]:
    """Returns the queues by name; the shorter ones of too many become one."""
    names = sorted(queues, key=lambda name: (-queues[name].length, name))
    kept = {name: queues[name] for name in names[:MOST_LABELS]}
    if rest := [queues[name] for name in names[MOST_LABELS:]]:
        kept[OTHER] = QueueLoad(length=sum(one.length for one in rest), age=max(one.age for one in rest))
    return kept


def _metric(name: str, kind: Literal["gauge", "counter"], text: str, samples: Samples) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return "\n".join([*lines, *(_sample(name, labels, value) for labels, value in samples), ""])


def _histogram(name: str, text: str, found: Iterable[tuple[Labels, Histogram]]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    for labels, one in found:
        counts = list(accumulate(one.counts))
        bounds = [*(f"{bound:g}" for bound in one.bounds), "+Inf"]
        lines += [
            _sample(f"{name}_bucket", {**labels, "le": bound}, count)
            for bound, count in zip(bounds, counts, strict=True)
        ]
        lines += [_sample(f"{name}_sum", labels, one.sum), _sample(f"{name}_count", labels, counts[-1])]
    return "\n".join([*lines, ""])


def _sample(name: str, labels: Labels, value: float) -> str:
    said = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{said}}} {_number(value)}" if said else f"{name} {_number(value)}"


def _escape(text: str) -> str:
    plain = "".join(one if one.isprintable() or one == "\n" else "?" for one in text[:LONGEST_LABEL])
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}" if value < 1e6 else repr(float(value))


# Counts what a worker does: steps, take-overs, tokens and cost. The numbers are of this process, since its start.


MOST_LABELS = 100  # pairs of agent and tenant; further ones are counted as "other"
LONGEST_LABEL = 80  # characters
OTHER = "other"

Payer = tuple[str, str]  # agent and tenant


# upper bounds in seconds; Prometheus adds one without a bound
TURNS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
CALLS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
WAITS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0)


class Histogram:
    """Counts durations by upper bounds, as Prometheus reads them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)  # of each bound alone; the last has no bound
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


@dataclass(slots=True, eq=False)
class Counters:
    """The counters of a worker; they survive its coming back under a new id. Used on the worker's loop only."""

    turns: int = 0  # answers of models that were recorded
    calls: int = 0  # results of calls that were recorded
    unknown: int = 0  # calls that an earlier attempt may have run
    reconciled: Counter[str] = field(default_factory=Counter)  # answers of tools about such calls, by state
    lost_workers: int = 0  # workers whose runs this one took over
    requeued: int = 0  # their segments
    segments: Counter[str] = field(default_factory=Counter)  # by outcome
    tokens: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by agent, tenant and kind
    cost: dict[Payer, float] = field(default_factory=dict)
    payers: set[Payer] = field(default_factory=set)
    failed: Counter[str] = field(default_factory=Counter)  # runs that failed here, by agent
    turn_seconds: Histogram = field(default_factory=lambda: Histogram(TURNS))
    call_seconds: Histogram = field(default_factory=lambda: Histogram(CALLS))
    queue_seconds: dict[str, Histogram] = field(default_factory=dict)  # by queue

    def add_wait(self, queue: str, seconds: float) -> None:
        """Adds the time that a segment was queued."""
        self.queue_seconds.setdefault(queue, Histogram(WAITS)).add(max(0.0, seconds))

    def add_failure(self, agent: str) -> None:
        """Adds a run that failed."""
        name = agent[:LONGEST_LABEL]
        self.failed[name if name in self.failed or len(self.failed) < MOST_LABELS else OTHER] += 1

    def add_segment(self, run: RunInfo, outcome: Outcome) -> None:
        """Adds a segment and what it cost. The usage of a sub-run is part of its parent's, so it is not added again."""
        self.segments[outcome.status] += 1
        if outcome.status == "failed":
            self.add_failure(run.agent)
        if run.parent or outcome.spent == run.spent:  # it used nothing, or its state could not be read
            return
        before, after = CarriedState.read(run.spent), CarriedState.read(outcome.spent)
        payer = self._payer_of(run)
        used = after.used.usage.minus(before.used.usage)
        for kind, tokens in ("input", used.input), ("output", used.output):
            self.tokens[(*payer, kind)] += max(0, tokens)
        if after.cost is not None:
            self.cost[payer] = self.cost.get(payer, 0.0) + max(0.0, after.cost - (before.cost or 0.0))

    def _payer_of(self, run: RunInfo) -> Payer:
        payer = (run.agent[:LONGEST_LABEL], run.tenant[:LONGEST_LABEL])
        if payer not in self.payers and len(self.payers) >= MOST_LABELS:
            return OTHER, OTHER
        self.payers.add(payer)
        return payer


# Reads the load of a database: queues and their age, open runs, open approvals, workers. Ended runs are not read.


_OPEN = ("queued", "running", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """The queued runs of a queue, and the age of the oldest in seconds."""

    length: int = 0
    age: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of a database at one moment."""

    queues: Mapping[str, QueueLoad] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)  # by status; those that are not over
    due_age: float = 0.0  # seconds since the oldest wait ended whose run was not resumed
    approvals: int = 0
    workers: Mapping[str, int] = field(default_factory=dict)  # by state; those that left are not counted
    unattended: int = 0  # queued runs that no running worker takes


def read_load(store: RunStore) -> Load:
    """Reads the load, in a few queries that use indexes. Raises `StoreError`."""
    queued, counts, due = store.database.read(_read_runs)
    workers = [one for one in list_workers(store.database) if not one.gone]
    queues: dict[str, QueueLoad] = {}
    for (_, queue, _), one in queued.items():
        before = queues.get(queue, QueueLoad())
        queues[queue] = QueueLoad(length=before.length + one.length, age=max(before.age, one.age))
    states = [one.state for one in workers]
    return Load(
        queues=queues,
        runs={status: counts.get(status, 0) for status in _OPEN},
        due_age=due,
        approvals=store.count_questions(),
        workers={state: states.count(state) for state in ("working", "draining", "silent")},
        unattended=sum(
            one.length for kind, one in queued.items() if not any(worker.takes(*kind) for worker in workers)
        ),
    )


def _read_runs(connection: sa.Connection) -> tuple[dict[tuple[str, str, str], QueueLoad], dict[str, int], float]:
    c, clock = runs.c, now(connection)
    queued = connection.execute(
        sa.select(c.version, c.queue, c.agent, sa.func.count(), clock - sa.func.min(c.updated))
        .where(c.status == "queued")
        .group_by(c.version, c.queue, c.agent)
    )
    found = {(row[0], row[1], row[2]): QueueLoad(length=row[3], age=_seconds(row[4])) for row in queued}
    counted = sa.select(c.status, sa.func.count()).where(c.status.in_(_OPEN)).group_by(c.status)
    counts = {row[0]: row[1] for row in connection.execute(counted)}
    due = sa.select(clock - sa.func.min(c.look)).where(c.status == "waiting", c.look <= clock)
    return found, counts, _seconds(connection.execute(due).scalar())


def _seconds(value: Any) -> float:
    return max(0.0, float(value or 0.0))
