"""Runs that another version of the project began: who works on them, and how they are given to this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from forge.console.api.asking import Asked
from forge.console.console_state import Home
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.rows import OVER, RunInfo
from forge.durable.store.tables import runs

MOST = 1_000  # runs that are given at once


class Left(NamedTuple):
    """A run that nobody goes on with."""

    id: str
    version: str


def left_alone(home: Home) -> Sequence[Left]:
    """Runs that are not over, of versions for which no worker is up: what they wait for may come in vain."""
    workers = list_workers(home.runs.store.database)
    c = runs.c
    query = sa.select(c.id, c.version, c.queue).where(c.status.not_in(OVER), c.parent == "", c.version != home.version)
    query = query.order_by(c.created.desc()).limit(MOST)
    rows = home.runs.store.database.read(lambda connection: connection.execute(query).all())
    return [Left(row.id, row.version) for row in rows if not any(one.takes(row.version, row.queue) for one in workers)]


def left_shape(home: Home) -> dict[str, Any]:
    left = left_alone(home)
    return {"runs": len(left), "versions": sorted({one.version for one in left})[:20], "version": home.version}


def goes_on(home: Home, run: RunInfo) -> str:
    """Why an answer does not reach its run yet; "" where it does."""
    if run.is_over or run.version == home.version or home.runs.is_attended(run):
        return ""
    return (
        f"The answer is kept, and {run.id} goes on when a worker of its version ({run.version}) is up, or when it is "
        f"given to this one: forge runs migrate {run.id}"
    )


def migrate_runs(home: Home, asked: Asked) -> dict[str, Any]:
    """Give them to this version, as `forge runs migrate` does. Those that some worker is up for stay as they are."""
    moved = [home.runs.migrate(one.id, home.version).id for one in left_alone(home)]
    home.hub.nudge()
    return {"migrated": moved, "version": home.version, "left": len(left_alone(home))}


def changed_version(home: Home) -> dict[str, Any]:
    """What a change of the project's file means for the runs there are; `note` is "" where it means nothing."""
    told: dict[str, Any] = {"version": home.version, "next_version": home.next_version, "runs": 0, "note": ""}
    if home.is_version_fixed:
        return told
    c = runs.c
    query = sa.select(sa.func.count()).where(c.status.not_in(OVER), c.parent == "", c.version == home.version)
    count = home.runs.store.database.read(lambda connection: connection.execute(query).scalar_one())
    if count:
        note = (
            f"This makes another version of the project. {_runs(count)} that are not over belong to the present one: "
            "this console goes on with them until it ends. After its next start they are given to the new version "
            "from its first page, or with `forge runs migrate --all`."
        )
        told |= {"runs": count, "note": note}
    return told


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"
