"""Finds out whether a change of files took effect, by the digests of the files before and after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from forge.core.context import ToolContext
from forge.core.reconcile import Reconciled
from forge.core.result import ToolResult
from forge.tools.file_parts.listing import printable

if TYPE_CHECKING:  # it loads what only a change needs
    from forge.workspace.draft import Draft


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
    words = f"Changed {names}: the content is as planned."
    return Reconciled.done(
        ToolResult(for_llm=words, title=f"Changed {names}", data={"paths": list(files)}),
        "the files are as the call was to leave them",
    )


def _digest_files(ctx: ToolContext, paths: list[str]) -> dict[str, str]:
    from forge.workspace.draft import Draft, digest_content

    draft = Draft(ctx.scope, stopped=lambda: ctx.cancelled)
    return {path: digest_content(draft.read(draft.resolve(path))) for path in paths}
