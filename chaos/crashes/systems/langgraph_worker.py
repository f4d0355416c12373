"""LangGraph: a graph of a model and its tools, with the Postgres checkpointer."""

from __future__ import annotations

import asyncio
from importlib.metadata import version as version_of
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from chaos.crashes.systems.order import AFTER, AT_ONCE, BEFORE, Order


def version() -> str:
    return f"{version_of('langgraph')}, checkpointer {version_of('langgraph-checkpoint-postgres')}"


def prepare(order: Order) -> None:
    with PostgresSaver.from_conn_string(order.database) as saver:
        saver.setup()


def make_graph(order: Order) -> Any:
    def model(state: MessagesState) -> dict[str, Any]:
        """Asks for one call a turn."""
        messages = state["messages"]
        run, calls = str(messages[0].content).split()
        done = sum(isinstance(message, ToolMessage) for message in messages)
        if done >= int(calls):
            return {"messages": [AIMessage("done")]}
        call = {
            "name": "charge",
            "args": {"run": run, "number": done},
            "id": f"{run}-{done}",
        }
        return {"messages": [AIMessage("", tool_calls=[call])]}

    async def tools(state: MessagesState) -> dict[str, Any]:
        last: Any = state["messages"][-1]
        (call,) = last.tool_calls
        await asyncio.sleep(BEFORE)
        order.charge(call["args"]["run"], call["args"]["number"])
        await asyncio.sleep(AFTER)
        return {"messages": [ToolMessage("charged", tool_call_id=call["id"])]}

    def choose(state: MessagesState) -> str:
        last: Any = state["messages"][-1]
        return "tools" if last.tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", choose, ["tools", END])
    graph.add_edge("tools", "model")
    return graph


async def main(order: Order) -> None:
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    settings: dict[str, Any] = {
        "autocommit": True,
        "prepare_threshold": 0,
        "row_factory": dict_row,
    }
    async with AsyncConnectionPool(order.database, min_size=1, max_size=AT_ONCE, kwargs=settings) as pool:
        saver = AsyncPostgresSaver(pool)
        app = make_graph(order).compile(checkpointer=saver)
        waits = asyncio.Semaphore(AT_ONCE)

        async def follow(name: str) -> None:
            async with waits:
                config = {"configurable": {"thread_id": name}, "recursion_limit": 1_000}
                # with any checkpoint, the thread goes on with None; one that is over stays so. Its `next` cannot be
                # asked: it omits a node whose writes are stored while the checkpoint after them is not
                has_begun = await saver.aget_tuple(config) is not None
                if order.leaves_out(name, has_begun=has_begun):
                    return
                given = None if has_begun else {"messages": [("user", f"{name} {order.calls}")]}
                await app.ainvoke(given, config, durability="sync")
                order.finish(name)

        done = order.read_finished()
        await asyncio.gather(*(follow(name) for name in order.names() if name not in done))
        await asyncio.Event().wait()
