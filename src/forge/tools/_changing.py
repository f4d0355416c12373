"""How a tool changes files: what it plans is shown before it is asked about, and made under locks, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from forge.core.context import ToolContext
from forge.core.spec import Permission

if TYPE_CHECKING:  # it loads what only a change needs
    from forge.workspace.draft import Draft

T = TypeVar("T")


async def change(ctx: ToolContext, paths: Sequence[str], plan: Callable[[Draft], T]) -> tuple[T, Draft]:
    """Plan and make changes while nobody else changes these files. Returns the plan's outcome, and what was made."""
    from forge.core.threads import in_thread  # imports asyncio, which listing tools does without
    from forge.tools._places import approved
    from forge.workspace.draft import Draft
    from forge.workspace.journal import recover_once
    from forge.workspace.locks import locked

    places = [place for path in paths for place in await approved(ctx, Permission.WRITE, path)]

    def work() -> tuple[T, Draft]:
        draft = Draft(ctx.scope, within=places)
        recover_once(ctx.scope)
        with locked(places):
            outcome = plan(draft)
            draft.commit()
        return outcome, draft

    made: tuple[T, Draft] = await in_thread(work)
    return made


async def foreseen(ctx: ToolContext, plan: Callable[[Draft], object]) -> str:
    """The diff that the plan would make. Nothing is written."""
    from forge.core.threads import in_thread
    from forge.workspace.draft import Draft

    def work() -> str:
        draft = Draft(ctx.scope)
        plan(draft)
        return draft.diff()

    diff: str = await in_thread(work)
    return diff
