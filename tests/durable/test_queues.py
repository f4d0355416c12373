"""Queues keep their limits over all workers, nobody waits behind another's backlog, and the urgent goes first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.durable.engine.queues import TURNS_PER_PRIORITY, QueueLimits, compute_priority, count_queued, list_limits
from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun
from tests.durable.fleet import Fleet, fleet_of, until
from tests.durable.working import engine_of


@pytest.fixture
def starter(store: RunStore) -> Iterator[Starter]:
    starter = Starter(store)
    starter.prepare_engine()
    yield starter
    starter.close()


def queue(store: RunStore, starter: Starter, *names: str, tenant: str = "", **new: object) -> None:
    for name in names:
        starter.start(store.create(NewRun(id=name, tenant=tenant, version="1", **new)))  # type: ignore[arg-type]


def turn(store: RunStore, tenant: str, *, priority: int = 0, begun: bool = False) -> int:
    return store.database.read(
        lambda connection: compute_priority(connection, queue="default", tenant=tenant, priority=priority, begun=begun)
    )


def test_the_first_run_of_a_tenant_stands_beside_the_next_of_one_with_a_long_backlog(
    store: RunStore, starter: Starter
) -> None:
    queue(store, starter, *(f"a{number}" for number in range(20)), tenant="a")
    first = turn(store, "b")
    assert first == turn(store, "a") - 20
    queue(store, starter, "b0", tenant="b")
    assert turn(store, "b") == first + 1  # and then they alternate


def test_a_run_that_already_began_stands_at_the_head(store: RunStore, starter: Starter) -> None:
    queue(store, starter, *(f"a{number}" for number in range(5)), tenant="a")
    assert turn(store, "a", begun=True) == turn(store, "b")


def test_a_higher_priority_goes_before_every_lower_one(store: RunStore, starter: Starter) -> None:
    queue(store, starter, "a0", tenant="a", priority=1)
    assert (
        turn(store, "b", priority=2) < turn(store, "a", priority=1) < turn(store, "b") < turn(store, "b", priority=-1)
    )
    assert turn(store, "b", priority=99) == turn(store, "b", priority=10) >= 1  # what the engine can hold
    assert turn(store, "b", priority=-99) < 21 * TURNS_PER_PRIORITY < 2**31


def test_the_same_segment_is_queued_once(store: RunStore, starter: Starter) -> None:
    queue(store, starter, "r", "r")
    assert count_queued(store.database) == {"default": 1}


def test_limits_are_read_as_the_configuration_has_them() -> None:
    found = QueueLimits.of("q", {"concurrency": 5, "rate": {"calls": 10, "seconds": 1.5}, "per_tenant": 2})
    assert found == QueueLimits(concurrency=5, calls=10, seconds=1.5, per_tenant=2)
    assert QueueLimits.of("q", {}) == QueueLimits()


@pytest.mark.parametrize(
    "entry",
    [
        {"concurency": 5},
        {"concurrency": 0},
        {"concurrency": "5"},
        {"per_tenant": True},
        {"rate": {"calls": 5}},
        {"rate": {"calls": 5, "minutes": 1}},
        {"concurrency": 2, "per_tenant": 3},
    ],
)
def test_a_limit_that_cannot_be_is_refused_in_words(entry: dict[str, object]) -> None:
    with pytest.raises(ToolError) as refused:
        QueueLimits.of("night", entry)
    assert "night" in refused.value.message
    assert refused.value.kind is ErrorKind.CONFIG
    assert "concurrency: 50" in refused.value.suggestion


async def test_limits_that_are_given_are_set_and_others_are_left(shared_first: str) -> None:
    with RunStore(shared_first) as store:
        async with engine_of(
            shared_first,
            queues=["default", "night"],
            limits={"night": QueueLimits(concurrency=3)},
            listen=False,
        ):
            pass
        async with engine_of(
            shared_first, queues=["default", "night"], offers=["gpu"], listen=False
        ):  # knows nothing of it
            pass
        assert list_limits(store.database) == {"night": QueueLimits(concurrency=3)}
        assert list_limits(store.database, ["default"]) == {}


def first_of(fleet: Fleet, name: str) -> int:
    """How many runs began before this one."""
    order = list(dict.fromkeys(line[0] for line in fleet.lines()))
    return order.index(name)


@pytest.mark.slow
def test_a_tenant_with_a_backlog_does_not_delay_anothers_first_run(shared_first: str, tmp_path: Path) -> None:
    with fleet_of(shared_first, tmp_path) as fleet:
        for number in range(30):
            fleet.submit(f"a{number}", calls=1, tenant="a")
        fleet.submit("urgent", calls=1, tenant="a", priority=5)
        fleet.submit("b0", calls=1, tenant="b")
        fleet.worker(concurrency=2)
        fleet.over("b0", "urgent")
        assert first_of(fleet, "urgent") <= 1  # two begin at the same moment
        assert first_of(fleet, "b0") <= 4


@pytest.mark.slow
def test_a_queue_has_no_more_at_work_than_it_may_over_all_workers(database: str, tmp_path: Path) -> None:
    limits = {"default": {"concurrency": 2}}
    with fleet_of(database, tmp_path) as fleet:
        fleet.worker(limits=limits)
        fleet.worker(limits=limits)
        names = [fleet.submit(f"r{number}", calls=1, seconds=0.2) for number in range(6)]
        fleet.over(*names)
        assert most_at_work(fleet) == 2


@pytest.mark.slow
def test_a_tenant_has_no_more_at_work_than_it_may(database: str, tmp_path: Path) -> None:
    with fleet_of(database, tmp_path) as fleet:
        fleet.worker(limits={"default": {"per_tenant": 1}})
        mine = [fleet.submit(f"a{number}", calls=1, seconds=0.2, tenant="a") for number in range(3)]
        fleet.submit("b0", calls=1, seconds=0.2, tenant="b")
        fleet.over(*mine, "b0")
        assert most_at_work(fleet, "a") == 1
        assert first_of(fleet, "b0") <= 1


@pytest.mark.slow
def test_a_queue_begins_no_more_than_its_rate(database: str, tmp_path: Path) -> None:
    with fleet_of(database, tmp_path) as fleet:
        names = [fleet.submit(f"r{number}", calls=1) for number in range(6)]
        fleet.worker(limits={"default": {"rate": {"calls": 2, "seconds": 2}}})
        until(fleet.lines, "the first to begin")
        started = time.monotonic()
        fleet.over(*names)
        assert time.monotonic() - started > 2.0  # two at once, two after two seconds, two after four


def most_at_work(fleet: Fleet, tenant: str = "") -> int:
    now = most = 0
    for line in fleet.lines():
        if line[0].startswith(tenant):
            now += -1 if line[-1] == "done" else 1
            most = max(most, now)
    return most
