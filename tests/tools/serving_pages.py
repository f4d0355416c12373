"""Tools of the web on a bench whose egress allows loopback, and servers that play the search services."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Next
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.core.tool import Tool
from forge.network.egress import Egress
from forge.pipeline.authorize import GuardEgress
from tests.network.serving import HERE, Asked, Reply, page, redirect, serving, site

__all__ = ["HERE", "Asked", "Reply", "Web", "html", "kind_of", "page", "plays", "redirect", "serving", "site"]


class Web:
    """One tool behind a gate that notes what it is asked, and an egress."""

    def __init__(self, tool: Tool, workspace: Path, egress: Egress | None = HERE) -> None:
        self.asked: list[tuple[str, str]] = []
        self.refused: set[str] = set()
        self.tool = tool
        self.workspace = workspace
        self.executor = ToolExecutor(ToolRegistry([tool]), [self._guard, GuardEgress(egress)])

    async def call(self, session_id: str = "web", **arguments: Any) -> ToolResult:
        scope = Scope(session_id=session_id, workspace=self.workspace)
        return await self.executor.execute(ToolCall(self.tool.spec.name, arguments), scope)

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        self.asked.append((str(permission), target))
        if target in self.refused:
            raise ToolError("refused", ErrorKind.PERMISSION)

    async def _guard(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        return await proceed(ctx.replace(gate=self))


def kind_of(result: ToolResult) -> str:
    """Of its failure; empty if there is none."""
    return "" if result.failure is None else str(result.failure.kind)


def html(body: str, **headers: str) -> Reply:
    return page(body, "text/html; charset=utf-8", **headers)


def plays(path: str, answer: Any, status: int = 200, **headers: str) -> Callable[[Asked], Reply]:
    """A service that answers what is posted to its path; without a key it answers 401."""

    def answered(asked: Asked) -> Reply:
        if asked.path != path or asked.method != "POST":
            return Reply([b"{}"], 404)
        if not asked.headers.get("authorization", "").startswith("Bearer "):
            return Reply([b'{"detail": {"error": "Unauthorized: missing or invalid API key."}}'], 401)
        said = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        kept = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return Reply([said], status, [("Content-Type", "application/json"), *kept])

    return answered
