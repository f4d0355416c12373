"""Renders runs, questions and messages for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from forge.console.console_state import ConsoleState
from forge.core.errors import ToolError
from forge.core.messages import Message, export_message
from forge.durable.store.rows import FINE, SINGLE_CALL, Mark, Question, RunInfo
from forge.durable.store.waits import asks_in_words
from forge.permissions.questions import request_text
from forge.project.runs.durable_runs import build_request

BRIEF = 400  # characters of a prompt or an answer in a list
LONGEST_TEXT = 100_000
MOST_UP = 50  # runs above one
MOST_EFFECTS = 1_000  # of a trial run that a page lists
RERUN_OF = "rerun_of"  # in a run's scope: the run that it repeats


def run_shape(run: RunInfo, *, whole: bool = False, mark: Mark | None = None) -> dict[str, Any]:
    result: Mapping[str, Any] = run.result or {}
    spent: Mapping[str, Any] = result or run.spent
    error = result.get("error")
    text = str(result.get("text", ""))
    most = LONGEST_TEXT if whole else BRIEF
    return {
        **{name: getattr(run, name) for name in _PLAIN},
        "prompt": _brief(run.prompt, most),
        "kind": "call" if run.scope.get(SINGLE_CALL) else "chat",
        "waits": [{"kind": one.kind, "call": one.call, "detail": dict(one.detail)} for one in run.waits],
        "reason": str(result.get("reason", "")),
        "text": _brief(text, most),
        "error": str(error.get("message", "")) if isinstance(error, Mapping) else "",
        "turns": spent.get("turns", 0),
        "calls": spent.get("calls", 0),
        "usage": spent.get("usage", {}),
        "cost": result.get("cost", run.spent.get("cost")),
        "seconds": run.spent.get("seconds", 0.0),
        "user": str(run.scope.get("user", "")),
        "mark": asdict(mark) if mark is not None else None,
        "rerun_of": str(run.scope.get(RERUN_OF, "")),
        "can": _can(run),
    }


_PLAIN = (
    "id agent session tenant queue priority version status segment parent parent_call worker created updated"
    " cancelling waited model".split()
)


def _can(run: RunInfo) -> list[str]:
    is_chat = not run.scope.get(SINGLE_CALL) and not run.parent
    can = [] if run.is_over or run.cancelling else ["cancel"]
    if run.is_over and is_chat:
        fine = run.status == "finished" and (run.result or {}).get("reason") in FINE
        can += ["say"] if fine else ["resume", "say"]
    if run.status == "waiting" and asks_in_words(run.waits):
        can.append("answer")
    elif is_chat and "cancel" in can:
        can.append("send")
    return can


def question_shape(
    console: ConsoleState, question: Question, runs: dict[str, RunInfo] | None = None, now: float | None = None
) -> dict[str, Any]:
    """Renders a question. `runs`: runs that are known already. `now`: the database's time, if it is known."""
    runs = {} if runs is None else runs
    run = find_run(console, question.run, runs)
    root = root_of(console, run, runs)
    request = question.request
    tool = console.registry.get(question.tool)
    try:
        text = request_text(build_request(question, console.registry, console.scope))
    except (ToolError, ValueError, TypeError) as error:  # of another version, say: the arguments are shown all the same
        text = f"{question.tool}: the question cannot be written out here ({error})"
    return {
        "id": question.id,
        "run": question.run,
        "root": root.id,
        "session": run.session,
        "agent": str(request.get("agent", run.agent)),
        "prompt": _brief(root.prompt),
        "call": question.call,
        "tool": question.tool,
        "description": str(request.get("description", "")),
        "origin": tool.spec.origin if tool is not None else "",
        "arguments": request.get("arguments") or {},
        "parts": [{"permission": one[0], "target": one[1]} for one in request.get("parts") or ()],
        **{name: str(request.get(name, "")) for name in ("rule", "reason", "remember", "preview", "introduction")},
        "traces": [_trace_shape(one) for one in request.get("traces") or ()],
        "question": str(request.get("question", "")),
        "editable": bool(request.get("editable", False)),
        "personal": bool(request.get("personal", False)),
        "form": request.get("form"),
        "result": request.get("result"),
        "effects": _effects_shape(request.get("effects")),
        "schema": tool.spec.parameters if tool is not None else None,
        "shown": text,
        "asked": question.asked,
        "waited": max(0.0, (question.answered or (console.runs.store.now() if now is None else now)) - question.asked),
        "status": "answered" if question.answer is not None else "over" if run.is_over else "open",
        "answer": _answer(question),
    }


def _effects_shape(effects: Any) -> dict[str, Any] | None:
    """Returns the effects of a trial run that the question is about; None for other questions."""
    if not isinstance(effects, dict):
        return None
    files = [{"kind": str(kind), "path": str(path)} for kind, path in effects.get("files", ())]
    return {"summary": str(effects.get("summary", "")), "files": files[:MOST_EFFECTS], "total": len(files)}


def _trace_shape(trace: Any) -> dict[str, str]:
    """Returns where a value of the call comes from: the quote has the value between « and »."""
    fields = trace if isinstance(trace, dict) else {}
    return {name: str(fields.get(name, "")) for name in ("argument", "value", "kind", "origin", "quote")}


def _answer(question: Question) -> dict[str, Any] | None:
    return None if question.answer is None else {**question.answer, "at": question.answered, "by": question.by}


def waiting_text(console: ConsoleState, run: RunInfo, runs: dict[str, RunInfo]) -> dict[str, Any]:
    root = root_of(console, run, runs)
    text = next((wait.text for wait in run.waits if wait.text), "")
    return {
        "run": run.id,
        "root": root.id,
        "session": run.session,
        "agent": run.agent,
        "prompt": _brief(root.prompt),
        "text": _brief(text, LONGEST_TEXT),
        "since": run.updated,
    }


def find_run(console: ConsoleState, run_id: str, runs: dict[str, RunInfo]) -> RunInfo:
    if run_id not in runs:
        runs[run_id] = console.runs.store.get(run_id)
    return runs[run_id]


def root_of(console: ConsoleState, run: RunInfo, runs: dict[str, RunInfo]) -> RunInfo:
    for _ in range(MOST_UP):
        if not run.parent:
            break
        run = find_run(console, run.parent, runs)
    return run


def message_shape(console: ConsoleState, message: Message) -> dict[str, Any]:
    """Renders a message without the bytes of attachments and without providers' private data."""
    wire = export_message(message)
    wire.pop("extra", None)
    wire["attachments"] = [
        {"name": one.name, "media_type": one.media_type, "size": len(one.data)} for one in message.attachments
    ]
    if not wire["attachments"]:
        del wire["attachments"]
    masked: dict[str, Any] = console.secrets.mask_everything(wire)
    masked["text"] = _brief(str(masked.get("text", "")), LONGEST_TEXT)
    return masked


def _brief(text: str, most: int = BRIEF) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
