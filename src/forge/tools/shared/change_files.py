"""Changes files for a tool: previews the plan for the approval, then applies it under locks, all or nothing.

After a crash it finds out by the files' digests whether a change took effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Reconciled, ToolResult
from forge.core.secrets import MASK
from forge.core.spec import Permission
from forge.tools.shared.listing import printable

if TYPE_CHECKING:
    from forge.core.secrets import Secrets
    from forge.workspace.draft import Draft


T = TypeVar("T")


async def change_files(ctx: ToolContext, paths: Sequence[str], plan: Callable[[Draft], T]) -> tuple[T, Draft]:
    """Plans and makes changes while the files are locked. Returns the plan's outcome and the draft."""
    from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without
    from forge.tools.shared.approved_paths import resolve_approved
    from forge.workspace.changes.journal import recover_once
    from forge.workspace.draft import Draft
    from forge.workspace.paths.locks import lock_directories

    locations = [location for path in paths for location in await resolve_approved(ctx, Permission.WRITE, path)]
    is_awaited = True

    def work() -> tuple[T, Draft]:
        draft = Draft(ctx.scope, within=locations, stopped=lambda: ctx.cancelled or not is_awaited)
        recover_once(ctx.scope)
        with lock_directories(locations):
            outcome = plan(draft)
            _keep_secrets(draft, ctx.activity.secrets)
            draft.commit()
        return outcome, draft

    try:
        made: tuple[T, Draft] = await in_thread(work)
    finally:
        is_awaited = False  # after a time-out or a cancellation the thread still runs, and must not change anything
    return made


async def preview_change(ctx: ToolContext, plan: Callable[[Draft], object]) -> str:
    """Returns the diff that the plan would make. Nothing is written."""
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
    """Refuses to write the mask of a secret over the secret: the model only saw the mask."""
    if secrets.pattern is None:
        return
    from forge.workspace.paths import quote_path  # loads what only a change needs

    for location, before, after in draft.list_replaced():
        if after.count(MASK.encode()) <= before.count(MASK.encode()):
            continue
        old, new = (len(secrets.pattern.findall(one.decode(errors="replace"))) for one in (before, after))
        if new < old:
            raise ToolError(
                f"{MASK} in {quote_path(location.shown)} stands for a hidden secret, which would be lost",
                ErrorKind.VALIDATION,
                f"Leave the lines with {MASK} as they are: file_edit changes others without touching them.",
            )


# Finds out whether a change of files took effect, by the digests of the files before and after it.


def note_changes(ctx: ToolContext, plan: Callable[[Draft], object]) -> Mapping[str, Any]:
    """Returns the digests of the files that the plan would change. Blocking; nothing is written."""
    from forge.workspace.draft import Draft

    draft = Draft(ctx.scope, stopped=lambda: ctx.cancelled)
    plan(draft)
    found = draft.digest_changes()
    return {} if found is None else {"files": found}


async def reconcile_changes(ctx: ToolContext) -> Reconciled:
    """Says "done" if all files are as they were to be, "not done" if all are as before, else "unknown"."""
    from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

    files = ctx.noted.get("files")
    if not isinstance(files, Mapping):
        return Reconciled.unknown("the files were not noted before the call")
    now = await in_thread(lambda: _digest_files(ctx, list(files)))
    if all(now[path] == before for path, (before, _) in files.items()):
        return Reconciled.not_done("the files are as they were before the call")
    if any(now[path] != after for path, (_, after) in files.items()):
        return Reconciled.unknown("the files are neither as before the call nor as the call was to leave them")
    names = ", ".join(printable(path) for path in files)
    message = f"Changed {names}: the content is as planned."
    return Reconciled.done(
        ToolResult(for_llm=message, title=f"Changed {names}", data={"paths": list(files)}),
        "the files are as the call was to leave them",
    )


def _digest_files(ctx: ToolContext, paths: list[str]) -> dict[str, str]:
    from forge.workspace.draft import Draft, digest_content

    draft = Draft(ctx.scope, stopped=lambda: ctx.cancelled)
    return {path: digest_content(draft.read(draft.resolve(path))) for path in paths}
