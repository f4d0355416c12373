"""Step: judges requests that a tool makes through `forge.network` by the project's egress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge.core.context import ToolContext
from forge.core.executor import Next, Step
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.pipeline._step import add_attributes

if TYPE_CHECKING:  # a program without an egress of its own needs nothing of the network
    from forge.network.egress import Egress


def guard_egress(egress: Egress | None = None) -> Step:
    """Applies the project's egress to every call. Without one, the surrounding egress applies: public addresses only.

    It guards every tool, also one that forgot to declare that it uses the network.
    """

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        from forge.network.egress import use_egress

        assert egress is not None
        with use_egress(egress):
            return await proceed(ctx)

    def applies(spec: ToolSpec) -> bool:
        return egress is not None

    return add_attributes(step, applies=applies, egress=egress)
