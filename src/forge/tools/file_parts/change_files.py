"""How a tool changes files: what it plans is shown before it is asked about, and made under locks, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import Permission

if TYPE_CHECKING:  # it loads what only a change needs
    from forge.core.secrets import Secrets
    from forge.workspace.draft import Draft

T = TypeVar("T")


async def change(ctx: ToolContext, paths: Sequence[str], plan: Callable[[Draft], T]) -> tuple[T, Draft]:
    """Plan and make changes while nobody else changes these files. Returns the plan's outcome, and what was made."""
    from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without
    from forge.tools.file_parts.resolve_path import approved
    from forge.workspace.changes.journal import recover_once
    from forge.workspace.draft import Draft
    from forge.workspace.paths.locks import lock_directories

    places = [place for path in paths for place in await approved(ctx, Permission.WRITE, path)]
    is_awaited = True

    def work() -> tuple[T, Draft]:
        draft = Draft(ctx.scope, within=places, stopped=lambda: ctx.cancelled or not is_awaited)
        recover_once(ctx.scope)
        with lock_directories(places):
            outcome = plan(draft)
            _keep_secrets(draft, ctx.activity.secrets)
            draft.commit()
        return outcome, draft

    try:
        made: tuple[T, Draft] = await in_thread(work)
    finally:
        is_awaited = False  # the thread goes on after a time-out or a cancellation, and must not change anything then
    return made


async def foreseen(ctx: ToolContext, plan: Callable[[Draft], object]) -> str:
    """The diff that the plan would make. Nothing is written."""
    from forge.core.execution.threads import in_thread
    from forge.workspace.draft import Draft

    is_awaited = True

    def work() -> str:
        draft = Draft(ctx.scope, stopped=lambda: ctx.cancelled or not is_awaited)
        plan(draft)
        _keep_secrets(draft, ctx.activity.secrets)
        return draft.diff()

    try:
        diff: str = await in_thread(work)
    finally:
        is_awaited = False
    return diff


def _keep_secrets(draft: Draft, secrets: Secrets) -> None:
    """Refuse to write the mask of a secret over the secret: the model was shown nothing else of it."""
    if secrets.pattern is None:
        return
    from forge.core.secrets import MASK
    from forge.workspace.paths import quote_path  # loads what only a change needs

    for place, before, after in draft.list_replaced():
        if after.count(MASK.encode()) <= before.count(MASK.encode()):
            continue
        old, new = (len(secrets.pattern.findall(one.decode(errors="replace"))) for one in (before, after))
        if new < old:
            raise ToolError(
                f"in {quote_path(place.shown)} {MASK} stands for a secret that is not shown, and would be lost",
                ErrorKind.VALIDATION,
                f"Leave the lines with {MASK} as they are: file_edit changes others without touching them.",
            )
