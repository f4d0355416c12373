"""The memory page: searches and shows notes, and adds one as the tool `memory_write` does."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from forge.console.api.requests import ApiRequest, StatusAnswer
from forge.console.api.tools import preview_effects
from forge.console.console_state import ConsoleState
from forge.core.activity import ActivityStream
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import ToolCall
from forge.project.assemble.knowledge import memory_of
from forge.project.runs.project_worker import log_events

LONGEST_QUERY = 1_000
WRITE = "memory_write"


async def search_memory(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    configuration = console.configuration
    query = request.text("q").strip()[:LONGEST_QUERY]
    limit = request.number("limit", 10, 1, 100)
    memory = await in_thread(lambda: memory_of(configuration, console.workspace, writes=console.scope.writes))
    with closing(memory):
        found = await memory.search(query, limit) if query else None
        return {
            "enabled": bool(configuration.memory and configuration.memory.enabled),
            "can_write": WRITE in console.registry,
            "notes": await in_thread(memory.names),
            "stats": await in_thread(memory.stats),
            "results": [hit._asdict() for hit in found.hits] if found is not None else [],
            "remarks": found.remarks if found is not None else [],
        }


def show_note(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    name = request.text("name")
    with closing(memory_of(console.configuration, console.workspace, writes=console.scope.writes)) as memory:
        return {"name": name, "text": memory.read(name)}


async def add_note(console: ConsoleState, request: ApiRequest) -> StatusAnswer | dict[str, Any]:
    """Shows the change of the note first; with `write` it is made, as `forge tool call memory_write --yes` does."""
    if WRITE not in console.registry:
        message = f"a note was to be added, and the tool {WRITE} is not active in this project"
        raise ToolError(message, ErrorKind.CONFIG, "Turn the memory on in forge.yaml: memory: {enabled: true}.")
    arguments = {"content": request.body_text("content"), "target": request.body_text("target", most=20)}
    parsed = console.registry.find(WRITE).parse(arguments)
    if request.body.get("write") is not True:
        diff, problem = await preview_effects(console, ToolCall(WRITE, parsed))
        return {"written": False, "diff": diff, "problem": problem}
    agent = await in_thread(console.make_person_agent)
    activity = ActivityStream(console.secrets)
    stop = log_events(console.workspace, activity)
    try:
        result = await agent.call(
            WRITE, parsed, session=console.scope.session_id, scope=console.scope, activity=activity
        )
        await activity.drain()
    finally:
        stop()
    if result.failure is not None:
        raise ToolError(result.failure.message, result.failure.kind, result.failure.suggestion)
    console.hub.tell("memory")
    return StatusAnswer(201, {"written": True, "note": dict(result.data)})
