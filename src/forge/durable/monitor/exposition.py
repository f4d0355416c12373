"""Writes metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from forge.durable.monitor.counters import LONGEST_LABEL, MOST_LABELS, OTHER, Counters, Histogram
from forge.durable.monitor.load import Load, QueueLoad

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
    words = "Answers of tools that were asked whether a call of a lost worker took effect."
    yield _metric("forge_calls_reconciled_total", "counter", words, answers)
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
