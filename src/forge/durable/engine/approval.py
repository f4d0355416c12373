"""Stores approvals: the run waits as a row, and an answer from anywhere resumes it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from forge.core.execution.threads import in_thread
from forge.core.plain_values import plain, sendable
from forge.durable.engine.attempt import Attempt, current_attempt
from forge.durable.store.encoding import object_of
from forge.durable.store.rows import COVERS, TAKES, Question
from forge.durable.store.waits import Wait
from forge.permissions.conditions import Trace
from forge.permissions.questions import Answer, PermissionRequest
from forge.permissions.remember import make_memory

LARGEST_SCHEMA = 16_000  # characters of it that are stored
_BOUND = ("tool", "arguments", "parts", "preview", "introduction", "question", "result", "form", "effects")
ANSWER_POLL = 0.5  # seconds between queries for the answer of a blocking question


async def stored_approval(request: PermissionRequest) -> Answer:
    """An approver. Declared permissions are asked before the call runs: the run waits without a process. So it does
    with the effects of a trial run, whose layer waits on disk.

    A tool that asks while it runs cannot be suspended: then this process waits, and the run with it.
    """
    attempt = current_attempt.get()
    if attempt is None:
        return Answer.no(by="nobody")
    if await in_thread(lambda: _is_always_allowed(attempt, request)):  # first: this stores no question
        return Answer("always", by="always")
    if request.effects is not None:
        request = await in_thread(lambda: _explain_lost_layer(attempt, request))
    question = _build_question(attempt, request)
    stored = await in_thread(lambda: attempt.store.ask(question, attempt.run.segment, attempt.context.worker))
    while stored.answer is None:
        if request.is_before_call or request.effects is not None:
            raise Wait.for_approval(stored.id).as_error("it waits for a person's approval")
        try:
            await asyncio.sleep(ANSWER_POLL)
            stored = await in_thread(lambda: attempt.store.question(question.id))
        except asyncio.CancelledError:  # what asked has ended, such as a program that wanted to reach a host
            await asyncio.shield(in_thread(lambda: attempt.store.withdraw(question.id)))
            raise
    return answer_from_json(stored.answer, stored.by)


def _explain_lost_layer(attempt: Attempt, request: PermissionRequest) -> PermissionRequest:
    """Says why effects are asked about again: an answer to an earlier question was about another trial of the call."""
    assert request.effects is not None
    asked = attempt.store.questions(attempt.run.id, open=False)
    earlier = [one for one in asked if one.call == request.call.id and isinstance(one.request.get("effects"), dict)]
    digests = {str(one.request["effects"].get("digest")) for one in earlier}
    if not earlier or request.effects.digest in digests or request.ruling is None:
        return request
    reason = (
        f"{request.ruling.reason}; an earlier trial of this call is gone, or its effects changed, so it was run again:"
        " the answer to the earlier question is not used"
    )
    return dataclasses.replace(request, ruling=dataclasses.replace(request.ruling, reason=reason))


def answer_to_json(answer: Answer) -> dict[str, Any]:
    wire: dict[str, Any] = {"kind": answer.kind}
    if answer.feedback:
        wire["feedback"] = sendable(answer.feedback)
    if answer.arguments is not None:
        wire["arguments"] = object_of(answer.arguments)
    if answer.review:
        wire["review"] = True
    if answer.paths is not None:
        wire["paths"] = [sendable(path) for path in answer.paths]
    return wire


def answer_from_json(wire: Mapping[str, Any], by: str = "") -> Answer:
    """Decodes an answer; an unreadable one is a no."""
    kind, arguments, paths = wire.get("kind"), wire.get("arguments"), wire.get("paths")
    if (
        kind not in ("once", "always", "no")
        or not isinstance(arguments, Mapping | None)
        or not (paths is None or (isinstance(paths, list) and all(isinstance(path, str) for path in paths)))
    ):
        return Answer.no("the stored answer cannot be read", by="error")
    review = wire.get("review", False) is not False
    return Answer(kind, str(wire.get("feedback", "")), arguments, review, by or "person", paths)


def request_to_json(request: PermissionRequest) -> dict[str, Any]:
    """Encodes all that a person must see to answer."""
    ruling = request.ruling
    wire: dict[str, Any] = {
        "tool": request.spec.name,
        "description": request.spec.description,
        "agent": request.scope.agent,
        "task": request.scope.task,
        "arguments": object_of(request.arguments),
        "parts": [[str(part.permission or ""), part.target] for part in request.parts],
        "rule": ruling.rule if ruling is not None else "",
        "reason": ruling.reason if ruling is not None else "",
        "traces": [{key: sendable(value) for key, value in _words(trace)} for trace in request.traces],
        "remember": request.remember,
        COVERS: _covered_digests(request),
        TAKES: _accepted_arguments(request),
        "editable": request.editable,
        "personal": request.personal,
        "preview": request.preview,
        "introduction": request.introduction,
        "question": request.question,
        "form": plain(request.form),
        "effects": _effects(request),
        "result": request.result.for_llm if request.result is not None else None,
    }
    return {key: value for key, value in wire.items() if value not in ("", None, [])}


def _effects(request: PermissionRequest) -> dict[str, Any] | None:
    effects = request.effects
    if effects is None:
        return None
    files = [[kind, sendable(path)] for kind, path in effects.files]
    return {"summary": sendable(effects.summary), "files": files, "digest": effects.digest}


def _words(trace: Trace) -> list[tuple[str, str]]:
    names = ("argument", "value", "kind", "origin", "quote")
    return [(name, getattr(trace, name)) for name in names]


def _build_question(attempt: Attempt, request: PermissionRequest) -> Question:
    """Builds a question whose id is bound to the exact call: other arguments, targets, a changed preview or a changed
    tool make another question, since an answer may come days later.
    """
    shown = request_to_json(request)
    bound = {**{key: shown.get(key) for key in _BOUND}, "definition": _definition(request)}
    digest = _hash(json.dumps(bound, sort_keys=True))
    name = sha256(f"{attempt.run.id}\n{request.call.id}\n{digest}".encode()).hexdigest()[:16]
    return Question(
        id=name, run=attempt.run.id, call=request.call.id, tool=request.spec.name, digest=digest, request=shown
    )


def _is_always_allowed(attempt: Attempt, request: PermissionRequest) -> bool:
    """Returns whether a person allowed all of this with "always" earlier in the run, maybe on another worker."""
    wanted = _covered_digests(request)
    if not wanted:
        return False
    return set(wanted) <= attempt.store.always(attempt.run.id)


def _accepted_arguments(request: PermissionRequest) -> dict[str, Any] | None:
    """Returns the schema to check edited arguments; None if they cannot be edited, or the schema is long."""
    if not request.is_before_call:
        return None
    wire = _schema(request)
    return wire if len(json.dumps(wire)) <= LARGEST_SCHEMA else None


def _schema(request: PermissionRequest) -> dict[str, Any]:
    spec, parameters = request.spec, request.spec.parameters
    if spec.fixed:  # they are among the arguments that the person sees
        fixed = {key: {"const": value} for key, value in spec.fixed.items()}
        parameters = {**parameters, "properties": {**parameters.get("properties", {}), **fixed}}
    return object_of({"parameters": parameters, "aliases": dict(spec.argument_aliases), "strict": spec.strict})


def _definition(request: PermissionRequest) -> str:
    """Returns a digest of what the tool says about itself: a tool of the same name that says something else is another
    tool.
    """
    return _hash(json.dumps([request.spec.description, _schema(request)], sort_keys=True))


def _covered_digests(request: PermissionRequest) -> list[str]:
    """Returns digests of exactly what "always" covers: the rule shown to people does not distinguish arguments."""
    if not request.remember:
        return []
    keys = [
        make_memory(part.spec, part.permission, part.target, part.arguments, part.scope).key for part in request.parts
    ]
    if not all(keys):
        return []
    definition = _definition(request)
    return [_hash(repr((definition, _sort_sets(key)))) for key in keys]


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _sort_sets(key: Any) -> Any:
    """Sorts sets, whose order differs between processes."""
    if isinstance(key, frozenset):
        return sorted(map(str, key))
    return [_sort_sets(one) for one in key] if isinstance(key, tuple) else str(key)
