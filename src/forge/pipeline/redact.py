"""Step: keeps registered secrets out of results."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.executor import Step
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.pipeline._step import make_look_step


def redact(secrets: Secrets) -> Step:
    """Masks registered secrets only, so that a file that was read can be edited; events mask look-alikes too."""

    def look(_: ToolContext, result: ToolResult) -> ToolResult:
        return result if secrets.pattern is None else result.masked(secrets.mask_value)

    return make_look_step(look, screens=True)
