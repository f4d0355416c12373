"""A worker serves probes and metrics: what they say is what is in the database and what it did."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forge import Agent, DurableAgent, Limits, Price, ToolCall, ToolError, Usage, WorkerSettings, tool
from forge.core.messages import Message
from forge.durable.engine.reconcile import unknown_result
from forge.durable.monitor import health
from forge.durable.monitor.health import ServedAddress
from forge.durable.monitor.metrics import MOST_LABELS, Counters, Load, QueueLoad, WorkerState, read_load, render_metrics
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, Outcome
from forge.durable.worker import Worker
from tests.durable.working import answered, begun, rested, script, working

Sample = tuple[str, tuple[tuple[str, str], ...]]


async def ask(worker: Worker, path: str, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, str]:
    assert worker.health is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.health.address.port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def samples(text: str) -> Mapping[Sample, float]:
    """Everything that Prometheus reads from the text, with its own parser."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in ("gauge", "counter", "histogram")
        for one in family.samples:
            found[one.name, tuple(sorted(one.labels.items()))] = one.value
    return found


def get(found: Mapping[Sample, float], name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


@tool(permissions={"write"})
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def make_agent() -> Agent:
    said = Message("assistant", "Done.", usage=Usage(input=1_000, output=500))
    return Agent(
        script(ToolCall("pay", {"amount": 5}), lambda _: said),
        tools=[pay],
        name="cashier",
        limits=Limits(price=Price(input=1_000, output=2_000)),
    )


def test_a_worker_reports_what_it_did_and_what_waits(shared_first: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(health, "FRESH", 0.0)

    async def main() -> None:
        async with working(shared_first, make_agent(), tmp_path, health="127.0.0.1:0") as worker:
            assert await ask(worker, "/healthz") == (200, "ok\n")
            assert await ask(worker, "/readyz") == (200, "ready\n")
            await begun(worker, agent="cashier", tenant='ac"me\\')
            await rested(worker)
            status, text = await ask(worker, "/metrics")
            found = samples(text)
            assert status == 200
            assert get(found, "forge_approvals_open") == 1
            assert get(found, "forge_runs", status="waiting") == 1
            assert get(found, "forge_queue_length", queue="default") == 0
            assert get(found, "forge_workers", state="working") == 1
            assert get(found, "forge_steps_total", kind="turn") == 1
            run = await answered(worker, {"kind": "once"})
            assert run.result is not None
            found = samples((await ask(worker, "/metrics"))[1])
            assert get(found, "forge_approvals_open") == 0
            assert get(found, "forge_steps_total", kind="turn") == 2
            assert get(found, "forge_turn_seconds_count") == get(found, "forge_turn_seconds_bucket", le="+Inf") == 2
            assert get(found, "forge_call_seconds_count") == 1  # not the one that waited for the approval
            assert get(found, "forge_queue_seconds_count", queue="default") == 2  # one for each segment
            assert 0 <= get(found, "forge_queue_seconds_sum", queue="default") < 120
            assert get(found, "forge_segments_total", outcome="finished") == 1
            who = {"agent": "cashier", "tenant": 'ac"me\\'}
            assert get(found, "forge_tokens_total", kind="input", **who) == run.spent["usage"]["input"] > 1_000
            assert get(found, "forge_cost_total", **who) == pytest.approx(run.result["cost"], rel=1e-4)
            assert get(found, "forge_calls_unknown_total") == 0
            assert '"r"' not in (await ask(worker, "/metrics"))[1]  # no id is a label

    asyncio.run(main())


async def test_failures_are_counted_by_agent_and_times_by_their_bounds(sqlite: str, tmp_path: Path) -> None:
    async with working(sqlite, Agent(script(), name="cashier"), tmp_path, health="127.0.0.1:0") as worker:
        await begun(worker, agent="cashier")
        assert (await rested(worker)).status == "failed"
        found = samples((await ask(worker, "/metrics"))[1])
        assert get(found, "forge_runs_failed_total", agent="cashier") == 1
    counters = Counters()
    for seconds in (0.2, 0.5, 0.6, 299.0, 1_000.0):
        counters.turn_seconds.add(seconds)
    for number in range(MOST_LABELS + 5):
        counters.add_failure(f"agent{number}")
    found = samples(render_metrics(worker.describe(0.0), counters, None))
    bounds = {"0.5": 2, "1": 3, "120": 3, "300": 4, "+Inf": 5}
    assert {bound: get(found, "forge_turn_seconds_bucket", le=bound) for bound in bounds} == bounds
    assert get(found, "forge_turn_seconds_sum") == pytest.approx(1_300.3)
    assert get(found, "forge_runs_failed_total", agent="other") == 5


def test_it_is_not_ready_while_it_drains_and_alive_until_it_ends(sqlite: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with working(sqlite, make_agent(), tmp_path, health="127.0.0.1:0") as worker:
            await worker.drain(1)
            assert await ask(worker, "/readyz") == (503, "draining\n")
            assert (await ask(worker, "/healthz"))[0] == 200
            assert get(samples((await ask(worker, "/metrics"))[1]), "forge_worker_draining") == 1

    asyncio.run(main())


def test_without_its_database_it_is_not_ready_but_alive(sqlite: str, tmp_path: Path, monkeypatch: Any) -> None:
    async def main() -> None:
        async with working(sqlite, make_agent(), tmp_path, health="127.0.0.1:0") as worker:
            assert worker.health is not None
            monkeypatch.setattr(worker.health, "_read_load", lambda: read_load(RunStore("sqlite:////nowhere/at/all")))
            monkeypatch.setattr(worker.beats, "_steady", None)  # as after a heartbeat that failed
            monkeypatch.setattr(worker.beats, "beat", lambda: True)
            assert await ask(worker, "/readyz") == (503, "no database\n")
            assert (await ask(worker, "/healthz"))[0] == 200
            found = samples((await ask(worker, "/metrics"))[1])
            assert get(found, "forge_database_up") == 0
            assert get(found, "forge_worker_ready") == 0

    asyncio.run(main())


def test_only_these_pages_are_served_and_no_name_reaches_the_loopback(sqlite: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with working(sqlite, make_agent(), tmp_path, health="0") as worker:
            assert (await ask(worker, "/"))[0] == 404
            assert (await ask(worker, "/metrics", method="POST"))[0] == 405
            assert (await ask(worker, "/metrics", method="HEAD")) == (200, "")
            assert (await ask(worker, "/metrics", host="evil.example:80"))[0] == 403
            assert (await ask(worker, "/healthz", host="localhost:9464"))[0] == 200

    asyncio.run(main())


def test_an_address_in_use_is_an_error_of_the_start_and_a_free_one_is_served(sqlite: str, tmp_path: Path) -> None:
    async def main() -> None:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        with pytest.raises(ToolError, match="cannot listen on"):
            async with DurableAgent(make_agent(), sqlite, worker=WorkerSettings(health=f"127.0.0.1:{port}")):
                pass
        taken.close()
        await taken.wait_closed()
        async with DurableAgent(make_agent(), sqlite, worker=WorkerSettings(health="127.0.0.1:0")) as durable:
            assert durable._worker is not None
            assert (await ask(durable._worker, "/readyz"))[0] == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nowhere:80",
        "127.0.0.1:",
        "127.0.0.1:70000",
        "1.2.3:80",
        "127.0.0.1:-1",
        "a",
        "127.0.0.1:5-4",
        "127.0.0.1:5-",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match="expected an IP address and a port"):
        ServedAddress.parse(text)


@pytest.mark.parametrize(
    ("text", "host", "loopback"),
    [("9464", "127.0.0.1", True), ("[::1]:9464", "::1", True), ("0.0.0.0:9464", "0.0.0.0", False)],
)
def test_what_is_an_address_is_read(text: str, host: str, loopback: bool) -> None:
    address = ServedAddress.parse(text)
    assert (address, address.is_loopback) == ((host, 9464, 0), loopback)


def test_several_workers_of_a_machine_share_a_range_of_ports(sqlite: str) -> None:
    async def main() -> None:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        try:
            async with DurableAgent(
                make_agent(), sqlite, worker=WorkerSettings(health=f"127.0.0.1:{port}-{port + 50}")
            ) as durable:
                assert durable._worker is not None
                assert durable._worker.health is not None
                assert durable._worker.health.address.port > port
        finally:
            taken.close()
            await taken.wait_closed()

    asyncio.run(main())


def test_the_load_tells_how_long_the_oldest_run_of_each_queue_waits(database: str) -> None:
    with RunStore(database) as store:
        store.prepare()
        for number in range(3):
            store.create(NewRun(id=f"r{number}", queue="night" if number else "default", version="1"))
        load = read_load(store)
        assert {name: one.length for name, one in load.queues.items()} == {"default": 1, "night": 2}
        assert all(0 <= one.age < 50 for one in load.queues.values())
        assert load.unattended == 3
        assert load.runs == {"queued": 3, "running": 0, "waiting": 0}


def test_labels_are_bounded() -> None:
    counters = Counters()
    outcome = Outcome(status="finished", messages=(), spent={"usage": {"input": 2}, "cost": 0.5})
    for number in range(MOST_LABELS + 20):
        run: Any = type("Run", (), {"agent": "a", "tenant": f"t{number}", "parent": "", "spent": {}})()
        counters.add_segment(run, outcome)
    assert len(counters.cost) == MOST_LABELS + 1
    assert counters.cost["other", "other"] == pytest.approx(10.0)
    state = WorkerState(
        version="1",
        queues=("default",),
        is_ready=True,
        is_draining=False,
        running=0,
        concurrency=1,
        heartbeat_age=0.0,
        loop_lag=0.0,
    )
    queues = {f"q{number}": QueueLoad(length=number, age=1.0) for number in range(MOST_LABELS + 5)}
    found = samples(render_metrics(state, counters, Load(queues=queues)))
    assert get(found, "forge_queue_length", queue="other") == sum(range(5))
    assert sum(name == "forge_queue_length" for name, _ in found) == MOST_LABELS + 1


def test_a_sub_run_is_not_paid_twice() -> None:
    counters = Counters()
    run: Any = type("Run", (), {"agent": "a", "tenant": "", "parent": "r", "spent": {}})()
    counters.add_segment(run, Outcome(status="finished", messages=(), spent={"usage": {"input": 2}, "cost": 0.5}))
    assert not counters.cost
    assert counters.segments["finished"] == 1


def test_an_unknown_call_says_so() -> None:
    assert unknown_result(ToolCall("pay", {})).data["state"] == "unknown"


def test_the_page_lists_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    table = {
        name
        for line in page.splitlines()
        if re.search(r"\| (gauge|counter|histogram) \|", line)
        for name in NAMES(line)
    }
    assert table == {name.removesuffix("_total") + ("_total" if kind == "counter" else "") for name, kind in exposed()}


def exposed() -> set[tuple[str, str]]:
    counters = Counters(cost={("a", "t"): 1.0})
    counters.segments["finished"] = counters.tokens["a", "t", "input"] = 1
    state = WorkerState(
        version="1",
        queues=("default",),
        is_ready=True,
        is_draining=False,
        running=0,
        concurrency=1,
        heartbeat_age=0.0,
        loop_lag=0.0,
    )
    text = render_metrics(state, counters, Load())
    return {(family.name, family.type) for family in text_string_to_metric_families(text)}


NAMES = re.compile(r"forge_\w+").findall
