"""Step: keeps registered secrets out of results."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.result import ToolResult
from forge.core.secrets import Secrets


class Redact:
    """Masks registered secrets only, so that a file that was read can be edited; events mask look-alikes too."""

    name = "redact"

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        return result if self._secrets.pattern is None else result.masked(self._secrets.mask_value)
