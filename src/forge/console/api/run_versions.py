"""Runs of another version of the project: their workers, and their migration to this version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from forge.console.api.requests import ApiRequest
from forge.console.console_state import ConsoleState
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.rows import OVER, RunInfo
from forge.durable.store.tables import runs

MOST = 1_000  # runs that are given at once


class AbandonedRun(NamedTuple):
    """A run that no worker continues."""

    id: str
    version: str


def abandoned_runs(console: ConsoleState) -> Sequence[AbandonedRun]:
    """Returns unfinished runs of versions for which no worker is up: they may wait forever."""
    workers = list_workers(console.runs.store.database)
    c = runs.c
    query = sa.select(c.id, c.version, c.queue, c.agent).where(
        c.status.not_in(OVER), c.parent == "", c.version != console.version
    )
    query = query.order_by(c.created.desc()).limit(MOST)
    rows = console.runs.store.database.read(lambda connection: connection.execute(query).all())
    return [
        AbandonedRun(row.id, row.version)
        for row in rows
        if not any(one.takes(row.version, row.queue, row.agent) for one in workers)
    ]


def abandoned_shape(console: ConsoleState) -> dict[str, Any]:
    left = abandoned_runs(console)
    return {"runs": len(left), "versions": sorted({one.version for one in left})[:20], "version": console.version}


def why_not_continued(console: ConsoleState, run: RunInfo) -> str:
    """Returns why an answer does not reach its run yet; empty if it does."""
    if run.is_over or run.version == console.version or console.runs.is_attended(run):
        return ""
    return (
        f"The answer is saved. {run.id} continues when a worker of its version ({run.version}) runs. "
        f"To continue it with this version: forge runs migrate {run.id}"
    )


def migrate_runs(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Gives runs to this version, as `forge runs migrate` does; runs with a worker stay."""
    moved = [console.runs.migrate(one.id, console.version).id for one in abandoned_runs(console)]
    console.hub.nudge()
    return {"migrated": moved, "version": console.version, "left": len(abandoned_runs(console))}


def version_change(console: ConsoleState) -> dict[str, Any]:
    """Describes the effect of a changed project file on existing runs; `note` is empty if there is none."""
    told: dict[str, Any] = {"version": console.version, "next_version": console.next_version, "runs": 0, "note": ""}
    if console.is_version_fixed:
        return told
    c = runs.c
    query = sa.select(sa.func.count()).where(c.status.not_in(OVER), c.parent == "", c.version == console.version)
    count = console.runs.store.database.read(lambda connection: connection.execute(query).scalar_one())
    if count:
        note = (
            f"This makes a new version of the project. The current version has {_count_runs(count)} that did not end"
            " yet. This console continues them until it stops. After the next start, move them to the new version"
            " on the overview page, or with `forge runs migrate --all`."
        )
        told |= {"runs": count, "note": note}
    return told


def _count_runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"
