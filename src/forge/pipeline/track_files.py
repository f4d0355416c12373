"""Step: remembers which files were read and written, and keeps built-in tools from overwriting what nobody read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.pipeline._step import having
from forge.workspace.seen import FileLedger

_FILES = {Permission.READ, Permission.WRITE}


def track_files(ledger: FileLedger | None = None) -> Step:
    """For tools that name paths as their target. Tools of others are only watched: they may know better."""
    ledger = FileLedger() if ledger is None else ledger

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        writes = Permission.WRITE in ctx.spec.permissions
        paths = [(shown, ctx.scope.workspace / shown) for shown in _paths(ctx)]
        if writes and ctx.spec.category is Category.BUILTIN:
            for shown, path in paths:
                ledger.check(ctx.scope.session_id, path, shown)
        result = await proceed(ctx)
        if result.failure is None:
            for _, path in paths:
                ledger.note(ctx.scope.session_id, path, written=writes)
        return result

    return having(step, applies=_touches_files, clear_state=ledger.forget)


def _touches_files(spec: ToolSpec) -> bool:
    return bool(spec.target) and bool(spec.permissions) and spec.permissions <= _FILES


def _paths(ctx: ToolContext) -> Iterator[str]:
    for name in ctx.spec.targets:
        value = ctx.arguments.get(name)
        for one in value if isinstance(value, list | tuple | set) else (value,):
            if isinstance(one, str | Path) and str(one) and "\0" not in str(one):
                yield str(one)
