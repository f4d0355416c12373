"""Step: judges requests that a tool makes through `forge.network` by the project's egress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge.core.context import ToolContext
from forge.core.executor import Next
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec

if TYPE_CHECKING:  # a program without an egress of its own needs nothing of the network
    from forge.network.egress import Egress


class GuardEgress:
    """Applies the project's egress to every call. Without one, the surrounding egress applies: public addresses only.

    It guards every tool, also one that forgot to declare that it uses the network.
    """

    name = "guard_egress"

    def __init__(self, egress: Egress | None = None) -> None:
        self.egress = egress

    def applies(self, spec: ToolSpec) -> bool:
        return self.egress is not None

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        from forge.network.egress import use_egress

        assert self.egress is not None
        with use_egress(self.egress):
            return await proceed(ctx)
