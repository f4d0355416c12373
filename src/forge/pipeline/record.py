"""Steps: tool calls to a file, and from the file back, for tests and demos."""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Next, Step
from forge.core.plain import plain
from forge.core.result import ToolResult
from forge.pipeline._step import having


def record(path: str | os.PathLike[str]) -> Step:
    """Append every call and its result, one JSON object a line. The file is readable by its owner alone."""

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        result = await proceed(ctx)
        line = json.dumps({**_asked(ctx), "result": result.to_dict(id=ctx.call.id, name=ctx.call.name)})
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, f"{line}\n".encode())  # one write a line: processes may share the file
        finally:
            os.close(file)
        return result

    return having(step, screens=True)


def replay(path: str | os.PathLike[str]) -> Step:
    """Answer calls from a recording instead of running them. The same call twice gets the two answers in order."""
    answers: dict[str, deque[ToolResult]] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            answers.setdefault(_key(entry), deque()).append(ToolResult.from_dict(entry["result"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ToolError(
                f"replay({os.fspath(path)!r}): line {number} is no recorded call: {error}",
                ErrorKind.CONFIG,
                "Record it again with record(path).",
            ) from None

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        left = answers.get(_key(_asked(ctx)))
        if not left:
            raise ToolError(
                "the recording has no (further) answer for this call", ErrorKind.NOT_FOUND, "Record it again."
            )
        return left.popleft()

    return step


def _asked(ctx: ToolContext) -> dict[str, Any]:
    arguments = ctx.arguments or (ctx.call.arguments if isinstance(ctx.call.arguments, str) else {})
    return {"name": ctx.spec.name, "arguments": plain(arguments)}


def _key(entry: dict[str, Any]) -> str:
    return json.dumps([entry["name"], entry["arguments"]], sort_keys=True)
