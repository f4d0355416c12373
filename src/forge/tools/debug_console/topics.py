"""Renders each topic of `debug_console`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.core.tool import Tool
from forge.tools.debug_console.record import RecordEntry, Recorder

LONGEST_LINE = 300  # characters of an entry that the model reads


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A request for a topic, with the data visible from its call."""

    ctx: ToolContext
    registry: ToolRegistry
    recorder: Recorder | None
    name: str
    limit: int
    watched: bool  # whether anything was recorded before this call

    def of_session(self, entries: Sequence[RecordEntry]) -> list[RecordEntry]:
        """Returns the entries of this session and the requested tool, without this call."""
        own = self.ctx.call.id
        return [
            entry
            for entry in entries
            if entry.session == self.ctx.scope.session_id
            and self.name in ("", entry.name)
            and entry.facts.get("id") != own
        ]


def _show_history(look: TopicRequest) -> ToolResult:
    entries = look.of_session(look.recorder.history() if look.recorder else [])
    return _list_entries(look, "history", entries)


def _show_results(look: TopicRequest) -> ToolResult:
    entries = look.of_session(look.recorder.results() if look.recorder else [])
    return _list_entries(look, "results", entries)


def _show_events(look: TopicRequest) -> ToolResult:
    entries = look.of_session(look.recorder.events() if look.recorder else [])
    return _list_entries(look, "events", entries)


def _show_approvals(look: TopicRequest) -> ToolResult:
    """Shows pending and answered approvals, and the remembered "always" answers."""
    from forge.permissions.call_gate import gate_of  # loads what only a call needs, as the others below

    asked = look.of_session(look.recorder.list_unanswered() if look.recorder else [])
    answered = look.of_session(look.recorder.answers() if look.recorder else [])[-look.limit :]
    always = gate_of(look.ctx).remembered(look.ctx.scope.session_id)
    lines = [
        *_section("Pending", [_line(entry) for entry in asked]),
        *_section("Answered", [f"{_line(entry)}: {entry.facts['answer']}" for entry in answered]),
        *_section("Always allowed", always[-look.limit :]),
        *_recording_note(look),
    ]
    data = {"topic": "approvals", "pending": _data(asked), "answered": _data(answered), "always": always}
    return ToolResult(for_llm="\n".join(lines), data=data)


def _show_background(look: TopicRequest) -> ToolResult:
    """Shows running calls, work that continues after its call, and the jobs of `bash`."""
    from forge.process.running.jobs import list_jobs

    running = look.of_session(look.recorder.list_running() if look.recorder else [])
    going_on = look.of_session(look.recorder.background() if look.recorder else [])
    jobs = [
        {"job_id": job.id, "status": job.status, "command": job.command, "duration": round(job.duration, 3)}
        for job in list_jobs(look.ctx.scope.session_id)
    ]
    lines = [
        *_section("Running calls", [_line(entry) for entry in running]),
        *_section("Running in the background", [_line(entry) for entry in going_on]),
        *_section("Jobs", [f"{job['job_id']}: {job['status']}: {_clip(str(job['command']))}" for job in jobs]),
        *_recording_note(look),
    ]
    data = {"topic": "background", "running": _data(running), "background": _data(going_on), "jobs": jobs}
    return ToolResult(for_llm="\n".join(lines), data=data)


def _show_session(look: TopicRequest) -> ToolResult:
    """Shows the scope, the files seen, the possible undos and the plan of this session."""
    from forge.workspace.history.tracking import SessionState, current_call

    scope, now = look.ctx.scope, current_call()
    state = now.state if now.checked else SessionState(scope.workspace if _has_state(scope.workspace) else None)
    files = list(state.seen.files(scope.session_id).items())[-look.limit :]
    entries = state.undo.entries(scope.session_id)[: look.limit]
    todos = state.todos.get(scope.session_id)
    undo: list[dict[str, Any]] = [
        {"id": one.id, "tool": one.tool, "undone": one.undone, "files": [file.shown for file in one.files]}
        for one in entries
    ]
    about = {"session": scope.session_id, "agent": scope.agent, "turn": scope.message_id, "writes": scope.writes}
    lines = [
        *(f"{key}: {value}" for key, value in about.items()),
        f"workspace: {scope.workspace}",
        *_section("Files seen", [f"{path}{' (written)' if seen.written else ''}" for path, seen in files]),
        *_section("Can be undone", [f"{one['id']}: {one['tool']}: {', '.join(one['files'])}" for one in undo]),
        *_section("Planned", [f"{item.get('status')}: {_clip(str(item.get('content')))}" for item in todos]),
    ]
    data = {
        "topic": "session",
        **about,
        "workspace": str(scope.workspace),
        "roots": [str(root.path) for root in scope.roots],
        "files": [{"path": path, "size": seen.size, "written": seen.written} for path, seen in files],
        "undo": undo,
        "todos": todos,
    }
    return ToolResult(for_llm="\n".join(lines), data=data)


