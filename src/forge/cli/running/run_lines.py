"""Renders stored runs for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # an extra, and slow to import: showing the help does without
    from forge.cli.running.next_commands import Commands
    from forge.core.messages import Message
    from forge.durable.client import Runs
    from forge.durable.store.rows import RunInfo

LONGEST_PROMPT = 60  # characters of a prompt in a list


def all_run_fields(runs: Runs, run: RunInfo) -> dict[str, Any]:
    from forge.agent.message_json import export_message

    children = runs.list(parent=run.id, limit=1_000)
    return {
        **run_fields(run),
        "messages": [export_message(message) for message in runs.messages(run.id)],
        "questions": [asdict(one) for one in runs.questions(run.id)],
        "files": [{"name": name, "size": size} for name, size in runs.store.files(run.id)],
        "runs": [{"id": one.id, "status": one.status, "agent": one.agent, "prompt": one.prompt} for one in children],
    }


def run_lines(runs: Runs, run: RunInfo, commands: Commands) -> Iterator[str]:
    from forge.cli.running.waiting_runs import waiting_lines

    yield click.style(f"{run.id}  {state_of(run)}", bold=True)
    fields = {
        "agent": run.agent,
        "session": run.session,
        "tenant": run.tenant,
        "queue": run.queue,
        "version": run.version,
        "worker": run.worker,
        "parent": run.parent,
        "began": format_time(run.created),
        "changed": format_time(run.updated),
        "segment": str(run.segment),
    }
    yield from (f"  {name:<8} {harmless(value)}" for name, value in fields.items() if value)
    yield from (harmless(line) for line in waiting_lines(runs, run, commands))
    for child in runs.list(parent=run.id, limit=1_000):
        yield f"  started  {child.id}  {state_of(child)}  {shorten_prompt(child.prompt)}"
    yield ""
    yield from (render_message(message) for message in runs.messages(run.id))
    error = (run.result or {}).get("error")
    if error:
        yield click.style(harmless(f"Error: {error.get('message', '')}"), fg="red")


def run_fields(run: RunInfo) -> dict[str, Any]:
    return asdict(run)


def state_of(run: RunInfo) -> str:
    return "cancelling" if run.cancelling and not run.is_over else run.status


def shorten_prompt(prompt: str) -> str:
    line = " ".join(harmless(prompt).split())
    return line if len(line) <= LONGEST_PROMPT else f"{line[: LONGEST_PROMPT - 1]}…"


def format_time(moment: float) -> str:
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M")


def render_message(message: Message) -> str:
    from forge.cli.terminal.render import describe_call

    lines = [click.style(f"{message.role}:", bold=True)] if message.role != "tool" else []
    lines += [harmless(message.text)] if message.text else []
    lines += [click.style(f"→ {harmless(describe_call(call))}", fg="cyan") for call in message.tool_calls]
    lines += [f"[attachment {harmless(one.name)}: {harmless(one.media_type)}]" for one in message.attachments]
    if message.role == "tool":
        return "\n".join(f"  {click.style(line, dim=True)}" for line in "\n".join(lines).split("\n"))
    return "\n".join(lines)
