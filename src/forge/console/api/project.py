"""The project page: its facts, and the workers on its runs."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import sqlalchemy as sa

from forge.console.api.requests import ApiRequest
from forge.console.api.runs import abandoned_shape
from forge.console.api.schedules import schedules_of
from forge.console.api.sessions import DEMO, session_infos
from forge.console.api.tools import command_options
from forge.console.console_state import ConsoleState
from forge.console.event_entries import newest_numbers
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.tables import runs
from forge.project.version import version


def show_me(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    configuration = console.configuration
    main = console.scope.agent
    return {
        "key": request.look_key,
        "version": version(),
        "project": configuration.agent.id or console.workspace.name,
        "workspace": str(console.workspace),
        "model": console.agent.model or None,
        "model_problem": console.model_problem,
        "agents": [main, *(f"{main}/{name}" for name in configuration.agents)],
        "database": console.runs.store.label,
        "is_own_database": console.is_own_database,
        "worker": console.worker.id if console.worker is not None else None,
        "read_only": False,
        "trusted": console.project.options.config is not None,
        "notes": list(console.notes),
        "demo": DEMO,
        "options": command_options(console),
        "now": console.runs.store.now(),
    }


def show_overview(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    store = console.runs.store
    statuses = ("queued", "running", "waiting", "finished", "failed", "cancelled")
    with closing(schedules_of(console)) as schedules:
        count = len(schedules.list())
    return {
        "counts": {**dict.fromkeys(statuses, 0), **_count_listed(console)},
        "waiting": store.count_questions() + store.count_asking(),
        "tools": len(console.registry),
        "schedules": count,
        "workers": sum(one.state == "working" for one in list_workers(store.database)),
        "sessions": len(session_infos(console)),
        "last": newest_numbers(store)[0],
        "left_alone": abandoned_shape(console),
    }


def _count_listed(console: ConsoleState) -> dict[str, int]:
    """Counts the runs of the run list by status: those that no other run started."""
    query = sa.select(runs.c.status, sa.func.count()).where(runs.c.parent == "").group_by(runs.c.status)
    return console.runs.store.database.read(lambda connection: {row[0]: row[1] for row in connection.execute(query)})


def show_workers(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    store = console.runs.store
    own = console.worker.id if console.worker is not None else ""
    names = ["id", "host", "pid", "started", "age", "state", "version", "concurrency", "running"]
    workers = [
        {
            **{name: getattr(one, name) for name in names},
            "queues": list(one.queues),
            "offers": list(one.offers),
            "here": one.id == own,
        }
        for one in list_workers(store.database)
    ]
    c = runs.c
    is_open = c.status.in_(("queued", "running", "waiting"))
    query = sa.select(c.queue, c.status, sa.func.count(), sa.func.min(c.updated)).where(is_open)
    found = store.database.read(lambda connection: connection.execute(query.group_by(c.queue, c.status)).all())
    queues: dict[str, dict[str, Any]] = {}
    for name in {*(row[0] for row in found), *(one for worker in workers for one in worker["queues"])}:
        queues[name] = {"name": name, "queued": 0, "running": 0, "waiting": 0, "oldest": None}
    now = store.now()
    for name, status, count, oldest in found:
        queues[name][status] = count
        if status == "queued":
            queues[name]["oldest"] = max(0.0, now - oldest)
    return {"workers": workers, "queues": [queues[name] for name in sorted(queues)]}
