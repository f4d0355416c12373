"""pydantic-ai: an agent wrapped in `DBOSAgent`; the tool is a step."""

from __future__ import annotations

import asyncio
from importlib.metadata import version as version_of
from typing import Any

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from chaos.crashes.systems.dbos_worker import ORDERS, POLL, charge, configure, prepare
from chaos.crashes.systems.order import AT_ONCE, Order

__all__ = ["main", "prepare", "version"]


def version() -> str:
    return f"{version_of('pydantic-ai-slim')}, DBOS {version_of('dbos')}"


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for one call a turn."""
    parts: list[Any] = [part for message in messages for part in message.parts]
    run, calls = str(next(part.content for part in parts if part.part_kind == "user-prompt")).split()
    done = sum(isinstance(part, ToolReturnPart) for part in parts)
    if done >= int(calls):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("charge", {"run": run, "number": done})])


async def main(order: Order) -> None:
    ORDERS[:] = [order]
    DBOS(config=configure(order))
    agent = Agent(FunctionModel(answer), name="storm", tools=[charge])
    durable = DBOSAgent(agent)
    DBOS.launch()
    waits = asyncio.Semaphore(AT_ONCE)

    async def follow(name: str) -> None:
        async with waits:
            status = await DBOS.get_workflow_status_async(name)
            if order.leaves_out(name, has_begun=status is not None):
                return
            if status is None:
                with SetWorkflowID(name):
                    await durable.run(f"{name} {order.calls}")
            else:  # recovery runs it
                handle: Any = await DBOS.retrieve_workflow_async(name)
                await handle.get_result(polling_interval_sec=POLL)
            order.finish(name)

    done = order.read_finished()
    await asyncio.gather(*(follow(name) for name in order.names() if name not in done))
    await asyncio.Event().wait()
