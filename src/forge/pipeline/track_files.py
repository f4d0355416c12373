"""Step: tells the file tools which call runs, so that no unread file is overwritten and all changes can be undone."""

from __future__ import annotations

import os
from collections.abc import Iterator

from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.execution.chain import Next, StepObject
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.permissions.targets import targets_of
from forge.workspace.history.tracking import SessionState, TrackedCall, track_call
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.open import status_of

_FILES = {Permission.READ, Permission.WRITE}
_OURS = {Category.BUILTIN, Category.DEV}


class TrackFiles(StepObject):
    """Tracks the files of a call. Built-in tools record files themselves; for others, successful calls' named files."""

    name = "track_files"

    def __init__(self, state: SessionState | None = None) -> None:
        self._state = SessionState() if state is None else state

    def applies(self, spec: ToolSpec) -> bool:
        if spec.category in _OURS:
            return bool((spec.permissions | spec.optional_permissions) & _FILES)
        return bool(spec.target) and bool(spec.permissions) and spec.permissions <= _FILES

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        state, scope = self._state, ctx.scope
        now = TrackedCall(state, scope.session_id, scope.message_id, ctx.call.id, ctx.spec.name, checked=True)
        with track_call(now):
            result = await proceed(ctx)
        if result.failure is None and ctx.spec.category not in _OURS:
            for file, status in _find_touched(ctx):
                written = Permission.WRITE in ctx.spec.permissions
                state.seen.note(scope.session_id, str(file.path), status, written=written)
        return result

    def forget(self, session_id: str) -> None:
        if session_id:
            self._state.end(session_id)
        else:
            self._state.forget()


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
