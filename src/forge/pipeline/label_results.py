"""Step: labels results that others may have written, or that must not leave, with their origin."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from forge.core.context import ToolContext
from forge.core.messages import InnerCall
from forge.core.result import Label, ToolResult, merge_labels
from forge.permissions.labels.settings import LabelSettings, current_provenance, find_fixed_labels, label_call


class LabelResults:
    """Labels results. The labels reach the run's history, and rules and the default profile look at them.

    A result also has the labels of the calls that its tool made, and of the agents that its tool ran. The result of a
    call of a script has those of its arguments, too.
    """

    name = "label_results"

    def __init__(self, settings: LabelSettings) -> None:
        self._settings = settings
        self._fixed: WeakKeyDictionary[Any, tuple[Label, ...] | None] = WeakKeyDictionary()  # labels of any result

    def after(self, ctx: ToolContext, result: ToolResult) -> ToolResult:
        try:
            labels = self._fixed[ctx.tool]
        except KeyError:
            labels = self._fixed[ctx.tool] = find_fixed_labels(ctx.spec, ctx.tool, self._settings)
        if labels is None:
            labels = label_call(self._settings, ctx.spec, ctx.tool, ctx.arguments, ctx.scope)
        return _add_labels(ctx, result, labels)


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
