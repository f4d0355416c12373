"""Step: labels results that others may have written, or that must not leave, with their origin."""

from __future__ import annotations

from forge.core.context import ToolContext
from forge.core.executor import Step
from forge.core.label import Label, merge_labels
from forge.core.messages import InnerCall
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.permissions.labels.label_call import find_fixed_labels, label_call, may_label
from forge.permissions.labels.settings import LabelSettings, current_provenance
from forge.pipeline._step import make_look_step

HOLDERS = frozenset({"task", "run_code", "mcp_call", "openapi_call"})  # their results may hold those of other calls
MOST_TOOLS = 10_000  # whose labels are kept


def label_results(settings: LabelSettings) -> Step:
    """Labels results. The labels reach the run's history, and rules and the default profile look at them."""

    fixed: dict[int, tuple[object, tuple[Label, ...] | None]] = {}  # of tools whose results all have the same labels

    def find_labels(ctx: ToolContext) -> tuple[Label, ...]:
        known = fixed.get(id(ctx.tool))
        if known is None or known[0] is not ctx.tool:
            if len(fixed) >= MOST_TOOLS:
                fixed.clear()
            known = fixed[id(ctx.tool)] = (ctx.tool, find_fixed_labels(ctx.spec, ctx.tool, settings))
        if known[1] is not None:
            return known[1]
        return label_call(settings, ctx.spec, ctx.tool, ctx.arguments, ctx.scope)

    def look(ctx: ToolContext, result: ToolResult) -> ToolResult:
        labels = find_labels(ctx)
        provenance = current_provenance.get()
        if provenance is not None and ctx.spec.name in HOLDERS and not _is_closed(ctx, result):
            labels = merge_labels(labels, provenance.take_inner(ctx.call.id))
        if not labels and not result.labels:
            return result
        labels = merge_labels(result.labels, labels) if result.labels else labels
        if provenance is not None and isinstance(ctx.call, InnerCall):
            provenance.note_inner(ctx.call.parent, result.for_llm, labels)
        return result.with_labels(labels)

    def applies(spec: ToolSpec) -> bool:
        return spec.name in HOLDERS or may_label(spec, settings)

    return make_look_step(look, screens=True, applies=applies, labels=settings)


def _is_closed(ctx: ToolContext, result: ToolResult) -> bool:
    """Says whether it is an answer from quarantine, whose possible values were all known before."""
    return ctx.spec.name == "task" and result.data.get("closed") is True
