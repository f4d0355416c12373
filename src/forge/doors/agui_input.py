"""Reads what a front end sends over AG-UI: new messages with files, and answers to questions. None of it is trusted."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ag_ui import core as agui
from pydantic import ValidationError

from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message
from forge.core.plain_values import brief
from forge.core.result import Attachment, recognise_file
from forge.doors.agui_events import CLIENT_ID, read_answer
from forge.permissions.questions import Answer

LONGEST_ID = 200
PREFIX = "agui-"  # of the sessions of threads: a front end names no session of the terminal
BY = "front end"


def find_ignored(given: agui.RunAgentInput) -> dict[str, str]:
    """Returns what the request has that is not used, with the reason. (Clients send back the state that they got.)"""
    ignored = {}
    if given.tools:
        ignored["tools"] = "the agent has the tools of its project; tools of a page are refused"
    if given.context:
        ignored["context"] = "text for the model belongs into a message"
    if given.forwarded_props not in (None, {}, "", []):
        ignored["forwardedProps"] = "there are none"
    if any(one.role in ("system", "developer") for one in given.messages):
        ignored["messages"] = "instructions are the project's; system and developer messages are not used"
    return ignored


def check_ids(given: agui.RunAgentInput) -> None:
    for name, id in (("threadId", given.thread_id), ("runId", given.run_id)):
        if not id.strip() or len(id) > LONGEST_ID - len(PREFIX) or not id.isprintable():
            words = f"1 to {LONGEST_ID - len(PREFIX)} printable characters"
            raise ToolError(f"{name} must have {words}", ErrorKind.VALIDATION)


def make_prompt(messages: Sequence[Any], known: Collection[str]) -> Message | None:
    """Returns the new messages of the person, at the end of the list, as one prompt. Nothing before them is read."""
    new: list[agui.UserMessage] = []
    for one in reversed(messages):
        if isinstance(one, agui.ActivityMessage | agui.ReasoningMessage):
            continue
        if not isinstance(one, agui.UserMessage) or one.id in known:
            break
        if not one.id or len(one.id) > LONGEST_ID:
            message = f"reading a message: its id has {len(one.id)} characters"
            raise ToolError(message, ErrorKind.VALIDATION, f"Use 1 to {LONGEST_ID}.")
        new.insert(0, one)
    if not new:
        return None
    texts: list[str] = []
    files: list[Attachment] = []
    for said in new:
        for part in [agui.TextPart(text=said.content)] if isinstance(said.content, str) else said.content:
            if isinstance(part, agui.TextPart):
                texts.append(part.text)
            else:
                files.append(_read_file(part))
    text = "\n\n".join(filter(str.strip, texts))
    if not text and not files:
        raise ToolError("reading a message: it is empty", ErrorKind.VALIDATION, "Send a text that says something.")
    return Message("user", text, attachments=tuple(files), extra={CLIENT_ID: [one.id for one in new]})


_KINDS = {"image": "image/*", "audio": "audio/*", "document": "application/*"}


def _read_file(part: Any) -> Attachment:
    """Returns a file of a message, of the kind that its bytes have. Raises `ToolError`."""
    kind = _KINDS.get(part.type)
    if kind is None or not isinstance(part.source, agui.DataSource):
        message = f"reading a message: a part of the type {part.type} from a {part.source.type} is not taken"
        raise ToolError(message, ErrorKind.VALIDATION, "Send an image, a sound or a document as base64 data.")
    try:
        data = b64decode(part.source.value, validate=True)
    except ValueError:
        message = f"reading a message: the data of its {part.type} are not base64"
        raise ToolError(message, ErrorKind.VALIDATION, "Send them as base64.") from None
    return recognise_file(kind, data, "")


def read_answers(questions: Mapping[str, agui.Interrupt], entries: Sequence[agui.ResumeEntry]) -> dict[str, Answer]:
    """Returns the answers to all open questions. Raises `ToolError`; then every question is still open."""
    answers: dict[str, Answer] = {}
    for entry in entries:
        question = questions.get(entry.interrupt_id)
        if question is None:
            if entry.status == "cancelled":
                continue
            message = f"answering the question {brief(entry.interrupt_id)}: it is not asked, or not any more"
            raise ToolError(message, ErrorKind.NOT_FOUND, "Load the thread: it has the questions that are open.")
        answer = read_answer(question, entry, BY)
        if answer is None:
            message = f"answering the question {brief(entry.interrupt_id)}: the payload does not fit its responseSchema"
            raise ToolError(message, ErrorKind.VALIDATION, 'Send {"decision": "once"} or {"decision": "no"}.')
        answers[entry.interrupt_id] = answer
    if missing := [id for id in questions if id not in answers]:
        message = f"answering the questions of a thread: {brief(missing[0])} has no answer"
        raise ToolError(message, ErrorKind.USER, "Send an entry of `resume` for each open interrupt.")
    return answers


def explain_invalid(error: Exception) -> str:
    """Returns the first thing that is wrong with a request, without its content."""
    if not isinstance(error, ValidationError):
        return "it is nested too deeply"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(one) for one in first["loc"][:8])
    return brief(f"{where}: {first['msg']}" if where else first["msg"])
