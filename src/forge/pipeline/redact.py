"""Step: registered secrets never reach a result."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.executor import Step
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.pipeline._step import make_look_step


def redact(secrets: Secrets) -> Step:
    """What merely looks like a secret stays, so that a file that was read can be edited; events and logs mask it."""

    def look(_: ToolContext, result: ToolResult) -> ToolResult:
        return result if secrets.pattern is None else result.masked(secrets.mask_value)

    return make_look_step(look, screens=True)
