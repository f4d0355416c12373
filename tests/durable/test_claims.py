"""Where tenants have a limit, the urgent still goes first and tenants take turns; and all limits hold together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forge import Agent
from forge.agent.subagent import AgentType
from forge.durable.engine.claims import Claims, Ended, bind_next, next_query
from forge.durable.engine.queues import QueueLimits, claim_key, set_limits
from forge.durable.engine.start_segments import Starter
from forge.durable.monitor.metrics import read_load
from forge.durable.store import RunStore
from forge.durable.store.heartbeats import describe_unattended, find_unattended, has_worker
from forge.durable.store.rows import NewRun
from forge.durable.store.tables import runs as runs_table
from forge.durable.store.tables import segments
from forge.durable.worker.housekeeping import Housekeeping
from tests.durable.fleet import Fleet, fleet_of, until
from tests.durable.test_queues import most_at_work
from tests.durable.working import begun, rested, script, working


@pytest.fixture
def starter(store: RunStore) -> Iterator[Starter]:
    starter = Starter(store)
    starter.prepare()
    yield starter
    starter.close()


def queue(store: RunStore, starter: Starter, *names: str, **new: Any) -> None:
    for name in names:
        starter.start(store.create(NewRun(**{"id": name, "tenant": name[0], "version": "1", **new})))


def at_work(store: RunStore, *names: str) -> None:
    begun = sa.update(segments).where(segments.c.run.in_(names)).values(state="begun")
    store.database.write(lambda connection: connection.execute(begun))


def following(store: RunStore, limit: int, room: int) -> dict[str, int]:
    """How many of each tenant come next, in their order."""
    query = bind_next(next_query(store.database.is_sqlite, by_tenant=True))
    values = {"queue": "default", "keys": [claim_key("1", "main")], "room": room, "limit": limit}
    rows = store.database.read(lambda one: one.execute(query, {**values, "most": min(limit, room)}).all())
    return Counter(row.tenant for row in rows)


def test_the_next_ones_are_those_of_all_tenants_that_stand_first(store: RunStore, starter: Starter) -> None:
    queue(store, starter, *(f"a{number}" for number in range(4)), "b0", "c0")
    queue(store, starter, "z0", "z1", "z2", priority=5)
    assert following(store, limit=2, room=1) == {"z": 1}
    assert following(store, limit=3, room=3) == {"z": 3}
    assert following(store, limit=2, room=4) == {"z": 2, "a": 1, "b": 1}  # z may have no more, and the others turns
    assert following(store, limit=9, room=99) == {"z": 3, "a": 4, "b": 1, "c": 1}
    assert list(following(store, limit=2, room=5)) == ["z", "a", "b", "c"]


def test_a_tenant_that_has_what_it_may_have_is_passed_over(store: RunStore, starter: Starter) -> None:
    queue(store, starter, "a0", "a1", "b0", "b1", "b2")
    at_work(store, "a0", "b0")
    assert following(store, limit=1, room=5) == {}
    assert following(store, limit=2, room=5) == {"a": 1, "b": 1}
    assert following(store, limit=3, room=5) == {"a": 1, "b": 2}


def test_what_another_queue_or_another_version_has_is_not_meant(store: RunStore, starter: Starter) -> None:
    queue(store, starter, "a0", queue="night")
    queue(store, starter, "b0", version="2")
    assert following(store, limit=1, room=5) == {}
    queue(store, starter, "c0")
    assert following(store, limit=1, room=5) == {"c": 1}


def test_looking_for_them_goes_through_no_table_and_no_backlog(store: RunStore, starter: Starter) -> None:
    if not store.database.is_sqlite:
        return  # Postgres plans by how much there is
    values = {"queue": "default", "keys": [claim_key("1", "main")], "limit": 2, "room": 2, "most": 2}

    def plan(**values: Any) -> list[str]:
        query = bind_next(f"EXPLAIN QUERY PLAN {next_query(True, by_tenant='limit' in values)}")
        return [row[3] for row in store.database.read(lambda connection: connection.execute(query, values).all())]

    by_tenant = plan(**values)
    assert sum("INDEX forge_segments_" in step for step in by_tenant) >= 4
    assert not [step for step in by_tenant if step.startswith(("SCAN forge_segments", "SCAN one"))]
    found = plan(**{name: values[name] for name in ("queue", "keys", "room")})
    assert found == ["SEARCH forge_segments USING INDEX forge_segments_queued (queue=?)"]


def test_no_two_workers_claim_the_same_and_none_waits_for_another(postgres: str) -> None:
    with RunStore(postgres) as store, closing(Starter(store)) as starter:
        starter.prepare()
        queue(store, starter, "a0", "a1", "a2")
        one, other = (Claims(store.database, name, ["default"], _keys) for name in ("one", "other"))
        with store.engine.begin() as connection:  # the one claims, and stands still in its transaction
            (first,) = one._settle(connection, _keys(), 1, [])
            second, third = other.poll(9)
        assert [claim.run for claim in (first, second, third)] == ["a0", "a1", "a2"]
        assert other.poll(9) == []


def test_limits_hold_while_another_worker_claims(postgres: str) -> None:
    """Both count before either claims: then the queue would have one too many."""
    with RunStore(postgres) as store, closing(Starter(store)) as starter:
        starter.prepare()
        queue(store, starter, *(f"{tenant}{n}" for tenant in "ab" for n in range(4)))
        set_limits(store.database, {"default": QueueLimits(concurrency=3, per_tenant=2)})
        workers = [Claims(store.database, f"w{n}", ["default"], _keys) for n in range(4)]
        with ThreadPoolExecutor(4) as threads:
            claimed = [claim for some in threads.map(lambda one: one.poll(2), workers) for claim in some]
        assert len(claimed) == 3
        assert max(Counter(claim.run[0] for claim in claimed).values()) == 2


def test_what_was_claimed_is_begun_again_only_when_it_was_handed_back(store: RunStore, starter: Starter) -> None:
    queue(store, starter, "a0", "b0")
    one, other = (Claims(store.database, name, ["default"], _keys) for name in ("one", "other"))
    first, second = one.poll(2)
    assert (first.starts, first.tries) == (1, 1)
    assert other.poll(2) == []
    assert other.hand_back("one", counts=True, only=[first]) == [first]
    (again,) = other.poll(2)
    assert (again.run, again.starts, again.tries) == ("a0", 2, 2)
    assert one.hand_back("one", counts=False) == [second._replace(tries=0)]  # it left in good order
    (last,) = other.poll(2, [Ended(again, "over")])
    assert (last.run, last.starts, last.tries) == ("b0", 2, 1)
    assert one.poll(2, [Ended(first, "failed")]) == []  # what another has ended stays as it is
    assert [claim.run for claim in other.list_claimed()] == ["b0"]
    assert _states(store) == {"a0": "over", "b0": "begun"}


def test_each_queue_of_a_worker_has_its_turn(store: RunStore, starter: Starter) -> None:
    queue(store, starter, "a0", "a1", "a2")
    queue(store, starter, "n0", "n1", "n2", queue="night")
    claims = Claims(store.database, "one", ["default", "night"], _keys)
    assert "".join(sorted(claims.poll(1)[0].run[0] for _ in range(4))) == "aann"


def _keys() -> list[str]:
    return [claim_key("1", "main")]


def _states(store: RunStore) -> dict[str, str]:
    query = sa.select(segments.c.run, segments.c.state)
    return {row.run: row.state for row in store.database.read(lambda connection: connection.execute(query).all())}


@pytest.mark.parametrize("limits", [{}, {"per_tenant": 9}], ids=["plain", "by tenant"])
def test_a_worker_takes_only_runs_of_its_own_agents(database: str, tmp_path: Path, limits: dict[str, Any]) -> None:
    """Two services with an agent each, one database: 19 of 40 runs failed, because the other service took them."""
    with fleet_of(database, tmp_path) as fleet:
        names = [fleet.submit(f"{agent}{n}", calls=1, agent=agent) for n in range(20) for agent in ("shop", "bank")]
        fleet.submit("lonely", calls=1, agent="nobody")
        owners = {
            agent: fleet.worker(agents=[agent], name=agent, limits={"default": limits}) for agent in ("shop", "bank")
        }
        for run in fleet.over(*names):
            assert (run.status, run.worker) == ("finished", owners[run.agent].id)
        lonely = fleet.store.get("lonely")
        assert (lonely.status, lonely.worker, lonely.segment) == ("queued", "", 1)
        fleet.worker(agents=["nobody", "spare"])
        assert fleet.over("lonely")[0].status == "finished"


def test_a_worker_of_several_agents_keeps_the_order_of_the_queue(sqlite: str, tmp_path: Path) -> None:
    with fleet_of(sqlite, tmp_path) as fleet:
        fleet.submit("late", calls=1, agent="shop", priority=-5)
        fleet.submit("first", calls=1, agent="bank", priority=5)
        fleet.submit("second", calls=1, agent="shop", priority=4)
        fleet.worker(agents=["shop", "bank"], concurrency=1)
        fleet.over("late", "first", "second")
        assert [line[0] for line in fleet.lines() if len(line) == 3] == ["first", "second", "late"]


async def test_a_sub_agent_of_a_type_that_a_worker_lacks_is_left_to_others(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script("done"), tools=[], agents={"reader": AgentType(prompt="You read.")})
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker, run_id="mine", agent="main/reader")
        await begun(worker, run_id="other", agent="main/writer")
        assert (await rested(worker, "mine")).status == "finished"
        assert (await asyncio.to_thread(worker.store.get, "other")).status == "queued"


async def test_runs_that_no_worker_takes_are_shown_counted_and_logged_and_not_failed(
    sqlite: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(sqlite, Agent(script("done")), tmp_path, every=60) as worker:
        await begun(worker, run_id="lonely", agent="nobody")
        await begun(worker, run_id="mine")
        assert (await rested(worker, "mine")).status == "finished"
        with worker.store.engine.begin() as connection:
            connection.execute(sa.update(runs_table).values(look=1.0, updated=1.0))  # some seconds are over
        await Housekeeping(worker.engine, worker.beats).round()
        run = await asyncio.to_thread(worker.store.get, "lonely")
        assert run.status == "queued"
        assert "1 queued run: no running worker takes them; they wait for a worker with agent nobody" in caplog.text
        assert (await asyncio.to_thread(read_load, worker.store)).unattended == 1
        alone = await asyncio.to_thread(find_unattended, worker.store, run)
        assert alone == run
        assert "agent nobody, version 0 and queue default" in describe_unattended(run)
        assert not await asyncio.to_thread(has_worker, worker.store, run)
        mine = await asyncio.to_thread(worker.store.get, "mine")
        assert await asyncio.to_thread(has_worker, worker.store, mine)  # the twin


@pytest.mark.parametrize(
    "limits",
    [{"concurrency": 1, "per_tenant": 1}, pytest.param({"per_tenant": 1}, marks=pytest.mark.slow)],
    ids=["both", "one"],
)
def test_priorities_and_turns_hold_where_tenants_have_a_limit(
    local_first: str, tmp_path: Path, limits: dict[str, Any]
) -> None:
    with fleet_of(local_first, tmp_path) as fleet:
        names = [fleet.submit(f"{name}{n}", calls=1, tenant=name, priority=-5) for name in "abcd" for n in range(2)]
        names += [fleet.submit(f"z{number}", calls=1, tenant="z", priority=10) for number in range(2)]
        fleet.worker(limits={"default": limits}, concurrency=1)
        fleet.over(*names)
        order = [line[0] for line in fleet.lines() if len(line) == 3]
        assert order == ["z0", "z1", "a0", "b0", "c0", "d0", "a1", "b1", "c1", "d1"]


@pytest.mark.slow
def test_all_limits_hold_over_three_workers(database: str, tmp_path: Path) -> None:
    limits = {"default": {"concurrency": 4, "per_tenant": 2, "rate": {"calls": 5, "seconds": 1}}}
    with fleet_of(database, tmp_path) as fleet:
        names = [fleet.submit(f"{name}{n}", calls=1, seconds=0.4, tenant=name) for n in range(8) for name in "abc"]
        for _ in range(3):
            fleet.worker(limits=limits)
        fleet.over(*names)
        assert most_at_work(fleet) <= 4
        assert max(most_at_work(fleet, tenant) for tenant in "abc") == 2
        assert _most_begun_within(fleet, names, 1.0) <= 5


@pytest.mark.slow
def test_three_workers_never_give_one_tenant_more_while_its_urgent_runs_come(database: str, tmp_path: Path) -> None:
    """Whoever saw an older head of the tenant's queue must not take that one too."""
    with fleet_of(database, tmp_path) as fleet:
        for _ in range(3):
            fleet.worker(limits={"default": {"per_tenant": 1}})
        names = []
        for number in range(30):
            names.append(fleet.submit(f"a{number}", calls=1, seconds=0.02, tenant="a", priority=number // 3))
            time.sleep(0.03)
        fleet.over(*names)
        assert most_at_work(fleet) == 1


def test_a_worker_of_several_queues_has_no_more_at_work_than_it_may(sqlite: str, tmp_path: Path) -> None:
    queues = ["default", "night", "day"]
    with fleet_of(sqlite, tmp_path) as fleet:
        fleet.hold()
        names = [fleet.submit(f"{one}{n}", calls=1, seconds=0.1, queue=one) for one in queues for n in range(3)]
        fleet.worker(queues=queues, concurrency=2)
        until(lambda: len(fleet.lines()) >= 2, "two at once")
        fleet.release()
        fleet.over(*names)
        assert most_at_work(fleet) == 2


def _most_begun_within(fleet: Fleet, names: list[str], seconds: float) -> int:
    """By the database's own record of when each was claimed."""
    query = sa.select(segments.c.counted).where(segments.c.run.in_(names))
    times = sorted(fleet.store.database.read(lambda connection: list(connection.execute(query).scalars())))
    assert times[0] > 0
    return max(sum(start <= one < start + seconds for one in times) for start in times)
