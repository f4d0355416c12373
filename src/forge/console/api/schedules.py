"""The schedules page: next times, history, and actions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from forge.console.api.requests import ApiRequest, StatusAnswer
from forge.console.console_state import ConsoleState
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.durable.client import new_run_id
from forge.durable.store.rows import INITIAL_MESSAGES, MODEL, RunInfo
from forge.durable.store.tables import runs
from forge.models.command import COMMAND
from forge.project.assemble.services import missing_names, open_schedule_store
from forge.project.runs.scheduled_runs import list_scheduled, scheduled_prompt
from forge.schedules.cron import Cron
from forge.schedules.runner import Runner
from forge.schedules.schedule import (
    LONGEST_RESULT,
    Schedule,
    ScheduleOutcome,
    ScheduleRun,
    Source,
    Status,
    check_no_secret,
)
from forge.schedules.store import ScheduleStore

LOOK = 0.3  # seconds between two looks at a schedule's run
MOST_HISTORY = 10  # runs of a history
UPCOMING = 3  # times that a preview shows

_TEXTS = ("cron", "task", "id", "timezone", "skill", "channel", "channel_target")


def list_schedules(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    with closing(schedules_of(console)) as store:
        found = store.list()
        fires = console.worker is not None and console.has_model
        return {"schedules": [_schedule(console, store, one) for one in found], "runner": fires}


def add_schedule(console: ConsoleState, request: ApiRequest) -> StatusAnswer | dict[str, Any]:
    """Shows the schedule first; with `write` it is stored, by the same checks as `forge schedule add`.

    A schedule that exists is changed only with `replaces`.
    """
    texts = {name: request.body_text(name, needed=name in ("cron", "task")) for name in _TEXTS}
    flags = {name: request.body_flag(name) for name in ("one_shot", "enabled")}
    check_no_secret(texts, console.secrets)
    empty = "" if request.body_flag("replaces") else None  # None keeps the old value
    definition: Any = {**{name: value.strip() or empty for name, value in texts.items()}, **flags}
    with closing(schedules_of(console)) as store:
        old, draft = store.draft(by=Source.PERSON, **definition)
        rule = Cron.parse(draft.cron, draft.timezone)
        told: dict[str, Any] = {
            "replaces": None if old is None else old.to_dict(),
            "notes": missing_names(draft, console.configuration, console.project.skills.catalog.skills),
        }
        if request.body.get("write") is not True:
            upcoming = _upcoming_times(rule, draft, console.runs.store.now())
            shown = {**draft.to_dict(), "explained": rule.explain(), "upcoming": upcoming}
            return {**told, "schedule": shown, "written": False}
        if old is not None and request.body_flag("replaces") is not True:
            message = f"a schedule was to be added, and {old.id} exists already"
            raise ToolError(message, ErrorKind.USER, "Choose another id, or change the existing schedule.")
        changed = store.set(by=Source.PERSON, **definition)
        console.hub.tell("schedules")
        return StatusAnswer(201, {**told, "schedule": _schedule(console, store, changed), "written": True})


def remove_schedule(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    with closing(schedules_of(console)) as store:
        _check_not_declared(store.get(request.path["id"]), "Remove it there.")
        gone = store.delete(request.path["id"], Source.PERSON)
    console.hub.tell("schedules")
    return {"removed": gone.id}


def pause_schedule(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    return _switch(console, request.path["id"], on=False)


def resume_schedule(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    return _switch(console, request.path["id"], on=True)


async def run_schedule(console: ConsoleState, request: ApiRequest) -> StatusAnswer:
    """Runs the schedule now. A person answers its questions here; its end is stored with the schedule."""
    name = str(request.path["id"])
    if not console.has_model:
        raise ToolError("no model is set, so no schedule can run", ErrorKind.CONFIG, console.model_problem)

    def check() -> None:
        with closing(schedules_of(console)) as store:
            store.get(name)
            if any(run.status is Status.RUNNING for run in store.history(name, 5)):
                raise ToolError(f"{name} is running already", ErrorKind.USER, "Wait until it is over.")

    await in_thread(check)
    console.begin(_run_now(console, name))
    return StatusAnswer(202, {"started": True})


async def _run_now(console: ConsoleState, name: str) -> None:
    with closing(schedules_of(console)) as store:
        try:
            await Runner(store, lambda schedule: _as_run(console, schedule)).now(name)
        finally:
            console.hub.tell("schedules")


async def _as_run(console: ConsoleState, schedule: Schedule) -> ScheduleOutcome:
    assert console.has_model
    prompt, run_id = scheduled_prompt(schedule), new_run_id()
    messages = console.agent.begin(prompt).messages
    session = f"{schedule.id}-{run_id.removeprefix('run-')}"
    console.hub.tell("schedules")

    def begin() -> None:
        console.runs.submit(
            prompt,
            agent=console.scope.agent,
            session=session,
            version=console.version,
            run_id=run_id,
            messages=messages,
            scope={INITIAL_MESSAGES: 0, "channel": "schedule", **({MODEL: COMMAND} if schedule.command else {})},
        )

    await in_thread(begin)
    run: RunInfo = await in_thread(lambda: console.runs.get(run_id))
    while not run.is_over:
        await asyncio.sleep(LOOK)
        run = await in_thread(lambda: console.runs.get(run_id))
    result = run.result or {}
    error = (result.get("error") or {}).get("message", "") if run.status != "finished" else ""
    success = run.status == "finished"
    return ScheduleOutcome(
        success=success,
        text=str(result.get("text", "")),
        error=error or ("" if success else run.status),
        session=session,
    )


def _switch(console: ConsoleState, name: str, *, on: bool) -> dict[str, Any]:
    with closing(schedules_of(console)) as store:
        found = store.get(name)
        _check_not_declared(found, f"Set `enabled: {str(on).lower()}` there.")
        changed = store.set(
            id=found.id,
            cron=found.cron,
            task=found.task,
            timezone=found.timezone,
            one_shot=found.one_shot,
            skill=found.skill,
            channel=found.channel,
            channel_target=found.channel_target,
            command=found.command,
            enabled=on,
            by=Source.PERSON,
        )
        console.hub.tell("schedules")
        return {"schedule": _schedule(console, store, replace(changed, origin=found.origin))}


def _check_not_declared(found: Schedule, hint: str) -> None:
    if found.source is Source.CONFIG or found.origin:
        message = f"{found.id} is declared in {found.origin or 'the configuration'}"
        raise ToolError(message, ErrorKind.USER, hint)


def _upcoming_times(rule: Cron, one: Schedule, now: float) -> list[float]:
    """Returns the next times of a schedule: one for a one-shot, none for a paused schedule."""
    found: list[float] = []
    following = rule.next_after(now) if one.enabled else None
    while following is not None and len(found) < (1 if one.one_shot else UPCOMING):
        found.append(following)
        following = rule.next_after(following)
    return found


def _schedule(console: ConsoleState, store: ScheduleStore, one: Schedule) -> dict[str, Any]:
    history = _history(console, store, one.id)
    begun = [row["due"] for row in history if row["status"] != Status.SKIPPED]
    try:
        rule = Cron.parse(one.cron, one.timezone)
        explained, following = rule.explain(), _next_time(rule, one, console.runs.store.now())
    except ToolError as error:
        explained, following = error.message, None
    return {
        **one.to_dict(),
        "explained": explained,
        "origin": one.origin,
        "next": following,
        "last": max([*begun, *([one.last_fire] if one.last_fire else [])], default=None),
        "running": any(row["status"] == Status.RUNNING for row in history),
        "history": history,
    }


def _next_time(rule: Cron, one: Schedule, now: float) -> float | None:
    """Computes the next time. Workers plan in the database of runs, so a past time of the schedule means nothing."""
    if one.next_fire is None or one.next_fire > now or one.one_shot:
        return one.next_fire
    return rule.next_after(now, one.next_fire)


def _history(console: ConsoleState, store: ScheduleStore, name: str) -> list[dict[str, Any]]:
    """Returns runs of workers and those started by hand or by `forge schedule run`, the newest first."""
    kept = store.history(name, MOST_HISTORY)
    by_hand = _runs_of(console, [one.session for one in kept if one.session])
    found = [replace(one, run_id=by_hand.get(one.session, "")) for one in kept]
    found += list_scheduled(console.runs.store, name, MOST_HISTORY)
    return [_row(one) for one in sorted(found, key=lambda one: -(one.started or one.due))[:MOST_HISTORY]]


def _runs_of(console: ConsoleState, sessions: Sequence[str]) -> dict[str, str]:
    query = sa.select(runs.c.session, runs.c.id).where(runs.c.session.in_(sessions), runs.c.parent == "")
    found = console.runs.store.database.read(lambda connection: connection.execute(query).all()) if sessions else []
    return {row.session: row.id for row in found}


def _row(one: ScheduleRun) -> dict[str, Any]:
    names = ["due", "started", "duration", "error", "session"]
    told = {name: getattr(one, name) for name in names}
    return {**told, "run": one.run_id, "status": str(one.status), "result": one.result[:LONGEST_RESULT]}


def schedules_of(console: ConsoleState) -> ScheduleStore:
    return open_schedule_store(console.configuration, console.workspace)
