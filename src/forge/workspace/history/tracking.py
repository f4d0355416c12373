"""What a session did to files: read, changed, planned; and which call is at work now, so that tools can note it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from forge.core.context import LOCAL
from forge.core.errors import ToolError
from forge.workspace.paths import Place
from forge.workspace.state import NAME, state_directory, why_not

if TYPE_CHECKING:  # they load SQLite, which a program that touches no file does without
    from forge.workspace.history.seen_files import FileLedger
    from forge.workspace.history.todos import Todos
    from forge.workspace.history.undo import UndoLog

STORE = "state.db"

log = logging.getLogger(__name__)


class SessionState:
    """The state of sessions, in one store: a project's own file, or memory."""

    def __init__(self, workspace: Path | None = None) -> None:
        """A workspace's own, made when it is first needed; in memory without one, or where it cannot be written."""
        self._workspace = workspace

    @cached_property
    def path(self) -> Path | None:
        if self._workspace is None:
            return None
        directory = state_directory(self._workspace)
        if directory == self._workspace / NAME:
            return directory / STORE
        log.warning("%s: what was read and changed is forgotten at the end", why_not(self._workspace)[0])
        return None

    @cached_property
    def seen(self) -> FileLedger:
        from forge.workspace.history.seen_files import FileLedger

        return FileLedger(self.path)

    @cached_property
    def undo(self) -> UndoLog:
        from forge.workspace.history.undo import UndoLog

        return UndoLog(self.path)

    @cached_property
    def todos(self) -> Todos:
        from forge.workspace.history.todos import Todos

        return Todos(self.path)

    def forget(self, session_id: str = "") -> None:
        """A session begins anew: it has read nothing. What it changed can still be undone."""
        self.seen.forget(session_id)

    def end(self, session_id: str) -> None:
        """A session is over. In a project's file, what it changed can still be undone; in memory nobody could ask."""
        used = vars(self)  # what was never needed is not made for this
        if "seen" in used:
            self.seen.forget(session_id)
        if "undo" in used and self.path is None:
            self.undo.forget(session_id)
        if "todos" in used:
            self.todos.put(session_id, [])

    def remove(self, session_id: str) -> None:
        """A session is deleted: nothing of it is kept."""
        self.seen.forget(session_id)
        self.undo.forget(session_id)
        self.todos.put(session_id, [])


class Tracking(NamedTuple):
    """The call at work, and where its session's state is."""

    state: SessionState
    session_id: str = LOCAL
    turn: str = ""
    call_id: str = ""
    tool: str = ""
    checked: bool = False  # whether a file must have been read before it is changed


_Read = tuple[Place, os.stat_result, bytes | None]

_waiting: ContextVar[list[_Read] | None] = ContextVar("waiting", default=None)
_untracked = Tracking(SessionState())
_current: ContextVar[Tracking] = ContextVar("tracking", default=_untracked)


def current() -> Tracking:
    """What is known of the call at work; a state in memory, shared by all, where no step tracks it."""
    return _current.get()


@contextmanager
def tracking(now: Tracking) -> Iterator[None]:
    before = _current.set(now)
    try:
        yield
    finally:
        _current.reset(before)


def note_read(place: Place, status: os.stat_result, content: bytes | None = None) -> None:
    """The model saw some of this file. `content` is all of it, where it is at hand."""
    waiting = _waiting.get()
    if waiting is not None:
        waiting.append((place, status, content))
    else:
        _note([(place, status, content)])


@contextmanager
def noted_together() -> Iterator[None]:
    """What is read meanwhile is noted at the end, in one go."""
    waiting: list[_Read] = []
    before = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(before)
        _note(waiting)


def _note(reads: Sequence[_Read]) -> None:
    now = current()
    if not now.checked or not reads:
        return
    try:
        now.state.seen.note_all(now.session_id, [(str(place.path), status, text) for place, status, text in reads])
    except ToolError as error:  # what was read is read; a later change will say that it was not
        log.warning("that %s was read could not be noted: %s", reads[0][0].shown, error)
