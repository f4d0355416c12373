"""Questions that are stored: the run waits as a row, and whoever answers, wherever, lets it go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from forge.core.errors import Waiting
from forge.core.plain import plain, sendable
from forge.durable.attempt import Attempt, current
from forge.durable.rows import Question
from forge.durable.wire import object_of
from forge.permissions.answers import Answer
from forge.permissions.request import PermissionRequest

LOOK = 0.5  # seconds between looks for the answer to a question that is held


async def stored_approval(request: PermissionRequest) -> Answer:
    """An approver. What a call declares is asked before it runs: the run waits without a process.

    A tool that asks while it is at work cannot be put away: then this process waits, and the run with it.
    """
    attempt = current.get()
    if attempt is None:
        return Answer.no(by="nobody")
    asked = _question(attempt, request)
    kept = await asyncio.to_thread(attempt.store.ask, asked)
    if kept.answer is None and request.remember and await asyncio.to_thread(_was_always, attempt, request.remember):
        return Answer("always", by="always")
    while kept.answer is None:
        if request.editable and request.result is None and not request.question:
            raise Waiting("it waits for a person's yes", kind="approval", question=kept.id)
        await asyncio.sleep(LOOK)
        kept = await asyncio.to_thread(attempt.store.question, kept.id)
    return answer_from_json(kept.answer, kept.by)


def answer_to_json(answer: Answer) -> dict[str, Any]:
    wire: dict[str, Any] = {"kind": answer.kind}
    if answer.feedback:
        wire["feedback"] = sendable(answer.feedback)
    if answer.arguments is not None:
        wire["arguments"] = object_of(answer.arguments)
    return wire


def answer_from_json(wire: Mapping[str, Any], by: str = "") -> Answer:
    """The answer as it was given; what cannot be read is a no."""
    kind, arguments = wire.get("kind"), wire.get("arguments")
    if kind not in ("once", "always", "no") or not isinstance(arguments, Mapping | None):
        return Answer.no("the stored answer cannot be read", by="error")
    return Answer(kind, str(wire.get("feedback", "")), arguments, by=by or "person")


def request_to_json(request: PermissionRequest) -> dict[str, Any]:
    """All that a person must see to answer."""
    ruling = request.ruling
    wire: dict[str, Any] = {
        "tool": request.spec.name,
        "description": request.spec.description,
        "agent": request.scope.agent,
        "arguments": object_of(request.arguments),
        "parts": [[str(part.permission or ""), part.target] for part in request.parts],
        "rule": ruling.rule if ruling is not None else "",
        "reason": ruling.reason if ruling is not None else "",
        "remember": request.remember,
        "editable": request.editable,
        "personal": request.personal,
        "preview": request.preview,
        "introduction": request.introduction,
        "question": request.question,
        "form": plain(request.form),
        "result": request.result.for_llm if request.result is not None else None,
    }
    return {key: value for key, value in wire.items() if value not in ("", None)}


def _question(attempt: Attempt, request: PermissionRequest) -> Question:
    """Its id is that of the exact call: the same arguments for the same things, or it is another question."""
    shown = request_to_json(request)
    bound = {key: shown.get(key) for key in ("tool", "arguments", "parts", "question", "result", "form")}
    digest = sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()
    name = sha256(f"{attempt.run.id}\n{request.call.id}\n{digest}".encode()).hexdigest()[:16]
    return Question(
        id=name, run=attempt.run.id, call=request.call.id, tool=request.spec.name, digest=digest, request=shown
    )


def _was_always(attempt: Attempt, rule: str) -> bool:
    """Whether a person said "always" to this in the run before: maybe on another worker."""
    return any(
        (one.answer or {}).get("kind") == "always" and one.request.get("remember") == rule
        for one in attempt.store.questions(attempt.run.id, open=False)
    )
