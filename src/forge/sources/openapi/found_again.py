"""Finds out whether a request of a lost worker took effect, with a GET of the same path."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from forge.core.result import Reconciled, ToolResult
from forge.sources.openapi.bodies import content_of, files_in
from forge.sources.openapi.operations import Operation
from forge.sources.openapi.plans import Body, Plan
from forge.sources.untrusted import one_line

Read = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]
"""Sends the GET with these arguments."""

# HTTP defines PUT and DELETE as idempotent. A PATCH is a state only in the form of a merge.
_MERGE = "application/merge-patch+json"
_MISSING = (404, 410)
_NOTHING = object()


def can_find(operation: Operation, body: Body | None) -> bool:
    """Tells if a GET of the same path shows whether such a request took effect."""
    is_merge = operation.method == "PATCH" and body is not None and body.media == _MERGE
    return operation.method in ("PUT", "DELETE") or is_merge


async def find_effect(
    operation: Operation, plan: Plan, lookup: Plan, read: Read, arguments: Mapping[str, Any]
) -> Reconciled:
    """Reads what is there now, and compares it with what the request should leave."""
    method, path = operation.method, f"GET {one_line(operation.path, 200)}"
    given = _choose_arguments(plan, lookup, arguments)
    if given is None:
        return Reconciled.unknown(f"{path} needs other arguments")
    now = await read(given)
    status = now.data["status"]
    is_there = 200 <= status < 300
    if not is_there and status not in _MISSING:
        return Reconciled.unknown(f"{path} answers {status}")
    if method == "DELETE":
        gone = ToolResult.of(f"It is deleted: {path} answers {status}.").with_data(status=status)
        return Reconciled.not_done(f"{path} still finds it") if is_there else Reconciled.done(gone, "it is gone")
    wanted = _read_body(plan.body, arguments)
    if is_there and wanted is _NOTHING:
        return Reconciled.unknown(f"the answer of {path} cannot be compared with what was sent")
    if is_there and not now.data["truncated"] and _holds(now.data["body"], wanted):
        words = f"It took effect; the answer was lost. {path} answers now:\n{now.for_llm}"
        return Reconciled.done(ToolResult(for_llm=words, data=now.data), f"{path} shows what was sent")
    if method == "PUT":
        return Reconciled.not_done(f"{path} does not show what was sent")
    return Reconciled.unknown(f"{path} does not show what was sent")


def _choose_arguments(plan: Plan, lookup: Plan, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the arguments of the GET: those of the same names; None if it requires others."""
    own = {(one.location, one.name): one.argument for one in plan.parameters}
    found: dict[str, Any] = {}
    for one in lookup.parameters:
        argument = own.get((one.location, one.name))
        if argument is not None and arguments.get(argument) is not None:
            found[one.argument] = arguments[argument]
    return found if set(lookup.schema.get("required", ())) <= found.keys() else None


def _read_body(body: Body | None, arguments: Mapping[str, Any]) -> Any:
    """Returns the JSON object that was sent, or `_NOTHING` if the body is something else."""
    if body is None or body.kind != "json" or files_in(body, arguments):
        return _NOTHING
    sent = content_of(body, arguments)
    value = _NOTHING if sent is None else json.loads(sent[1])
    return value if isinstance(value, dict) and value else _NOTHING


def _holds(found: Any, wanted: Any) -> bool:
    """Tells if everything wanted is there. A server may add fields; null may be an absent field."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_holds(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_holds(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)
