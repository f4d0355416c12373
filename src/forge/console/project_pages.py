"""The project itself: what it is, its schedules, its memory, the workers on its runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from forge.agent.conversation import Conversation
from forge.app.durable import HEARD
from forge.app.memory import memory_of
from forge.app.schedules import scheduled_prompt, store_of
from forge.app.version import version
from forge.console.asking import Asked, Made
from forge.console.demo import NAME as DEMO
from forge.console.entries import newest_number
from forge.console.home import Home
from forge.console.session_pages import session_infos
from forge.core.errors import ErrorKind, ToolError
from forge.core.threads import in_thread
from forge.durable.beats import listed
from forge.durable.client import new_run_id
from forge.durable.rows import RunInfo
from forge.durable.tables import runs
from forge.schedules.cron import Cron
from forge.schedules.runner import Runner
from forge.schedules.schedule import Outcome, Schedule, Source, Status
from forge.schedules.store import ScheduleStore

LOOK = 0.3  # seconds between two looks at a schedule's run
LONGEST_QUERY = 1_000


def show_me(home: Home, asked: Asked) -> dict[str, Any]:
    configuration = home.made.configuration
    main = home.scope.agent
    return {
        "token": asked.page_token,
        "version": version(),
        "project": configuration.agent.id or home.workspace.name,
        "workspace": str(home.workspace),
        "model": home.agent.model if home.agent is not None else None,
        "model_problem": home.model_problem,
        "agents": [main, *(f"{main}/{name}" for name in configuration.agents)],
        "database": home.runs.store.label,
        "is_own_database": home.is_own_database,
        "worker": home.worker.id if home.worker is not None else None,
        "read_only": False,
        "trusted": home.wishes.config is not None,
        "notes": home.notes,
        "demo": DEMO,
        "now": home.runs.store.now(),
    }


def show_overview(home: Home, asked: Asked) -> dict[str, Any]:
    store = home.runs.store
    statuses = ("queued", "running", "waiting", "finished", "failed", "cancelled")
    words = [run for run in store.list(status="waiting", limit=1_000) if any(w.kind == "question" for w in run.waits)]
    with closing(_schedules(home)) as schedules:
        count = len(schedules.list())
    return {
        "counts": {**dict.fromkeys(statuses, 0), **store.counts()},
        "waiting": len(store.questions()) + len(words),
        "tools": len(home.registry),
        "schedules": count,
        "workers": sum(one.state == "working" for one in listed(store.database)),
        "sessions": len(session_infos(home)),
        "last": newest_number(store),
    }


def show_workers(home: Home, asked: Asked) -> dict[str, Any]:
    store = home.runs.store
    own = home.worker.id if home.worker is not None else ""
    names = "id host pid started age state version concurrency running".split()
    workers = [
        {
            **{name: getattr(one, name) for name in names},
            "queues": list(one.queues),
            "offers": list(one.offers),
            "here": one.id == own,
        }
        for one in listed(store.database)
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


async def search_memory(home: Home, asked: Asked) -> dict[str, Any]:
    configuration = home.made.configuration
    query = asked.text("q").strip()[:LONGEST_QUERY]
    limit = asked.number("limit", 10, 1, 100)
    memory = await in_thread(lambda: memory_of(configuration, home.workspace, writes=home.scope.writes))
    with closing(memory):
        found = await memory.search(query, limit) if query else None
        return {
            "enabled": bool(configuration.memory and configuration.memory.enabled),
            "notes": await in_thread(memory.names),
            "stats": await in_thread(memory.stats),
            "results": [hit._asdict() for hit in found.hits] if found is not None else [],
            "remarks": found.remarks if found is not None else [],
        }


def show_note(home: Home, asked: Asked) -> dict[str, Any]:
    name = asked.text("name")
    with closing(memory_of(home.made.configuration, home.workspace, writes=home.scope.writes)) as memory:
        return {"name": name, "text": memory.read(name)}


def list_schedules(home: Home, asked: Asked) -> dict[str, Any]:
    with closing(_schedules(home)) as store:
        found = store.list()
        return {"schedules": [_schedule(store, one) for one in found], "runner": False}


def pause_schedule(home: Home, asked: Asked) -> dict[str, Any]:
    return _switched(home, asked.path["id"], on=False)


def resume_schedule(home: Home, asked: Asked) -> dict[str, Any]:
    return _switched(home, asked.path["id"], on=True)


async def run_schedule(home: Home, asked: Asked) -> Made:
    """Now, as a run like any other: what it asks, a person is asked here. Its end is kept with the schedule."""
    name = str(asked.path["id"])
    if home.agent is None:
        raise ToolError("there is no model to run a schedule with", ErrorKind.CONFIG, home.model_problem)

    def check() -> None:
        with closing(_schedules(home)) as store:
            store.get(name)
            if any(run.status is Status.RUNNING for run in store.history(name, 5)):
                raise ToolError(f"{name} is running already", ErrorKind.USER, "Wait until it is over.")

    await in_thread(check)
    home.begin(_run_now(home, name))
    return Made(202, {"started": True})


async def _run_now(home: Home, name: str) -> None:
    with closing(_schedules(home)) as store:
        try:
            await Runner(store, lambda schedule: _as_run(home, schedule)).now(name)
        finally:
            home.hub.tell("schedules")


async def _as_run(home: Home, schedule: Schedule) -> Outcome:
    assert home.agent is not None
    prompt, run_id = scheduled_prompt(schedule), new_run_id()
    conversation = Conversation([])
    home.agent.hear(conversation, prompt)
    session = f"{schedule.id}-{run_id.removeprefix('run-')}"
    home.hub.tell("schedules")

    def begin() -> None:
        home.runs.submit(
            prompt,
            agent=home.scope.agent,
            session=session,
            version=home.version,
            run_id=run_id,
            messages=conversation.messages,
            scope={HEARD: 0, "channel": "schedule"},
        )

    await in_thread(begin)
    run: RunInfo = await in_thread(lambda: home.runs.get(run_id))
    while not run.is_over:
        await asyncio.sleep(LOOK)
        run = await in_thread(lambda: home.runs.get(run_id))
    result = run.result or {}
    error = (result.get("error") or {}).get("message", "") if run.status != "finished" else ""
    success = run.status == "finished"
    return Outcome(
        success=success,
        text=str(result.get("text", "")),
        error=error or ("" if success else run.status),
        session=session,
    )


def _switched(home: Home, name: str, *, on: bool) -> dict[str, Any]:
    with closing(_schedules(home)) as store:
        found = store.get(name)
        if found.source is Source.CONFIG or found.origin:
            words = f"{name} is declared in {found.origin or 'the configuration'}"
            raise ToolError(words, ErrorKind.USER, f"Set `enabled: {str(on).lower()}` there.")
        changed = store.set(
            id=found.id,
            cron=found.cron,
            task=found.task,
            timezone=found.timezone,
            one_shot=found.one_shot,
            skill=found.skill,
            channel=found.channel,
            channel_target=found.channel_target,
            enabled=on,
            by=Source.PERSON,
        )
        home.hub.tell("schedules")
        return {"schedule": _schedule(store, replace(changed, origin=found.origin))}


def _schedule(store: ScheduleStore, one: Schedule) -> dict[str, Any]:
    history = store.history(one.id, 10)
    try:
        explained = Cron.parse(one.cron, one.timezone).explain()
    except ToolError as error:
        explained = error.message
    return {
        **one.to_dict(),
        "explained": explained,
        "origin": one.origin,
        "next": one.next_fire,
        "last": one.last_fire,
        "late": max(0.0, time.time() - one.next_fire) if one.next_fire else 0.0,
        "running": any(run.status is Status.RUNNING for run in history),
        "history": [
            {
                "run": run.id,
                "status": str(run.status),
                "due": run.due,
                "started": run.started,
                "duration": run.duration,
                "error": run.error,
                "result": run.result,
                "session": run.session,
            }
            for run in history
        ],
    }


def _schedules(home: Home) -> ScheduleStore:
    return store_of(home.made.configuration, home.workspace)
