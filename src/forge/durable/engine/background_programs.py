"""Ends programs that calls of stored runs left running in this process, when their run is over."""

from __future__ import annotations

from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.session_end import end_started, sessions_with_programs
from forge.core.execution.threads import in_thread
from forge.durable.engine import background
from forge.durable.engine.attempt import ATTEMPTS
from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo


class _SessionRuns(NamedTuple):
    runs: set[str]
    talks: set[bool]  # True: a person may continue the session with another run


_sessions: dict[str, _SessionRuns] = {}


def note_run(run: RunInfo, session: str) -> None:
    """Notes a run that this process works on, so that its programs end when it is over."""
    noted = _sessions.setdefault(session, _SessionRuns(set(), set()))
    noted.runs.add(run.id)
    noted.talks.add(bool(run.session) and not _is_scheduled(run))


async def end_finished(store: RunStore, *, keep_conversations: bool = False) -> None:
    """Ends the programs of runs that are over, here or on another worker. A sub-agent's programs end with its parent
    run.
    """
    holding = sessions_with_programs()
    for session, noted in list(_sessions.items()):
        if _is_busy(noted):
            continue
        if session not in holding:
            del _sessions[session]
        elif not (keep_conversations and True in noted.talks):
            is_over = await in_thread(lambda: all(_is_over(store, run) for run in noted.runs))  # noqa: B023
            if is_over and not _is_busy(noted) and _sessions.get(session) is noted:
                del _sessions[session]
                end_started(session)


def end_all() -> None:
    """Ends all programs when the worker leaves."""
    for session in sessions_with_programs() & _sessions.keys():
        end_started(session)
    _sessions.clear()


def _is_busy(noted: _SessionRuns) -> bool:
    return not noted.runs.isdisjoint((*ATTEMPTS, *background.list_held()))


def _is_over(store: RunStore, run_id: str) -> bool:
    try:
        run = store.get(run_id)
        while run.parent:
            run = store.get(run.parent)
        return run.is_over
    except ToolError as error:
        if error.kind is ErrorKind.NOT_FOUND:  # the run was deleted
            return True
        raise


def _is_scheduled(run: RunInfo) -> bool:
    return bool(run.scope.get("schedule")) or run.scope.get("channel") == "schedule"
