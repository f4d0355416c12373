"""Step: labels results that others may have written, or that must not leave, with their origin."""

from __future__ import annotations

from typing import Any

from forge.core.context import ToolContext
from forge.core.executor import Look, Step
from forge.core.messages import InnerCall
from forge.core.result import Label, ToolResult, merge_labels
from forge.permissions.labels.settings import LabelSettings, current_provenance, find_fixed_labels, label_call
from forge.pipeline._step import make_look_step


def label_results(settings: LabelSettings) -> Step:
    """Labels results. The labels reach the run's history, and rules and the default profile look at them.

    A result also has the labels of the calls that its tool made, and of the agents that its tool ran. The result of a
    call of a script has those of its arguments, too.
    """

    def look(ctx: ToolContext, result: ToolResult) -> ToolResult:
        return _add_labels(ctx, result, label_call(settings, ctx.spec, ctx.tool, ctx.arguments, ctx.scope))

    def look_for(tool: Any) -> Look:
        labels = find_fixed_labels(tool.spec, tool, settings)
        if labels is None:
            return look

        find_provenance = current_provenance.get

        def look_fixed(ctx: ToolContext, result: ToolResult) -> ToolResult:
            provenance = find_provenance()
            if result.labels or (provenance is not None and (provenance.has_inner or type(ctx.call) is InnerCall)):
                return _add_labels(ctx, result, labels)
            return result.with_labels(labels) if labels else result

        return look_fixed

    return make_look_step(look, screens=True, look_for=look_for, labels=settings)


def _add_labels(ctx: ToolContext, result: ToolResult, labels: tuple[Label, ...]) -> ToolResult:
    provenance = current_provenance.get()
    if provenance is not None and provenance.has_inner:
        labels = merge_labels(labels, provenance.take_inner(ctx.call.id, result.labels))
    is_inner = provenance is not None and type(ctx.call) is InnerCall
    if is_inner:
        labels = merge_labels(labels, provenance.find_inherited(ctx.call.id))  # type: ignore[union-attr]
    if result.labels:
        labels = merge_labels(result.labels, labels)
    if not labels:
        return result
    if provenance is not None and type(ctx.call) is InnerCall:
        from forge.permissions.labels.texts import find_fields  # a run has loaded it

        provenance.note_inner(ctx.call.parent, result.for_llm, labels, find_fields(result, ctx.spec))
    return result.with_labels(labels)
