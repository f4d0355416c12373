"""Inspects the live run: records its events, and shows them, pending approvals and stored session state by topic."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from forge.core.arguments.parameters import ParameterLimits, Setting
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool
from forge.workspace.state import NAME

if TYPE_CHECKING:
    from forge.core import events as happened
    from forge.core.activity import ActivityStream
    from forge.core.executor import ToolExecutor
    from forge.core.messages import ToolCall


LIMIT = 20  # entries
MOST_ENTRIES = 200

Topic = Literal["history", "registry", "results", "approvals", "session", "background", "events"]


class DebugConsole(
    Tool,
    category=Category.DEV,
    argument_aliases={"command": "topic", "section": "topic", "tool": "name", "max_results": "limit"},
    permissions={"execute"},  # as all development tools, so that nothing offers it where only reading is meant
    optional_permissions={"read"},
    timeout=30.0,
):
    """Inspect this run: its history, tools, last results, pending approvals, session state, background work, events."""

    def __init__(self, registry: ToolRegistry, max_entries: int = MOST_ENTRIES) -> None:
        self._registry = registry
        self.max_entries = max_entries
        self._recorders: WeakKeyDictionary[ActivityStream, ActivityRecorder] = WeakKeyDictionary()
        self.show_settings()

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"limit": Setting(min(LIMIT, self.max_entries))}

    def inside(self, registry: ToolRegistry) -> DebugConsole:
        """Returns a copy for a sub-agent: it sees the sub-agent's tools and the events of the whole run."""
        other = DebugConsole(registry, self.max_entries)
        other._recorders = self._recorders
        return other

    def watch(self, executor: ToolExecutor) -> None:
        """Starts recording now, instead of at the first call."""
        self._recorder(executor.activity).steps = executor.steps

    async def run(
        self,
        ctx: ToolContext,
        topic: Annotated[Topic, "What to look at."] = "history",
        name: Annotated[str, "Only entries about this tool; with registry: its details."] = "",
        limit: Annotated[int, ParameterLimits(ge=1, le=MOST_ENTRIES), "How many of the latest entries."] = LIMIT,
    ) -> ToolResult:
        from forge.core.execution.threads import in_thread  # they load what only a call needs

        known = ctx.owner is not None and ctx.activity in self._recorders
        recorder = self._recorder(ctx.activity) if ctx.owner is not None else None
        look = TopicRequest(ctx, self._registry, recorder, name.strip(), min(limit, self.max_entries), known)
        found: ToolResult = await in_thread(lambda: TOPICS[topic](look))
        return found.masked(ctx.activity.secrets.mask_everything)

    def required_permissions(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        """Asks only to read: asking for more would wait for the very question to inspect."""
        return [(Permission.READ, "")]

    def _recorder(self, activity: ActivityStream) -> ActivityRecorder:
        recorder = self._recorders.get(activity)
        if recorder is None:
            recorder = self._recorders[activity] = ActivityRecorder()
            activity.subscribe(recorder.take)
        return recorder


# Renders each topic of `debug_console`.

LONGEST_LINE = 300  # characters of an entry that the model reads


class TopicRequest(NamedTuple):
    """A request for a topic, with the data visible from its call."""

    ctx: ToolContext
    registry: ToolRegistry
    recorder: ActivityRecorder | None
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
    from forge.permissions.gate import gate_of  # loads what only a call needs, as the others below

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
    """Returns whether session state exists: looking at it must not create it."""
    from forge.workspace.history.tracking import STORE

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
    from forge.core.execution.chain import StepObject, step_name

    steps = look.recorder.steps
    return [step_name(one) for one in steps if spec is None or not isinstance(one, StepObject) or one.applies(spec)]


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


# Records a run's events: the latest of each kind, within bounds.

MOST_RECORDED = 500  # entries of each kind
LONGEST_TEXT = 4_000  # characters of one text


@dataclass(slots=True, eq=False, repr=False)
class RecordEntry:
    """One thing that happened: `facts` for programs, `text` for people."""

    session: str
    agent: str
    at: float
    kind: str
    name: str = ""  # of the tool
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class ActivityRecorder:
    """Listens to an activity stream, which has masked secrets already. Safe to read from another thread."""

    def __init__(self) -> None:
        self.steps: tuple[Any, ...] | None = None  # of the executor, where it is known
        self._lock = threading.Lock()
        self._history: deque[RecordEntry] = deque(maxlen=MOST_RECORDED)
        self._results: deque[RecordEntry] = deque(maxlen=MOST_RECORDED)
        self._events: deque[RecordEntry] = deque(maxlen=MOST_RECORDED)
        self._answers: deque[RecordEntry] = deque(maxlen=MOST_RECORDED)
        self._running: dict[str, RecordEntry] = {}  # by the id of their call, here and below
        self._asked: dict[str, list[RecordEntry]] = {}
        self._background: dict[str, RecordEntry] = {}

    def take(self, event: happened.Event) -> None:
        with self._lock:
            self._note(event)

    def history(self) -> list[RecordEntry]:
        return self._copy(self._history)

    def results(self) -> list[RecordEntry]:
        return self._copy(self._results)

    def events(self) -> list[RecordEntry]:
        return self._copy(self._events)

    def answers(self) -> list[RecordEntry]:
        return self._copy(self._answers)

    def list_running(self) -> list[RecordEntry]:
        return self._copy(self._running.values())

    def list_unanswered(self) -> list[RecordEntry]:
        """Returns the questions that have no answer yet."""
        with self._lock:
            return [entry for entries in self._asked.values() for entry in entries]

    def background(self) -> list[RecordEntry]:
        return self._copy(self._background.values())

    def _copy(self, entries: Any) -> list[RecordEntry]:
        with self._lock:
            return list(entries)

    def _note(self, event: happened.Event) -> None:
        from forge.core import events as happened  # listing tools does without them

        match event:
            case happened.TextDelta():
                self._append_text(event)
                return  # pieces of a text are no news each
            case happened.ToolOutput() | happened.ReasoningDelta() | happened.ToolArgumentsDelta():
                return
            case happened.RunStarted(prompt=prompt):
                self._history.append(_entry(event, "prompt", "", prompt))
            case happened.ToolStarted(call=call):
                entry = _entry(event, "call", call.name, _arguments(call), id=call.id)
                self._history.append(entry)
                _add_bounded(self._running, call.id, entry)
            case happened.ToolFinished(call=call, result=result):
                self._record_end(event, call, result, round(event.seconds, 3))
            case happened.ToolCompleted(call=call, result=result):
                self._background.pop(call.id, None)
                entry = _result(event, call, result)
                self._results.append(entry)
                self._history.append(entry)
            case happened.PermissionAsked(call=call):
                parts = ((event.permission, event.target), *event.others)
                wanted = ", ".join(f"{permission} {target}".strip() for permission, target in parts)
                entry = _entry(event, "asked", call.name, wanted, id=call.id, rule=event.rule)
                _add_bounded(self._asked, call.id, [*self._asked.get(call.id, ()), entry])
            case happened.PermissionAnswered(call=call):
                for asked in self._asked.pop(call.id, ()):
                    facts = {**asked.facts, "answer": event.answer, "by": event.by}
                    self._answers.append(_entry(event, "answered", call.name, asked.text, **facts))
            case happened.RunFinished(text=text):
                self._history.append(_entry(event, "end", "", text, reason=event.reason, turns=event.turns))
        of: ToolCall | None = getattr(event, "call", None)
        about = {"id": of.id} if of is not None else {}
        self._events.append(
            _entry(event, event.type, of.name if of is not None else "", _describe_event(event), **about)
        )

    def _append_text(self, event: happened.TextDelta) -> None:
        """Appends a piece of a model's text: consecutive pieces of one agent are one entry."""
        last = self._history[-1] if self._history else None
        if last is None or (last.kind, last.session, last.agent) != ("text", event.session, event.agent):
            last = _entry(event, "text", "", "")
            self._history.append(last)
        if len(last.text) < LONGEST_TEXT:
            last.text = _shorten(last.text + event.text)

    def _record_end(self, event: happened.Event, call: ToolCall, result: ToolResult, seconds: float) -> None:
        self._running.pop(call.id, None)
        self._asked.pop(call.id, None)
        entry = _result(event, call, result, seconds=seconds)
        self._results.append(entry)
        self._history.append(entry)
        if result.pending:
            _add_bounded(
                self._background, call.id, _entry(event, "background", call.name, _arguments(call), id=call.id)
            )


def _entry(event: happened.Event, kind: str, name: str, text: str, **facts: Any) -> RecordEntry:
    return RecordEntry(event.session, event.agent, event.at, kind, name, _shorten(text), facts)


def _result(event: happened.Event, call: ToolCall, result: ToolResult, **facts: Any) -> RecordEntry:
    failure = {"error_type": str(result.failure.kind)} if result.failure else {}
    return _entry(event, "result", call.name, result.for_llm, id=call.id, success=result.success, **failure, **facts)


def _add_bounded(entries: dict[str, Any], key: str, value: Any) -> None:
    """Adds an entry and drops the oldest beyond the limit."""
    entries[key] = value
    while len(entries) > MOST_RECORDED:
        del entries[next(iter(entries))]


def _arguments(call: ToolCall) -> str:
    if isinstance(call.arguments, str):
        return _shorten(call.arguments)
    return _shorten(json.dumps(call.arguments, ensure_ascii=False, default=str))


def _describe_event(event: happened.Event) -> str:
    """Describes an event by the fields that distinguish it."""
    shown = ("title", "text", "error", "answer", "prompt", "reason", "turn", "success")
    return _shorten(", ".join(_event_words(event, shown)))


def _event_words(event: happened.Event, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        value = getattr(event, name, None)
        if value not in (None, ""):
            yield f"{name}={str(value)[:200]}"


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
