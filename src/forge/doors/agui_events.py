"""Translates what happens in a run, and what is stored of it, into the events and messages of AG-UI."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Literal, cast

from ag_ui import core as agui

from forge.agent.conversation import find_replaced
from forge.agent.labels import FROM_FORGE
from forge.agent.result import RunResult
from forge.core.events import (
    ContextShortened,
    Event,
    EventsMissed,
    MessageReceived,
    PermissionAnswered,
    ReasoningDelta,
    Retrying,
    SessionTitled,
    TextDelta,
    ToolArgumentsDelta,
    ToolCompleted,
    ToolFinished,
    ToolOutput,
    ToolProgress,
    ToolStarted,
    TurnFinished,
)
from forge.core.messages import BACKGROUND, InnerCall, Message, ToolCall, Usage
from forge.core.plain_values import plain, sendable
from forge.core.result import Attachment, ToolResult
from forge.core.secrets import Secrets
from forge.permissions.questions import Answer, PermissionRequest, request_text

CLIENT_ID = "agui"  # in `Message.extra` of a prompt: the ids that the front end gave to its messages
TODO = "todo_write"
INPUT = "input"  # the reason of a question that a tool asks with a form of its own
LONGEST_FEEDBACK = 20_000  # characters
LARGEST_SNAPSHOT = 4 * 1024 * 1024  # characters of the messages in one event; older ones are left out, and counted
_CUSTOM = (Retrying, ContextShortened, SessionTitled, PermissionAnswered, ToolCompleted, ToolOutput, EventsMissed)


def custom(name: str, value: Any) -> agui.CustomEvent:
    """Returns an event of ours that AG-UI has no name for."""
    return agui.CustomEvent(name=f"forge.{name}", value=value)


class Translation:
    """The events of one thread. A request's stream may end in the middle: `close` ends what is open, in order.

    `sent` returns the id of a message that the front end sent during the run, by its text.
    """

    def __init__(self, agent: str, sent: Callable[[str], str]) -> None:
        self._agent, self._sent = agent, sent
        self._place = 0  # messages that the conversation had: an answer gets the id that it has in a later snapshot
        self._speakers: dict[str, _Speaker] = {}  # by the name of the agent
        self._open_calls: dict[str, str] = {}  # calls whose arguments are being written, and their speaker
        self._running: dict[str, str] = {}  # calls without a result, and their speaker
        self._subagents: dict[str, str] = {}  # the name of each sub-agent that works, and the id of its work
        self._parents: dict[str, str] = {}  # the call that each sub-agent works for, where it is known
        self._failures: dict[str, str] = {}  # why a call failed whose sub-agents are still open
        self._count = 0
        self._step = 1
        self._is_step_open = False
        self.has_state = False  # the front end has the to-do list, in this stream
        self.said = ""  # the text of the last answer

    def events(self, event: Event, place: int) -> Iterator[agui.BaseEvent]:
        """Yields the events for one event of ours; none for what AG-UI does not show.

        `place` is how many messages the conversation had when it happened.
        """
        self._place = place
        who = event.agent or self._agent
        if isinstance(event, TurnFinished):
            yield from self._finish_turn(who, event.turn)
        elif isinstance(event, MessageReceived):
            if who == self._agent:
                yield from self._show_sent(event.text)
        elif isinstance(event, _CUSTOM):
            if isinstance(event, Retrying):  # the answer broke off, and is written again
                yield from self._speaker(who).finish()
                yield from self._end_arguments(who)
            yield custom(event.type, {key: value for key, value in event.to_dict().items() if key != "event"})
        elif isinstance(
            event, TextDelta | ReasoningDelta | ToolArgumentsDelta | ToolStarted | ToolProgress | ToolFinished
        ):
            yield from self._begin(who)
            yield from self._content(who, event)

    def _content(self, who: str, event: Event) -> Iterator[agui.BaseEvent]:
        if isinstance(event, ToolStarted) and who not in self._speakers:  # the answer with the call is stored already
            self._place -= 1
        speaker = self._speaker(who)
        if isinstance(event, TextDelta):
            if who == self._agent:
                self.said += event.text
            yield from speaker.say(event.text)
        elif isinstance(event, ReasoningDelta):
            yield from speaker.think(event.text)
        elif isinstance(event, ToolArgumentsDelta):
            yield from speaker.finish()
            yield from self._start_call(speaker, event.call)
            if event.text:
                yield agui.ToolCallArgsEvent(
                    tool_call_id=_id(event.call), delta=sendable(event.text), subagent_run_id=speaker.run
                )
        elif isinstance(event, ToolStarted):
            yield from speaker.finish()
            yield from self._start(speaker, event.call)
        elif isinstance(event, ToolProgress):
            content = {"toolCallId": _id(event.call), "title": sendable(event.title), "data": plain(event.data)}
            yield agui.ActivitySnapshotEvent(
                message_id=f"progress-{_id(event.call)}",
                activity_type="PROGRESS",
                content=content,
                replace=True,
                subagent_run_id=speaker.run,
            )
        elif isinstance(event, ToolFinished):
            yield from self._finish_call(speaker, event)

    def _start(self, speaker: _Speaker, call: ToolCall) -> Iterator[agui.BaseEvent]:
        """Shows a call that begins. Its arguments may have been streamed before."""
        was_streamed = _id(call) in self._open_calls
        yield from self._start_call(speaker, call)
        if not was_streamed:
            text = call.arguments if isinstance(call.arguments, str) else json.dumps(plain(call.arguments))
            if text:
                yield agui.ToolCallArgsEvent(tool_call_id=_id(call), delta=sendable(text), subagent_run_id=speaker.run)
        del self._open_calls[_id(call)]
        self._running[_id(call)] = speaker.name
        yield agui.ToolCallEndEvent(tool_call_id=_id(call), subagent_run_id=speaker.run)

    def _start_call(self, speaker: _Speaker, call: ToolCall) -> Iterator[agui.BaseEvent]:
        if _id(call) in self._open_calls:
            return
        self._open_calls[_id(call)] = speaker.name
        inner = {"forge": {"parentToolCallId": call.parent}} if isinstance(call, InnerCall) else None
        yield agui.ToolCallStartEvent(
            tool_call_id=_id(call),
            tool_call_name=sendable(call.name),
            parent_message_id=speaker.message,
            subagent_run_id=speaker.run,
            metadata=inner,
        )

    def _finish_call(self, speaker: _Speaker, event: ToolFinished) -> Iterator[agui.BaseEvent]:
        call = event.call
        self._running.pop(_id(call), None)
        if event.result.failure is not None and _id(call) in self._parents.values():
            self._failures[_id(call)] = sendable(event.result.failure.message)
        if speaker.name not in self._running.values():  # what worked for its calls is over
            yield from self._finish_subagents(f"{speaker.name}/")
            self._failures.clear()
        failure = {"forge": {"success": event.success, "seconds": round(event.seconds, 3)}}
        yield agui.ToolCallResultEvent(
            message_id=f"result-{_id(call)}",
            tool_call_id=_id(call),
            content=_content_of(event.result),
            role="tool",
            metadata=failure,
            subagent_run_id=speaker.run,
        )
        items = event.result.data.get("items")
        if call.name == TODO and event.success and isinstance(items, list) and speaker.name == self._agent:
            yield self._show_list(plain(items))

    def _show_list(self, items: Any) -> agui.BaseEvent:
        if not self.has_state:
            self.has_state = True
            return agui.StateSnapshotEvent(snapshot={"todos": items})
        return agui.StateDeltaEvent.model_validate({"delta": [{"op": "replace", "path": "/todos", "value": items}]})

    def _show_sent(self, text: str) -> Iterator[agui.BaseEvent]:
        """Shows a message that a person sent to the run: the model has it now."""
        yield from self._speaker(self._agent).finish()
        id = self._sent(text) or f"m{self._place - 1}"
        yield agui.TextMessageStartEvent(message_id=id, role="user")
        if text:
            yield agui.TextMessageContentEvent(message_id=id, delta=sendable(text))
        yield agui.TextMessageEndEvent(message_id=id)

    def _speaker(self, who: str) -> _Speaker:
        if who not in self._speakers:
            self._speakers[who] = _Speaker(who, self._subagents.get(who), self._new_message_id(who))
        return self._speakers[who]

    def _new_message_id(self, who: str) -> str:
        if who == self._agent:
            return f"m{self._place}"
        self._count += 1
        return f"s{self._place}-{self._count}"

    def _begin(self, who: str) -> Iterator[agui.BaseEvent]:
        """Opens the step of this turn, and announces a sub-agent that begins to speak."""
        if not self._is_step_open:
            self._is_step_open = True
            yield agui.StepStartedEvent(step_name=f"turn {self._step}")
        if who == self._agent or who in self._subagents:
            return
        self._count += 1
        self._subagents[who] = run = f"{who}#{self._place}-{self._count}"
        self._speakers.pop(who, None)
        above = who.rpartition("/")[0]
        calls = [call for call, name in self._running.items() if name == above]
        if len(calls) == 1:
            self._parents[who] = calls[0]
        yield agui.SubagentStartedEvent(
            subagent_run_id=run,
            name=sendable(who),
            parent_subagent_run_id=self._subagents.get(above),
            parent_tool_call_id=self._parents.get(who),
        )

    def _finish_subagents(self, below: str, *, suspended: bool = False) -> Iterator[agui.BaseEvent]:
        for who in [name for name in reversed(self._subagents) if name.startswith(below)]:
            yield from self._speaker(who).finish()
            yield from self._end_arguments(who)
            run = self._subagents.pop(who)
            self._speakers.pop(who, None)
            if problem := self._failures.get(self._parents.pop(who, "")):
                yield agui.SubagentErrorEvent(subagent_run_id=run, message=problem)
                continue
            outcome = agui.SubagentFinishedSuspendedOutcome() if suspended else None
            yield agui.SubagentFinishedEvent(subagent_run_id=run, outcome=outcome)

    def _end_arguments(self, who: str) -> Iterator[agui.BaseEvent]:
        for call in [call for call, name in self._open_calls.items() if name == who]:
            del self._open_calls[call]
            yield agui.ToolCallEndEvent(tool_call_id=call, subagent_run_id=self._subagents.get(who))

    def _finish_turn(self, who: str, turn: int) -> Iterator[agui.BaseEvent]:
        yield from self._speaker(who).finish()
        self._speakers.pop(who, None)  # the next answer is another message
        if who == self._agent and self._is_step_open:
            yield from self.close()
        if who == self._agent:
            self._step = turn + 1

    def close(self, *, suspended: bool = False) -> Iterator[agui.BaseEvent]:
        """Ends everything that is open: texts, calls that are being written, sub-agents, and the step."""
        yield from self._finish_subagents(f"{self._agent}/", suspended=suspended)
        for speaker in [*self._speakers.values()]:
            yield from speaker.finish()
            yield from self._end_arguments(speaker.name)
        if self._is_step_open:
            self._is_step_open = False
            yield agui.StepFinishedEvent(step_name=f"turn {self._step}")

    def say(self, text: str) -> Iterator[agui.BaseEvent]:
        """Shows an answer that was not streamed."""
        speaker = _Speaker(self._agent, None, f"m{self._place}-answer")
        yield from speaker.say(text)
        yield from speaker.finish()


class _Speaker:
    """The answer that one agent is writing: reasoning, then text, then calls."""

    def __init__(self, name: str, run: str | None, message: str) -> None:
        self.name, self.run, self.message = name, run, message
        self._texts = self._thoughts = 0
        self._open = ""  # the id of the open text
        self._thinking = ""  # the id of the open reasoning

    def say(self, text: str) -> Iterator[agui.BaseEvent]:
        if not text:
            return
        if not self._open:
            yield from self.finish()
            self._texts += 1
            self._open = self.message if self._texts == 1 else f"{self.message}-{self._texts}"
            yield agui.TextMessageStartEvent(message_id=self._open, role="assistant", subagent_run_id=self.run)
        yield agui.TextMessageContentEvent(message_id=self._open, delta=sendable(text), subagent_run_id=self.run)

    def think(self, text: str) -> Iterator[agui.BaseEvent]:
        if not text:
            return
        if not self._thinking:
            yield from self.finish()
            self._thoughts += 1
            self._thinking = f"{self.message}-reasoning-{self._thoughts}"
            yield agui.ReasoningStartEvent(message_id=self._thinking, subagent_run_id=self.run)
            yield agui.ReasoningMessageStartEvent(message_id=self._thinking, role="reasoning", subagent_run_id=self.run)
        yield agui.ReasoningMessageContentEvent(
            message_id=self._thinking, delta=sendable(text), subagent_run_id=self.run
        )

    def finish(self) -> Iterator[agui.BaseEvent]:
        if self._thinking:
            yield agui.ReasoningMessageEndEvent(message_id=self._thinking, subagent_run_id=self.run)
            yield agui.ReasoningEndEvent(message_id=self._thinking, subagent_run_id=self.run)
        if self._open:
            yield agui.TextMessageEndEvent(message_id=self._open, subagent_run_id=self.run)
        self._thinking = self._open = ""


def _id(call: ToolCall) -> str:
    return sendable(call.id)


def _content_of(result: ToolResult) -> Any:
    """Returns the text of a result; with its images where it has some."""
    text = sendable(result.for_llm)
    images = [_image(one) for one in result.attachments if one.data and one.media_type.startswith("image/")]
    return [agui.TextPart(text=text), *images] if images else text


def _image(one: Attachment) -> agui.ImagePart:
    return agui.ImagePart(source=agui.DataSource(value=b64encode(one.data).decode(), mime_type=one.media_type))


# The stored conversation, as messages of AG-UI.


def snapshot(messages: Sequence[Message], secrets: Secrets) -> tuple[agui.MessagesSnapshotEvent, int]:
    """Returns the conversation, and how many of its oldest messages are left out because there are too many."""
    replaced = set(find_replaced(messages))
    found: list[Any] = []
    left, size = 0, 0
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.role == "system" or at in replaced or FROM_FORGE in message.extra or BACKGROUND in message.extra:
            continue
        one = _message(at, message, secrets)
        size += len(one.model_dump_json())
        if size > LARGEST_SNAPSHOT or left:
            left += 1
        else:
            found.append(one)
    return agui.MessagesSnapshotEvent(messages=found[::-1]), left


def _message(at: int, message: Message, secrets: Secrets) -> agui.BaseMessage | agui.ToolMessage:
    text = sendable(secrets.mask_all(message.text))
    if message.role == "tool":
        error = text[:1_000] if message.is_error else None
        call = sendable(message.call_id)
        return agui.ToolMessage(id=f"result-{call}", content=text, tool_call_id=call, error=error)
    if message.role == "user":
        return agui.UserMessage(id=(client_ids(message) or [f"m{at}"])[-1], content=text)
    calls = [_tool_call(call, secrets) for call in message.tool_calls]
    return agui.AssistantMessage(id=f"m{at}", content=text or None, tool_calls=calls or None)


def _tool_call(call: ToolCall, secrets: Secrets) -> agui.ToolCall:
    arguments = secrets.mask_value(plain(call.arguments))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return agui.ToolCall(id=_id(call), function=agui.FunctionCall(name=sendable(call.name), arguments=sendable(text)))


def client_ids(message: Message) -> list[str]:
    """Returns the ids that the front end gave to a message."""
    ids = message.extra.get(CLIENT_ID) if message.role == "user" else None
    return [one for one in ids if isinstance(one, str)] if isinstance(ids, list | tuple) else []


def usage_of(result: RunResult, provider: str, model: str) -> list[agui.TokenUsage] | None:
    used: Usage = result.usage
    if not used.total:
        return None
    return [
        agui.TokenUsage(
            provider=provider or None,
            model=model or None,
            input_tokens=used.input,
            output_tokens=used.output,
            total_tokens=used.total,
            reasoning_tokens=used.reasoning,
            cached_input_tokens=used.cached,
            cache_write_input_tokens=used.cache_writes,
        )
    ]


# Questions: an interrupt for the front end, and the answer that it sends back.


def make_interrupt(request: PermissionRequest, secrets: Secrets) -> agui.Interrupt:
    """Returns the question. Its id is a digest of all that is shown: an answer is about exactly this."""
    text = sendable(secrets.mask_all(request_text(request)))
    arguments = json.dumps(plain(request.arguments), sort_keys=True)
    shown = json.dumps([request.scope.session_id, request.call.id, request.spec.name, text, arguments])
    digest = sha256(shown.encode()).hexdigest()[:32]
    reason = INPUT if request.form is not None else "confirmation" if request.question else "tool_approval"
    details = {
        "tool": request.spec.name,
        "permission": str(request.permission or ""),
        "target": secrets.mask_all(str(request.target)),
        "preview": secrets.mask_all(request.preview),
        "rules": [secrets.mask_all(rule) for rule in request.rules_to_remember],
    }
    return agui.Interrupt(
        id=f"question-{digest}",
        reason=reason,
        message=text,
        tool_call_id=_id(request.call),
        response_schema=plain(request.form) if request.form is not None else _schema(request),
        metadata={"forge": plain(details)},
    )


def _schema(request: PermissionRequest) -> dict[str, Any]:
    kinds = ["once", *(["always"] if request.rules_to_remember else []), "no"]
    properties: dict[str, Any] = {
        "decision": {"type": "string", "enum": kinds, "title": "Allow it?"},
        "feedback": {"type": "string", "maxLength": LONGEST_FEEDBACK, "title": "Message to the model"},
    }
    if request.is_before_call:
        properties["arguments"] = {"type": "object", "title": "Other arguments, all of them"}
    if request.effects is not None:
        properties["paths"] = {"type": "array", "items": {"type": "string"}, "title": "The effects to apply"}
    return {"type": "object", "properties": properties, "required": ["decision"], "additionalProperties": False}


def read_answer(question: agui.Interrupt, entry: agui.ResumeEntry, by: str) -> Answer | None:
    """Returns the answer of an entry; None for one that cannot be read, which answers nothing."""
    if entry.status == "cancelled":
        return Answer.no(by=by)
    payload = entry.payload
    if not isinstance(payload, dict):
        return None
    if question.reason == INPUT:
        return Answer.edit(payload, by=by)
    allowed = (question.response_schema or {})["properties"]
    if isinstance(approved := payload.get("approved"), bool) and "decision" not in payload:
        payload = {**payload, "decision": "once" if approved else "no"}
        del payload["approved"]
    kind, feedback, paths = payload.get("decision"), payload.get("feedback", ""), payload.get("paths")
    if kind not in allowed["decision"]["enum"] or set(payload) - set(allowed):
        return None
    if not isinstance(feedback, str) or len(feedback) > LONGEST_FEEDBACK:
        return None
    if paths is not None and not (isinstance(paths, list) and paths and all(isinstance(one, str) for one in paths)):
        return None
    arguments = payload.get("arguments")
    if arguments is not None and (not isinstance(arguments, dict) or kind == "no"):
        return None
    return Answer(cast(Literal["once", "always", "no"], kind), feedback, arguments, by=by, paths=paths)
