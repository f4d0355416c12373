"""Forge: a durable run; the tool can say whether a call took effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from chaos.crashes.systems.order import AFTER, AT_ONCE, BEFORE, Order
from forge.agent.agent import Agent
from forge.core.context import ToolContext
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.result import Reconcile, Reconciled
from forge.core.tool import tool
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.start_segments import Starter
from forge.durable.store import NewRun, RunStore
from forge.durable.worker import Worker, WorkerSettings
from forge.permissions.questions import approve_all


def version() -> str:
    return "this version"


def prepare(order: Order) -> None:
    """Submits the runs."""
    logging.getLogger().setLevel(logging.CRITICAL)
    with RunStore(order.database) as store:
        store.prepare()
        starter = Starter(store)
        for name in order.names():
            text = f"{name} {order.calls}"
            starter.start(
                store.create(
                    NewRun(
                        id=name,
                        version="1",
                        prompt=text,
                        messages=(Message("user", text),),
                    )
                )
            )
        starter.close()


class Asking:
    """Asks for one call a turn."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        run, calls = next(message.text for message in request.messages if message.role == "user").split()
        done = sum(message.role == "tool" for message in request.messages)
        if done >= int(calls):
            yield Message("assistant", "done")
            return
        yield Message(
            "assistant",
            "",
            tool_calls=(ToolCall("charge", {"run": run, "number": done}, f"c{done}"),),
        )


def make_agent(order: Order, *, reconciles: bool) -> Agent:
    def find(key: str, arguments: Mapping[str, Any]) -> Reconciled:
        was_done = order.has_charged(arguments["run"], arguments["number"])
        return Reconciled.done("charged") if was_done else Reconciled.not_done()

    asked: Reconcile | None = find if reconciles else None

    @tool(permissions={"write"}, reconcile=asked)
    async def charge(ctx: ToolContext, run: str, number: int) -> str:
        """Charge a card, which must happen once."""
        await asyncio.sleep(BEFORE)
        order.charge(run, number)
        await asyncio.sleep(AFTER)
        return "charged"

    return prepare_for_worker(Agent(Asking(), tools=[charge], approve=approve_all))


async def work(order: Order, *, reconciles: bool) -> None:
    """Works until all runs are over. A run that ends is noted by whoever sees it first."""
    agent = make_agent(order, reconciles=reconciles)
    settings = WorkerSettings(version="1", concurrency=AT_ONCE, every=0.5)
    async with Worker(order.database, [agent], settings) as worker:
        while True:
            await asyncio.sleep(1)
            noted = order.read_finished()
            runs = await asyncio.to_thread(lambda: worker.store.list(limit=10_000))
            for run in runs:
                if run.is_over and run.id not in noted:
                    said = await asyncio.to_thread(worker.store.messages, run.id)
                    unknown = sum("its state is unknown" in one.text for one in said if one.role == "tool")
                    order.finish(run.id, unknown)


async def main(order: Order) -> None:
    await work(order, reconciles=True)
