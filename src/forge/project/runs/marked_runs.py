"""Marks the answers of runs, logs who did so, and turns marked runs into cases of `forge eval`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forge.core.activity import ActivityStream
from forge.core.plain_values import sendable, visible
from forge.durable.client import Runs
from forge.durable.store.rows import INITIAL_MESSAGES, Mark, RunInfo
from forge.project.runs.project_worker import log_events

log = logging.getLogger("forge.durable")

MOST_CASES = 1_000
_ODD = re.compile("[^\x20-\x7e\xa1-\u2027\u202a-\ud7ff\ue000-\ufdff]")
HEAD = """\
# Cases of marked runs, for `forge eval FILE`. Add what else you expect of them.
# workspace: .     # remove the first #, and each run begins with a copy of this file's directory
"""


def mark_run(runs: Runs, workspace: Path, run_id: str, verdict: str, note: str, by: str) -> None:
    """Marks the answer of a run, and writes who did so to the log of events. Raises `StoreError`."""
    event = runs.mark(run_id, verdict, note, by)
    activity = ActivityStream()
    try:
        stop = log_events(workspace, activity)
    except (OSError, ValueError) as error:  # the event is among the run's own events all the same
        log.warning("the mark of run %s is not in the log of events: %s", run_id, error)
        return
    activity.emit(event)
    stop()


def marked_cases(runs: Runs, *, judged: bool = False, limit: int = MOST_CASES, **wanted: Any) -> list[dict[str, Any]]:
    """Returns cases of marked runs as data, the newest first; takes the filters of `Runs.list`.

    A good run expects the tools that it called. A bad run expects another answer. `judged`: each also expects that a
    judge agrees with the person, for `--judge`.
    """
    wanted = {"mark": "any", **{name: value for name, value in wanted.items() if value is not None}}
    found = runs.list(parent="", limit=min(limit, MOST_CASES), **wanted)
    marks = runs.marks([run.id for run in found])
    return [_case_of(runs, run, marks[run.id], judged=judged) for run in found if run.id in marks]


def cases_text(cases: Sequence[dict[str, Any]]) -> str:
    """Writes cases as a YAML file. Every text is quoted as JSON, which YAML reads as it is."""
    lines = [HEAD, "cases:"]
    for case in cases:
        keys = [f"{key}: {_quote(value)}" for key, value in case.items()]
        lines.append(f"  - {keys[0]}")
        lines += [f"    {one}" for one in keys[1:]]
    return "\n".join(lines) + "\n" if cases else f"{HEAD}\ncases: []\n"


def _quote(value: Any) -> str:
    """Writes a value as JSON, with the characters written out that YAML refuses or reads as the end of a line."""
    return _ODD.sub(lambda found: f"\\U{ord(found[0]):08X}", json.dumps(value, ensure_ascii=False))


def _case_of(runs: Runs, run: RunInfo, mark: Mark, *, judged: bool) -> dict[str, Any]:
    answer = sendable(str((run.result or {}).get("text", "")))
    expect: dict[str, Any] = {}
    if mark.verdict == "good" and (names := _tools_of(runs, run)):
        expect["calls"] = names
    if mark.verdict == "bad" and answer.strip():
        expect["result"] = {"lacks": answer}
    if judged:
        expect["judge"] = _judge_words(mark, answer)
    return {"name": run.id, "prompt": sendable(run.prompt), **({"expect": expect} if expect else {})}


def _tools_of(runs: Runs, run: RunInfo) -> list[str]:
    """Returns the tools that the run called with success, in the order of their first calls."""
    began = run.scope.get(INITIAL_MESSAGES, 0)
    messages = runs.messages(run.id)[began if isinstance(began, int) else 0 :]
    failed = {one.call_id for one in messages if one.role == "tool" and one.is_error}
    names = [call.name for message in messages for call in message.tool_calls if call.id not in failed]
    return list(dict.fromkeys(sendable(name) for name in names))


def _judge_words(mark: Mark, answer: str) -> str:
    note = f" The person noted: {json.dumps(visible(mark.note), ensure_ascii=False)}." if mark.note.strip() else ""
    earlier = json.dumps(visible(answer[:4_000]), ensure_ascii=False)
    if mark.verdict == "good":
        return f"The answer is as good as an earlier one that a person marked as good: {earlier}.{note}"
    return f"The answer does not have the faults of an earlier one that a person marked as bad: {earlier}.{note}"
