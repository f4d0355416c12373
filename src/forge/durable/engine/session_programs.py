"""Ends programs that calls of stored runs left running in this process, when their run is over."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.session_programs import end_started, sessions_with_programs
from forge.core.execution.threads import in_thread
from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo


@dataclass(slots=True, eq=False)
class _SessionRuns:
    """The runs of a session that this worker has worked on."""

    runs: set[str] = field(default_factory=set)
    may_continue: bool = False  # a person may continue the session with another run


class SessionPrograms:
    """The sessions whose runs a worker has worked on. `busy`: lists the runs that it works on right now."""

    def __init__(self, store: RunStore, busy: Callable[[], Collection[str]]) -> None:
        self._store, self._busy = store, busy
        self._sessions: dict[str, _SessionRuns] = {}

    def note_run(self, run: RunInfo, session: str) -> None:
        """Notes a run that this process works on, so that its programs end when it is over."""
        noted = self._sessions.setdefault(session, _SessionRuns())
        noted.runs.add(run.id)
        noted.may_continue |= bool(run.session) and not _is_scheduled(run)

    async def end_finished(self, *, keep_conversations: bool = False) -> None:
        """Ends the programs of runs that are over, here or on another worker. A sub-agent's programs end with its
        parent run.
        """
        for session, noted in list(self._sessions.items()):
            if not self._is_idle(session, noted):
                continue
            if session not in sessions_with_programs():  # as it is now: the check of another session took its time
                del self._sessions[session]
            elif not (keep_conversations and noted.may_continue):
                is_over = await in_thread(lambda: all(_is_over(self._store, run) for run in noted.runs))  # noqa: B023
                if is_over and self._is_idle(session, noted):
                    del self._sessions[session]
                    end_started(session)

    def end_all(self) -> None:
        """Ends all programs when the worker leaves."""
        for session in sessions_with_programs() & self._sessions.keys():
            end_started(session)
        self._sessions.clear()

    def _is_idle(self, session: str, noted: _SessionRuns) -> bool:
        """Returns whether the session is still noted, and none of its runs is at work."""
        return self._sessions.get(session) is noted and noted.runs.isdisjoint(self._busy())


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
