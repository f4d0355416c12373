"""What a run waits for, for whoever has to answer it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from forge.agent.result import RunResult
from forge.cli.show import harmless
from forge.core.executor import readable
from forge.core.messages import ToolCall
from forge.durable.beats import listed
from forge.durable.client import Runs
from forge.durable.queues import DEFAULT, offer_queue
from forge.durable.results import run_result
from forge.durable.rows import Question, RunInfo
from forge.permissions.answers import Answer


def result_so_far(run: RunInfo) -> RunResult:
    """How a run ended; of one that waits, what it has used, and its question where it has one."""
    result = run_result(run)
    asked = next((wait.detail for wait in run.waits if wait.kind == "question"), None)
    if asked is not None:
        result.reason, result.text = "question", str(asked.get("text", ""))
    return result


def is_attended(runs: Runs, run: RunInfo) -> bool:
    """Whether somebody is there to work on it."""
    return any(one.takes(run.version, run.queue) for one in listed(runs.store.database))


def worker_for(run: RunInfo) -> str:
    """The command that starts a worker of this project for it."""
    place = run.queue.removeprefix(offer_queue(""))
    if place != run.queue:
        return f"forge worker --offer {shlex.quote(place)}"
    return "forge worker" if run.queue == DEFAULT else f"forge worker --queue {shlex.quote(run.queue)}"


def what_it_waits_for(runs: Runs, run: RunInfo) -> Iterator[str]:
    """Lines that say what it is, and what can be typed to let the run go on."""
    if run.status == "queued" and not is_attended(runs, run):
        yield f"run {run.id} waits for a worker of version {run.version}, queue {run.queue}, and none is up"
        yield f"  {worker_for(run)}, or for a project of another version first: forge runs migrate {run.id}"
    questions = runs.questions(run.id)
    for question in questions:
        which = f" --question {question.id}" if len(questions) > 1 else ""
        yield f"run {run.id} waits for a yes: {wanted(question)}"
        yield f'  forge runs answer {run.id}{which} --yes, or --no "WHY"'
    for wait in run.waits:
        match wait.kind:
            case "question":
                yield f'run {run.id} waits for an answer: forge runs answer {run.id} "…"'
            case "time":
                yield f"run {run.id} waits until {_clock(wait.detail.get('until'))}"
            case "background":
                yield f"run {run.id} waits for background work of worker {wait.detail.get('worker', '')}"
            case "run":
                yield f"run {run.id} waits for the run {wait.detail.get('run', '')}"


def wanted(question: Question) -> str:
    """What a call wants to do, on one line."""
    shown = question.request
    if asked := shown.get("question"):
        return harmless(f"{question.tool}: {asked}").replace("\n", " ")
    if "result" in shown:
        return f"{question.tool} has run, and the model wants to see its result"
    parts = ", ".join(" ".join(part) for part in shown.get("parts", ()) if all(part))
    call = ToolCall(question.tool, shown.get("arguments") or {})
    return harmless(f"{question.tool} wants to {parts}" if parts else readable(call)).replace("\n", " ")


def _clock(moment: object) -> str:
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M:%S") if isinstance(moment, int | float) else "?"


def answered(
    text: str | None, *, yes: bool = False, no: str | None = None, always: bool = False, edit: str | None = None
) -> Answer | str:
    """What a person said with flags or in words: one of them. Raises `UsageError`."""
    given = [text is not None, yes, no is not None, always, edit is not None]
    if sum(given) != 1:
        words = "Say one thing" if any(given) else "Say what the answer is"
        raise click.UsageError(f"{words}: TEXT, --yes, --always, --no [WHY] or --edit JSON.")
    if text is not None and not text.strip():
        raise click.UsageError('The answer is empty. Write what the model is to hear: forge runs answer RUN "TEXT"')
    if text is not None:
        return text
    if no is not None:
        return Answer.no(no)
    if edit is not None:
        return Answer.edit(_object(edit))
    return Answer.ALWAYS if always else Answer.ONCE


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--edit is not valid JSON: {error}. Write all arguments as one object.") from None
    if not isinstance(found, dict):
        raise click.UsageError('--edit takes all arguments as one object: \'{"path": "b.txt"}\'')
    return found
