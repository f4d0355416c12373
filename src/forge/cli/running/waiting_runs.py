"""Says what a run waits for, and reads the answers of a person."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from forge.agent.result import RunResult
from forge.cli.refusal import Refusal
from forge.cli.running.next_commands import Commands
from forge.cli.terminal.print_result import harmless
from forge.core.messages import ToolCall, render_call
from forge.durable.client import Runs
from forge.durable.engine.queues import DEFAULT, offer_queue
from forge.durable.store.encoding import run_result
from forge.durable.store.heartbeats import describe_needed, describe_unattended, find_unattended, list_workers
from forge.durable.store.rows import Question, RunInfo
from forge.durable.store.waits import IN_WORDS, asks_in_words

if TYPE_CHECKING:
    from forge.permissions.questions import Answer


def result_so_far(run: RunInfo) -> RunResult:
    """Returns the result of a run; for one that waits, its usage and its question."""
    result = run_result(run)
    if asks_in_words(run.waits):
        result.reason, result.text = "question", next(wait.text for wait in run.waits if wait.kind == IN_WORDS)
    return result


def worker_for(queue: str, commands: Commands) -> str:
    """Returns the command that starts a worker of this project for a queue."""
    offer = queue.removeprefix(offer_queue(""))
    if offer != queue:
        return commands.line("worker", "--offer", offer)
    return commands.line("worker", *(("--queue", queue) if queue != DEFAULT else ()))


def unattended_lines(runs: Runs, found: Sequence[RunInfo], commands: Commands) -> Iterator[str]:
    """Yields a line per kind of queued run that no living worker takes."""
    queued = Counter((run.version, run.queue, run.agent) for run in found if run.status == "queued")
    workers = list_workers(runs.store.database) if queued else []
    for (version, queue, agent), count in queued.items():
        if not any(worker.takes(version, queue, agent) for worker in workers):
            who = "1 run waits" if count == 1 else f"{count} runs wait"
            needed = describe_needed(version, queue, agent)
            problem = harmless(f"{who} for a worker {needed}, but none is running")
            yield f"{problem}: {worker_for(queue, commands)}"


def waiting_lines(runs: Runs, run: RunInfo, commands: Commands) -> Iterator[str]:
    """Yields lines that say what the run waits for, and which command resumes it."""
    alone = find_unattended(runs.store, run)
    if alone is not None:
        yield harmless(describe_unattended(alone))
        moving = commands.line("runs", "migrate", alone.id)
        yield f"  {worker_for(alone.queue, commands)}, or for a project of another version first: {moving}"
    answering = commands.line("runs", "answer", run.id)
    questions = runs.questions(run.id)
    for question in questions:
        which = f" --question {question.id}" if len(questions) > 1 else ""
        yield f"run {run.id} waits for a yes: {describe_question(question)}"
        if question.problem:
            yield harmless(f"  {question.problem}")
        if not question.can_answer:
            yield f"  {commands.line('runs', 'resume', run.id)} has it asked again"
            continue
        yield f'  {answering}{which} --yes, or --no "WHY"'
        if rules := str(question.request.get("remember", "")):
            yield harmless(f"  --always stores for this tool in this run: {rules}").replace("\n", "; ")
    for wait in run.waits:
        if asks_in_words([wait]):
            yield f'run {run.id} waits for an answer: {answering} "…"'
        elif wait.until is not None:
            yield f"run {run.id} waits until {datetime.fromtimestamp(wait.until):%Y-%m-%d %H:%M:%S}"
        elif wait.worker:
            yield f"run {run.id} waits for background work of worker {wait.worker}"
        elif wait.run_id:
            yield f"run {run.id} waits for the run {wait.run_id}"


def describe_question(question: Question) -> str:
    """Describes on one line what a call wants to do."""
    request = question.request
    if asked := request.get("question"):
        return harmless(f"{question.tool}: {asked}").replace("\n", " ")
    if "result" in request:
        return f"{question.tool} has run, and the model wants to see its result"
    parts = ", ".join(" ".join(part) for part in request.get("parts", ()) if all(part))
    call = ToolCall(question.tool, request.get("arguments") or {})
    return harmless(f"{question.tool} wants to {parts}" if parts else render_call(call)).replace("\n", " ")


def find_question(runs: Runs, run: RunInfo, beginning: str | None) -> str | None:
    """Returns the id of the run's question that begins so; an unknown id is refused later."""
    if beginning is None:
        return None
    ids = [one.id for one in runs.questions(run.id) if one.id.startswith(beginning)]
    if len(ids) > 1:
        raise Refusal(f"several questions of run {run.id} begin with {beginning!r}: {', '.join(ids)}\nGive more of it.")
    return ids[0] if ids else beginning


def parse_answer(
    text: str | None, *, yes: bool = False, no: str | None = None, always: bool = False, edit: str | None = None
) -> Answer | str:
    """Returns the answer that a person gave by one flag or in words. Raises `UsageError`."""
    from forge.permissions.questions import Answer  # loads the rules, which listing runs does without

    given = [text is not None, yes, no is not None, always, edit is not None]
    if sum(given) != 1:
        message = "Say one thing" if any(given) else "Say what the answer is"
        raise click.UsageError(f"{message}: TEXT, --yes, --always, --no [WHY] or --edit JSON.")
    if text is not None and not text.strip():
        raise click.UsageError('The answer is empty. Write what the model is to hear: forge runs answer RUN "TEXT"')
    if text is not None:
        return text
    if no is not None:
        return Answer.no(no)
    if edit is not None:
        return Answer.edit(_parse_object(edit))
    return Answer.ALWAYS if always else Answer.ONCE


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--edit is not valid JSON: {error}. Write all arguments as one object.") from None
    if not isinstance(value, dict):
        raise click.UsageError('--edit takes all arguments as one object: \'{"path": "b.txt"}\'')
    return value
