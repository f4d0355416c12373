"""Repeats a run from one of its steps as a new run, and copies a session up to a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from forge.console.api.requests import ApiRequest, StatusAnswer
from forge.console.api.runs import begin
from forge.console.console_state import ConsoleState
from forge.console.response_shapes import RERUN_OF, run_shape
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message
from forge.core.plain_values import brief
from forge.durable.client import new_run_id
from forge.durable.engine.children import ONLY
from forge.durable.store.rows import MODEL, RunInfo
from forge.project.runs.durable_runs import INITIAL_MESSAGES
from forge.project.runs.sessions import session_store

MOST_CALLS = 200  # calls that a preview names


def rerun(console: ConsoleState, request: ApiRequest) -> StatusAnswer | dict[str, Any]:
    """Tells what would be repeated; with `write` a new run begins there. The old run and files stay as they are."""
    run = console.runs.get(request.path["id"])
    _check_repeatable(console, run)
    messages = console.runs.messages(run.id)
    call, number = request.body_text("call", needed=False, most=200), request.body.get("message")
    kept = _position_of_call(run, messages, call) if call else _position_of_message(messages, number)
    say = request.body_text("say", needed=False).strip()
    repeated = messages[kept:]
    if request.body.get("write") is not True:
        calls = [one for message in repeated for one in message.tool_calls]
        return {
            "written": False,
            "kept": kept,
            "turns": sum(message.role == "assistant" for message in repeated),
            "calls": [{"id": one.id, "name": one.name, "arguments": one.arguments} for one in calls[:MOST_CALLS]],
            "left_out": max(0, len(calls) - MOST_CALLS),
        }
    run_id = new_run_id()
    begun = console.runs.submit(
        run.prompt,
        agent=run.agent,
        session=run_id,
        tenant=run.tenant,
        version=console.version,
        run_id=run_id,
        messages=console.agent.begin(say or None, messages[:kept], run_id).messages,
        scope={**_scope_of(run), INITIAL_MESSAGES: 0, RERUN_OF: run.id},
    )
    console.hub.nudge()
    return StatusAnswer(201, {"written": True, "run": run_shape(begun)})


def fork_session(console: ConsoleState, request: ApiRequest) -> StatusAnswer:
    """Copies the first messages of a session, as `forge session fork --upto` does; with `say` a run continues there."""
    name, upto = request.path["name"], request.body.get("upto")
    if isinstance(upto, bool) or not isinstance(upto, int) or upto < 1:
        raise ToolError("upto must be a number of messages", ErrorKind.VALIDATION, "Send 1 or more.")
    say = request.body_text("say", needed=False).strip()
    if say and not console.has_model:
        raise ToolError("no model is set, so the copy cannot be continued", ErrorKind.CONFIG, console.model_problem)
    new = request.body_text("new", needed=False, most=200).strip() or f"{name}-{uuid4().hex[:4]}"
    with session_store(console.workspace) as sessions:
        messages = sessions.fork(name, new, upto).info.messages
    console.hub.tell("sessions")
    run = run_shape(begin(console, say, new)) if say else None
    return StatusAnswer(201, {"session": {"name": new, "messages": messages}, "run": run})


def _check_repeatable(console: ConsoleState, run: RunInfo) -> None:
    if run.scope.get(ONLY) or run.parent:
        words = f"run {run.id} was to be repeated, and it is {'a sub-agent' if run.parent else 'a single tool call'}"
        way = "Repeat the run that started it." if run.parent else "Call the tool again from its page."
        raise ToolError(words, ErrorKind.USER, way)
    if not console.has_model:
        raise ToolError("no model is set, so no run can be repeated", ErrorKind.CONFIG, console.model_problem)
    if run.agent != console.agent.name:
        words = f"run {run.id} was to be repeated, and its agent {brief(run.agent)} is not part of this project"
        raise ToolError(words, ErrorKind.USER, "Open the console of the project that has the agent.")


def _position_of_call(run: RunInfo, messages: Sequence[Message], call: str) -> int:
    """Returns the number of messages before the turn that made the call."""
    for number, message in enumerate(messages):
        if any(one.id == call for one in message.tool_calls):
            return number
    words = f"call {brief(call)} of run {run.id} is not among its stored messages"
    raise ToolError(words, ErrorKind.NOT_FOUND, "Wait until its turn is over, or choose another step.")


def _position_of_message(messages: Sequence[Message], number: Any) -> int:
    """Returns the number of messages to keep: those before a turn of the model, or up to a message of the person."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(messages):
        words = f"the run has no message {brief(number)}"
        raise ToolError(words, ErrorKind.VALIDATION, f"Send a call, or a message from 0 to {len(messages) - 1}.")
    role = messages[number].role
    if role not in ("assistant", "user"):
        words = f"a run cannot be repeated from message {number}, because its role is {role}"
        raise ToolError(words, ErrorKind.VALIDATION, "Choose a message of the model or of a person.")
    return number if role == "assistant" else number + 1


def _scope_of(run: RunInfo) -> dict[str, Any]:
    kept = (MODEL, "channel", "chat_id", "user")
    return {name: run.scope[name] for name in kept if name in run.scope}
