"""Steps that record tool calls to a file and replay them, for tests and demos."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Next, Step, StepObject
from forge.core.plain_values import plain
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.workspace.state import append_whole

log = logging.getLogger(__name__)


def record(path: str | os.PathLike[str], secrets: Secrets | None = None) -> Step:
    """Makes a step that appends every call and its result to a file, one JSON object per line.

    Only the owner can read the file. The end of background work is a line of its own, marked as `completed`. A call
    that cannot be recorded has its result all the same, with a warning.

    Args:
        path: the file.
        secrets: values that are masked; by default those of the call's activity.

    Example:
        >>> record("calls.ndjson").name
        'record'
    """
    return _Record(path, secrets)


class _Record(StepObject):
    name = "record"

    def __init__(self, path: str | os.PathLike[str], secrets: Secrets | None) -> None:
        self._path = path
        self._secrets = secrets

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        entry = _make_entry(ctx, result, self._secrets)
        problem = _append(self._path, {**entry, "completed": True} if ctx.completes else entry)
        return _with_warning(result, ctx, problem) if problem else result


def replay(path: str | os.PathLike[str], secrets: Secrets | None = None) -> Step:
    """Makes a step that answers calls from a recording instead of running them. Equal calls get their answers in order.

    Args:
        path: the file that `record` wrote.
        secrets: values that are masked.

    Example:
        >>> _ = Path("calls.ndjson").write_text("")
        >>> callable(replay("calls.ndjson"))
        True
    """
    answers: dict[str, deque[_Answer]] = {}
    for answer in _pair_answers(_read_entries(path)):
        answers.setdefault(answer.key, deque()).append(answer)

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        left = answers.get(_key(_mask_entry(_call_data(ctx), ctx, secrets)))
        if not left:
            raise ToolError("the recording has no more results for this call", ErrorKind.NOT_FOUND, "Record it again.")
        answer = left.popleft()
        if answer.completion is not None:
            ctx.background(answer.complete, "")
        return answer.result

    return step


@dataclass
class _Answer(StepObject):
    """The recorded answer to a call, and the result of its background work."""

    key: str
    result: ToolResult
    completion: ToolResult | None = None

    async def complete(self) -> ToolResult | None:
        return self.completion


def _append(path: str | os.PathLike[str], entry: dict[str, Any]) -> str:
    """Appends an entry. Returns the problem, if there was one."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            append_whole(file, f"{json.dumps(entry)}\n".encode())
        finally:
            os.close(file)
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _with_warning(result: ToolResult, ctx: ToolContext, problem: str) -> ToolResult:
    log.warning("a call of %s was not recorded: %s", ctx.spec.name, problem)
    warnings = [result.data.get("warning"), f"this call was not recorded: {problem}"]
    return result.with_data(warning="; ".join(str(one) for one in warnings if one))


def _read_entries(path: str | os.PathLike[str]) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            yield {**entry, "key": _key(entry), "result": ToolResult.from_dict(entry["result"]), "id": _id(entry)}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ToolError(
                f"replay({os.fspath(path)!r}): line {number} is not a recorded call: {error}",
                ErrorKind.CONFIG,
                "Record it again with record(path).",
            ) from None


def _pair_answers(entries: Iterable[dict[str, Any]]) -> list[_Answer]:
    """Returns the answers in order, each with the end of its background work, found by the latest equal id."""
    answers: list[_Answer] = []
    latest: dict[tuple[str, str], _Answer] = {}
    early: dict[tuple[str, str], ToolResult] = {}  # it may end before its beginning is written down
    for entry in entries:
        call = entry["name"], entry["id"]
        if not entry.get("completed"):
            latest[call] = _Answer(entry["key"], entry["result"], early.pop(call, None))
            answers.append(latest[call])
        elif call in latest:
            latest[call].completion = entry["result"]
        else:
            early[call] = entry["result"]
    return answers


def _make_entry(ctx: ToolContext, result: ToolResult, secrets: Secrets | None) -> dict[str, Any]:
    wire = result.to_dict(id=ctx.call.id, name=ctx.call.name, whole=True)  # it is to be played again
    return _mask_entry({**_call_data(ctx), "result": wire}, ctx, secrets)


def _call_data(ctx: ToolContext) -> dict[str, Any]:
    arguments = ctx.arguments or (ctx.call.arguments if isinstance(ctx.call.arguments, str) else {})
    return {"name": ctx.spec.name, "arguments": plain(arguments)}


def _mask_entry(entry: dict[str, Any], ctx: ToolContext, secrets: Secrets | None) -> dict[str, Any]:
    secrets = ctx.activity.secrets if secrets is None else secrets
    if secrets.pattern is None:
        return entry
    masked: dict[str, Any] = secrets.mask_value(entry)
    return masked


def _key(entry: dict[str, Any]) -> str:
    return json.dumps([entry["name"], entry["arguments"]], sort_keys=True)


def _id(entry: dict[str, Any]) -> str:
    return str(entry["result"].get("id", ""))