def _has_state(workspace: Path) -> bool:
    """Returns True if session state exists: looking at it must not create it."""
    from forge.workspace.history.tracking import STORE
    from forge.workspace.state import NAME

    return (workspace / NAME / STORE).is_file()


def _show_registry(look: TopicRequest) -> ToolResult:
    """Shows the tools of the run, or all details of one."""
    if look.name:
        return _tool(look)
    shown = list(look.registry.values())[: look.limit]
    rows = [_row(tool.spec) for tool in shown]
    lines = [f"{len(look.registry)} tools, version {look.registry.version}"]
    for row in rows:
        flags = [row["category"], *row["permissions"], *(["hidden"] if row["hidden"] else [])]
        lines.append(f"- {row['name']} ({', '.join(flags)})")
    if len(look.registry) > len(shown):
        lines.append(f"[{len(look.registry) - len(shown)} more; raise limit, or give name]")
    if (steps := _steps(look, None)) is not None:
        lines.append(f"steps: {', '.join(steps)}")
    data = {"topic": "registry", "total": len(look.registry), "tools": rows, "steps": steps}
    return ToolResult(for_llm="\n".join(lines), data=data)


def _tool(look: TopicRequest) -> ToolResult:
    tool: Tool = look.registry.find(look.name)
    if tool.spec.name not in look.registry:
        raise ToolError(
            f"there is no tool {look.name[:80]!r} in this run", ErrorKind.NOT_FOUND, "See all with topic=registry."
        )
    spec, steps = tool.spec, _steps(look, tool.spec)
    about = {
        **_row(spec),
        "description": spec.description,
        "aliases": list(spec.aliases),
        "groups": sorted(spec.groups),
        "target": spec.target,
        "harmless": sorted(spec.harmless),
        "irreversible": spec.irreversible,
        "timeout": spec.timeout,
        "origin": spec.origin,
        "class": f"{type(tool).__module__}.{type(tool).__qualname__}",
        "steps": steps,
    }
    lines = [f"{key}: {', '.join(value) if isinstance(value, list) else value}" for key, value in about.items()]
    return ToolResult(for_llm="\n".join(lines), data={"topic": "registry", **about, "parameters": spec.parameters})


def _steps(look: TopicRequest, spec: ToolSpec | None) -> list[str] | None:
    """Returns the steps around every call, or around those of one tool; None if they are unknown."""
    if look.recorder is None or look.recorder.steps is None:
        return None
    applied = [
        step for step in look.recorder.steps if spec is None or not hasattr(step, "applies") or step.applies(spec)
    ]
    return [getattr(step, "__module__", "").rpartition(".")[2] or type(step).__name__ for step in applied]


def _row(spec: ToolSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "category": str(spec.category),
        "permissions": sorted(map(str, spec.permissions)),
        "hidden": spec.hidden,
    }


def _list_entries(look: TopicRequest, topic: str, entries: list[RecordEntry]) -> ToolResult:
    shown = entries[-look.limit :]
    lines = [_line(entry) for entry in shown] or ["Nothing yet."]
    if len(entries) > len(shown):
        lines.insert(0, f"[{len(entries) - len(shown)} earlier entries; raise limit to see them]")
    data = {"topic": topic, "total": len(entries), "entries": _data(shown), "complete": look.watched}
    return ToolResult(for_llm="\n".join([*lines, *_recording_note(look)]), data=data)


def _recording_note(look: TopicRequest) -> list[str]:
    return [] if look.watched else ["[events before this call were not recorded; later ones are]"]


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"{title}:", *(f"- {line}" for line in lines)] if lines else [f"{title}: none"]


def _line(entry: RecordEntry) -> str:
    mark = "" if entry.facts.get("success", True) else " failed"
    head = f"{time.strftime('%H:%M:%S', time.localtime(entry.at))} {entry.kind}{mark}"
    return f"{head} {entry.name}: {_clip(entry.text)}" if entry.name else f"{head}: {_clip(entry.text)}"


def _data(entries: Sequence[RecordEntry]) -> list[dict[str, Any]]:
    return [
        {"kind": one.kind, "at": one.at, "agent": one.agent, "name": one.name, "text": one.text, **one.facts}
        for one in entries
    ]


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


TOPICS: Mapping[str, Callable[[TopicRequest], ToolResult]] = {
    "history": _show_history,
    "registry": _show_registry,
    "results": _show_results,
    "approvals": _show_approvals,
    "session": _show_session,
    "background": _show_background,
    "events": _show_events,
}
