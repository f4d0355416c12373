"""Holds the state of sessions (files read and changed, to-dos) and the current call, so that tools can record what they
do.
"""

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
from forge.workspace.paths import Location
from forge.workspace.state import NAME, explain_unusable, state_directory

if TYPE_CHECKING:  # they load SQLite, which a program that touches no file does without
    from forge.workspace.history.seen_files import FileLedger
    from forge.workspace.history.todos import Todos
    from forge.workspace.history.undo import UndoLog

STORE = "state.db"

log = logging.getLogger(__name__)


class SessionState:
    """The state of sessions, in one store: files read, changes that can be undone, and todo lists.

    Args:
        workspace: where the state is stored, made when it is first needed. Without one, or if it cannot be written, the
            state stays in memory.

    Example:
        >>> SessionState().path is None
        True
    """

    def __init__(self, workspace: Path | None = None) -> None:
        """`workspace`: where the state is stored, made when it is first needed. Without one, or if it cannot be
        written, the state stays in memory.
        """
        self._workspace = workspace

    @cached_property
    def path(self) -> Path | None:
        if self._workspace is None:
            return None
        directory = state_directory(self._workspace)
        if directory == self._workspace / NAME:
            return directory / STORE
        log.warning(
            "%s: files read and changed are remembered only until the end", explain_unusable(self._workspace)[0]
        )
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
        """Forgets what a session read. Its changes can still be undone."""
        self.seen.forget(session_id)

    def end(self, session_id: str) -> None:
        """Ends a session. With a project's file its changes can still be undone; in memory its undo log is dropped."""
        used = vars(self)  # parts that were never used are not made now
        if "seen" in used:
            self.seen.forget(session_id)
        if "undo" in used and self.path is None:
            self.undo.forget(session_id)
        if "todos" in used:
            self.todos.put(session_id, [])

    def remove(self, session_id: str) -> None:
        """Deletes all state of a session."""
        self.seen.forget(session_id)
        self.undo.forget(session_id)
        self.todos.put(session_id, [])

    def __repr__(self) -> str:
        return f"<SessionState in {self._workspace if self._workspace is not None else 'memory'}>"


class TrackedCall(NamedTuple):
    """The current call, and the state of its session."""

    state: SessionState
    session_id: str = LOCAL
    turn: str = ""
    call_id: str = ""
    tool: str = ""
    checked: bool = False  # True: a file must have been read before it is changed


_Read = tuple[Location, os.stat_result, bytes | None]

_waiting: ContextVar[list[_Read] | None] = ContextVar("waiting", default=None)
_untracked = TrackedCall(SessionState())
_current: ContextVar[TrackedCall] = ContextVar("tracking", default=_untracked)


def current_call() -> TrackedCall:
    """Returns the current call; without a tracking step, one with a state in memory that all calls share."""
    return _current.get()


@contextmanager
def track_call(now: TrackedCall) -> Iterator[None]:
    before = _current.set(now)
    try:
        yield
    finally:
        _current.reset(before)


def note_read(location: Location, status: os.stat_result, content: bytes | None = None) -> None:
    """Records that the model saw some of this file. `content` is the whole content, if it is at hand."""
    waiting = _waiting.get()
    if waiting is not None:
        waiting.append((location, status, content))
    else:
        _note_reads([(location, status, content)])


@contextmanager
def batch_read_notes() -> Iterator[None]:
    """Collects the files read inside the block and records them at its end, in one transaction."""
    waiting: list[_Read] = []
    before = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(before)
        _note_reads(waiting)


def _note_reads(reads: Sequence[_Read]) -> None:
    now = current_call()
    if not now.checked or not reads:
        return
    try:
        now.state.seen.note_all(
            now.session_id, [(str(location.path), status, text) for location, status, text in reads]
        )
    except ToolError as error:  # the read itself succeeded; a later change will ask to read the file again
        log.warning("the read of %s could not be recorded: %s", reads[0][0].shown, error)
