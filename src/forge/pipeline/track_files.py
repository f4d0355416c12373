"""Step: tells the file tools which call runs, so that no unread file is overwritten and all changes can be undone."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Next, StepObject
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.permissions.targets import targets_of
from forge.workspace.history.tracking import SessionState, TrackedCall, current_call, track_call
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.open import status_of

log = logging.getLogger(__name__)

_FILES = {Permission.READ, Permission.WRITE}
_CHANGES = {Permission.WRITE, Permission.EXECUTE}
_OURS = {Category.BUILTIN, Category.DEV}
_NOT_BEGUN = {ErrorKind.PERMISSION, ErrorKind.SECURITY, ErrorKind.VALIDATION, ErrorKind.CONFIG, ErrorKind.NOT_FOUND}


class TrackFiles(StepObject):
    """Tracks the files of a call. Built-in tools record files themselves; for others, successful calls' named files.

    Names in the undo log what can change files without a record: programs on the real tree, and tools that are not
    Forge's.
    """

    name = "track_files"

    def __init__(self, state: SessionState | None = None) -> None:
        self._state = SessionState() if state is None else state

    @property
    def state(self) -> SessionState:
        """Holds what sessions read and changed."""
        return self._state

    def applies(self, spec: ToolSpec) -> bool:
        return _tracks_files(spec) or bool((spec.permissions | spec.optional_permissions) & _CHANGES)

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        state, scope, outer = self._state, ctx.scope, current_call()
        is_tracked = _tracks_files(ctx.spec)
        root = (outer.root or outer.call_id) if outer.session_id == scope.session_id else ""
        now = TrackedCall(
            state, scope.session_id, scope.message_id, ctx.call.id, ctx.spec.name, checked=is_tracked, root=root
        )
        note = _note_program(ctx, now)
        with track_call(now):
            result = await proceed(ctx)
        if note and _is_harmless(ctx, result):
            with suppress(ToolError):  # then it is named without need
                state.undo.mark_harmless(note)
        if is_tracked and result.failure is None and ctx.spec.category not in _OURS:
            for file, status in _find_touched(ctx):
                written = Permission.WRITE in ctx.spec.permissions
                state.seen.note(scope.session_id, str(file.path), status, written=written)
        return result

    def forget(self, session_id: str) -> None:
        if session_id:
            self._state.end(session_id)
        else:
            self._state.forget()


def _tracks_files(spec: ToolSpec) -> bool:
    if spec.category in _OURS:
        return bool((spec.permissions | spec.optional_permissions) & _FILES)
    return bool(spec.target) and bool(spec.permissions) and spec.permissions <= _FILES


def _note_program(ctx: ToolContext, now: TrackedCall) -> int:
    """Notes a call that may change files without a record, before it begins. Returns the note; 0: none."""
    spec, permissions = ctx.spec, ctx.spec.permissions | ctx.spec.optional_permissions
    if spec.category in _OURS and Permission.EXECUTE not in permissions:
        return 0  # it records what it changes
    if not permissions & _CHANGES or getattr(ctx.tool, "reports_usage", False):
        return 0  # it changes nothing; or it is a sub-agent, whose calls are noted
    line = next(iter(targets_of(spec, ctx.arguments, ctx.tool)), "")
    what = ctx.activity.secrets.mask_all(line)
    try:
        return now.state.undo.note_program(now.session_id, now.call_id, now.root, now.tool, what)
    except ToolError as error:
        log.warning("a rewind will not name the call of %s: %s", now.tool, error.message)
        return 0


def _is_harmless(ctx: ToolContext, result: ToolResult) -> bool:
    """Returns whether the call changed no file of the real tree, or everything it changed is recorded."""
    if "sandbox" in result.data:
        return "effects" in result.data or result.data.get("read_only") is True
    if result.failure is not None:
        return result.failure.kind in _NOT_BEGUN
    return ctx.spec.category in _OURS  # it ran no program


def _find_touched(ctx: ToolContext) -> Iterator[tuple[Location, os.stat_result]]:
    paths = PathValidator.of(ctx.scope)
    for target in targets_of(ctx.spec, ctx.arguments, ctx.tool):
        try:
            file = paths.resolve(target)
            status = status_of(file)
        except ToolError:  # no path, or one that is none of ours
            continue
        if status is not None:
            yield file, status
