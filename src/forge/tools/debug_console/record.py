"""Records a run's events: the latest of each kind, within bounds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forge.core import events as happened
from forge.core.messages import ToolCall
from forge.core.result import ToolResult

MOST = 500  # entries of each kind
LONGEST = 4_000  # characters of one text


@dataclass(slots=True)
class RecordEntry:
    """One thing that happened: `facts` for programs, `text` for people."""

    session: str
    agent: str
    at: float
    kind: str
    name: str = ""  # of the tool
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class Recorder:
    """Listens to an activity stream, which has masked secrets already. Safe to read from another thread."""

    def __init__(self) -> None:
        self.steps: tuple[Any, ...] | None = None  # of the executor, where it is known
        self._lock = threading.Lock()
        self._history: deque[RecordEntry] = deque(maxlen=MOST)
        self._results: deque[RecordEntry] = deque(maxlen=MOST)
        self._events: deque[RecordEntry] = deque(maxlen=MOST)
        self._answers: deque[RecordEntry] = deque(maxlen=MOST)
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
        if len(last.text) < LONGEST:
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
    while len(entries) > MOST:
        del entries[next(iter(entries))]


def _arguments(call: ToolCall) -> str:
    import json

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
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
