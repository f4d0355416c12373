"""Lists and undoes the changes of a session's file tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.tools.shared.change_files import change_files, preview_change
from forge.tools.shared.listing import printable

if TYPE_CHECKING:  # they load SQLite, which listing tools does without
    from forge.workspace.changes.commit import Change
    from forge.workspace.draft import Draft
    from forge.workspace.history.undo import UndoEntry, UndoFile

MAX_LISTED = 50
SHOWN = 10  # files or calls that are named; the data has them all


class Undo(
    Tool,
    category=Category.BUILTIN,
    groups={"code-agent"},
    argument_aliases={"id": "call_id", "call": "call_id", "turn_id": "turn", "message_id": "turn"},
    permissions={"write"},
):
    """List this session's file changes, or undo those of a call, a turn, or the last one."""

    def __init__(self, max_listed: int = MAX_LISTED) -> None:
        self.max_listed = max_listed

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """Returns the files that would be restored; none for the action list."""
        if arguments.get("action") != "apply":
            return []
        return _paths(_choose_entries(arguments.get("call_id") or "", arguments.get("turn") or ""))

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        if arguments.get("action") != "apply":
            return ""
        call_id, turn = arguments.get("call_id") or "", arguments.get("turn") or ""
        return await preview_change(ctx, lambda draft: plan(draft, _choose_entries(call_id, turn)))

    async def run(
        self,
        ctx: ToolContext,
        action: Literal["list", "apply"] = "list",
        call_id: Annotated[str, "As listed."] = "",
        turn: Annotated[str, "Instead of a call."] = "",
    ) -> ToolResult:
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without

        result: ToolResult
        if action == "list":
            result = await in_thread(lambda: self._list_changes(call_id, turn))
            return result
        entries: list[UndoEntry] = await in_thread(lambda: _choose_entries(call_id, turn))
        for path in _paths(entries):  # the last change may be another one than when this was approved
            await ctx.require("write", path)
        changes, draft = await change_files(ctx, _paths(entries), lambda draft: plan(draft, entries))
        result = await in_thread(lambda: _record_undo(entries, changes, draft.diff()))
        return result

    def _list_changes(self, call_id: str, turn: str) -> ToolResult:
        from forge.workspace.history.tracking import current_call

        now = current_call()
        shown = now.state.undo.entries(now.session_id, call_id=call_id, turn=turn, most=self.max_listed)
        total, some_lost = now.state.undo.count(now.session_id, call_id=call_id, turn=turn)
        lines = [_line(one) for one in shown]
        if total > len(shown):
            lines.append(f"[{len(shown)} of {total} changes, the latest first; ask for others by call_id or turn]")
        if some_lost:
            lines.append("[the oldest can no longer be undone: the old contents were dropped to make room]")
        text = "\n".join(lines) or "No file was changed by this session's tools."
        data = {
            "entries": [_describe_entry(one) for one in shown],
            "total": total,
            "truncated": total > len(shown),
        }
        return ToolResult(for_llm=text, for_user=text, title=f"{total} change{'s' * (total != 1)}", data=data)


def plan(draft: Draft, entries: Sequence[UndoEntry]) -> list[Change]:
    """Plans to restore the files as they were before these changes. Raises `ToolError` if one changed since."""
    from forge.workspace.history.tracking import current_call

    now = current_call()
    changes = now.state.undo.plan_restore(now.session_id, entries)
    for one in changes:
        draft.restore(one)
    return changes


def _choose_entries(call_id: str, turn: str) -> list[UndoEntry]:
    from forge.workspace.history.tracking import current_call

    if call_id and turn:
        raise ToolError("give call_id or turn, not both", ErrorKind.VALIDATION, "A turn holds all of its calls.")
    now = current_call()
    return now.state.undo.choose_entries(now.session_id, call_id=call_id, turn=turn)


def _record_undo(entries: Sequence[UndoEntry], changes: Sequence[Change], diff: str) -> ToolResult:
    """Records that the changes are undone, and builds the result."""
    from forge.workspace.history.tracking import current_call

    now = current_call()
    with suppress(ToolError):  # it is done, whatever the store says: what is as it was is not undone twice
        now.state.undo.mark(now.session_id, [one.id for one in entries], now.call_id)
    calls = _join_some([f"{one.call_id} ({one.tool})" for one in entries])
    changes = [one for one in changes if one.folder != "remove"] or changes  # folders are removed with their files
    if not changes:
        text = f"Nothing to do: the files are as they were before {calls}."
    else:
        text = f"Undid {calls}: {_join_some([_outcome(one) for one in changes])}."
    tools = ", ".join(dict.fromkeys(one.tool for one in entries))
    words = text.replace(calls, tools, 1)  # ids of calls are for the model
    return ToolResult(
        for_llm=text,
        for_user=f"{words}\n{diff}".rstrip("\n"),
        title=f"Undid {tools}",
        data={
            "undone": [{"call_id": one.call_id, "turn": one.turn, "tool": one.tool} for one in entries],
            "files": [{"path": one.location.shown, "status": _status(one)} for one in changes],
        },
    )


def _status(change: Change) -> str:
    is_removed = change.folder == "remove" if change.folder else change.after is None
    return "removed" if is_removed else "restored"


def _outcome(change: Change) -> str:
    return f"{printable(change.location.shown)} {_status(change)}"


def _join_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _paths(entries: Sequence[UndoEntry]) -> list[str]:
    """Returns what is written. A folder that a call made for its files is removed with the last of them."""
    files = (file for one in entries for file in one.files if not file.is_made_folder)
    return list(dict.fromkeys(_spell_path(file.shown) for file in files))


def _spell_path(shown: str) -> str:
    return f"./{shown}" if shown.startswith("~") else shown  # which would stand for a home directory


def _line(entry: UndoEntry) -> str:
    at = datetime.fromtimestamp(entry.time).strftime("%Y-%m-%d %H:%M:%S")
    shown = [file for file in entry.files if not file.is_made_folder] or entry.files
    files = _join_some([f"{printable(file.shown)} {_describe_file(file)}" for file in shown])
    notes = [*(["undone"] if entry.undone else []), *(["cannot be undone"] if _is_lost(entry) else [])]
    mark = f" [{', '.join(notes)}]" if notes else ""
    return f"{at}  call {entry.call_id}  turn {entry.turn or '-'}  {entry.tool}: {files}{mark}"


def _describe_entry(entry: UndoEntry) -> dict[str, Any]:
    return {
        "call_id": entry.call_id,
        "turn": entry.turn,
        "tool": entry.tool,
        "time": entry.time,
        "files": [
            {"path": file.shown, "action": _describe_file(file)} for file in entry.files if not file.is_made_folder
        ],
        "undone": entry.undone,
        "can_undo": not entry.undone and not _is_lost(entry),
    }


def _describe_file(file: UndoFile) -> str:
    if not file.before:
        return "created"
    return "updated" if file.after else "deleted"


def _is_lost(entry: UndoEntry) -> bool:
    return any(file.dropped for file in entry.files)
