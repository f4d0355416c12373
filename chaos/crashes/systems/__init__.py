"""The same runs in every system: a model asks for one call after the other, and the tool counts its effects.

Each module has `SYSTEM`, `prepare()`, `version()` and `async main(order)`, and is run in an environment of its own.
"""

from __future__ import annotations

from typing import NamedTuple


class System(NamedTuple):
    """A system in the table: its name, its module here, and what its environment needs."""

    name: str
    module: str
    packages: tuple[str, ...] = ()  # none: this environment
    note: str = ""
    workers: int = 1  # at once; the others recover the runs of a dead process only when it starts again


SYSTEMS = (
    System(
        "Forge, with `reconcile`",
        "forge_worker",
        note="the tool says whether a call took effect",
        workers=6,
    ),
    System(
        "Forge, without",
        "forge_plain",
        note="a call that may have happened is not repeated",
        workers=6,
    ),
    System(
        "DBOS",
        "dbos_worker",
        ("dbos", "psycopg[binary]"),
        "the call is a step, which is repeated",
    ),
    System(
        "pydantic-ai, DBOSAgent",
        "pydantic_ai_worker",
        ("pydantic-ai-slim[dbos]", "psycopg[binary]"),
        "the tool is a DBOS step, as its documentation asks for",
    ),
    System(
        "LangGraph, Postgres checkpointer",
        "langgraph_worker",
        ("langgraph", "langgraph-checkpoint-postgres", "psycopg[binary]"),
        'durability="sync"; the thread is invoked again after a crash',
    ),
)
