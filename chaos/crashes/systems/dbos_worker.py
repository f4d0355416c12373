"""DBOS alone: a workflow, whose calls are steps."""

from __future__ import annotations

import asyncio
from importlib.metadata import version as version_of

from dbos import DBOS, DBOSConfig, SetWorkflowID

from chaos.crashes.systems.order import AFTER, AT_ONCE, BEFORE, Order

POLL = 0.05  # seconds between two looks at a workflow that recovery runs; by default 1
ORDERS: list[Order] = []


def version() -> str:
    return version_of("dbos")


def prepare(order: Order) -> None:
    ORDERS.append(order)


@DBOS.step()
async def charge(run: str, number: int) -> str:
    await asyncio.sleep(BEFORE)
    ORDERS[0].charge(run, number)
    await asyncio.sleep(AFTER)
    return "charged"


@DBOS.workflow(max_recovery_attempts=1_000)
async def work(run: str, calls: int) -> int:
    for number in range(calls):
        await charge(run, number)
    return calls


def configure(order: Order) -> DBOSConfig:
    """The same executor and version in every life, so that a new one recovers the workflows of the last."""
    return {
        "name": "storm",
        "system_database_url": order.database,
        "application_version": "1",
        "executor_id": "storm",
        "log_level": "CRITICAL",
    }


async def main(order: Order) -> None:
    DBOS(config=configure(order))
    DBOS.launch()
    waits = asyncio.Semaphore(AT_ONCE)

    async def follow(name: str) -> None:
        async with waits:
            has_begun = await DBOS.get_workflow_status_async(name) is not None
            if order.leaves_out(name, has_begun=has_begun):
                return
            with SetWorkflowID(name):
                handle = await DBOS.start_workflow_async(work, name, order.calls)
            await handle.get_result(polling_interval_sec=POLL)
            order.finish(name)

    done = order.read_finished()
    await asyncio.gather(*(follow(name) for name in order.names() if name not in done))
    await asyncio.Event().wait()
