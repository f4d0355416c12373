"""Follows untrusted text through a script: a value that the script computed from such text, or chose by it, is tainted.

A value in a call of a script is either written in the script, or computed from results, the script's frozen clock and
its seeded random numbers. Reading the script tells which results a value can be computed from, and which results decide
that a call is made (`data_flow`). Where a script is not understood, each value counts as untrusted once a result of an
untrusted tool has reached the script.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from forge.core.label import UNTRUSTED, Label, merge_labels
from forge.core.result import ToolResult
from forge.core.spec import ToolSpec
from forge.permissions.labels.settings import current_provenance
from forge.tools.run_code.data_flow import ScriptFlow, read_flow


class ScriptOrigins:
    """Knows the labels of everything that one script has read, and what the values of its calls depend on."""

    def __init__(self, code: str, call: str, tools: Mapping[str, ToolSpec]) -> None:
        self._code, self._call, self._tools = code, call, tools
        self._labels: dict[str, tuple[Label, ...]] = {}  # by the name of the tool in the script

    def note_result(self, function: str, result: ToolResult) -> None:
        """Notes the labels of a result that the script receives."""
        untrusted = [one for one in result.labels if one.kind == UNTRUSTED]
        if untrusted:
            self._labels[function] = merge_labels(self._labels.get(function, ()), untrusted)

    def note_stored(self, function: str, result: ToolResult) -> None:
        """Notes a result from before the script waited: another process may have read it."""
        self.note_result(function, result)
        provenance = current_provenance.get()
        if result.labels and provenance is not None:
            provenance.note_inner(self._call, result.for_llm, result.labels)

    def note_arguments(self, call: str, function: str, names: Sequence[str], arguments: Mapping[str, Any]) -> None:
        """Notes what the values of a call were computed from or chosen by, before the call is made."""
        provenance = current_provenance.get()
        if provenance is None:
            return
        from forge.permissions.labels.provenance import ScriptArguments  # a run has loaded it

        labels: dict[str, tuple[Label, ...]] = {}
        decided: tuple[Label, ...] = ()
        if self._labels:
            places = {name: names.index(name) if name in names else -1 for name in arguments}
            labels = {name: found for name, at in places.items() if (found := self._find_labels(function, name, at))}
            sources = self._flow.find_decisions(function) if self._flow is not None else None
            decided = self._labels_of(sources)
        written = frozenset(name for name in labels if self._is_written(arguments[name]))
        provenance.note_arguments(call, ScriptArguments(self._call, arguments, labels, written, decided))

    def forget_arguments(self, call: str) -> None:
        """Forgets what was noted about a call that is over."""
        provenance = current_provenance.get()
        if provenance is not None:
            provenance.forget_arguments(call)

    def _is_written(self, value: Any) -> bool:
        """Says whether a value is written in the script, so that a text can only have chosen it."""
        return all(leaf in self._constants for leaf in _find_leaves(value))

    def _find_labels(self, function: str, name: str, place: int) -> tuple[Label, ...]:
        """Returns the labels of the results that an argument can be computed from."""
        sources = self._flow.find_sources(function, name, place) if self._flow is not None else None
        return self._labels_of(sources)

    def _labels_of(self, sources: Collection[str] | None) -> tuple[Label, ...]:
        if sources is None:
            return merge_labels(*self._labels.values())
        return merge_labels(*(labels for one, labels in self._labels.items() if one in sources))

    @cached_property
    def _flow(self) -> ScriptFlow | None:
        return read_flow(self._code, self._tools, [name for name, spec in self._tools.items() if spec.irreversible])

    @cached_property
    def _constants(self) -> frozenset[str]:
        """The values that are written in the script."""
        try:
            nodes = ast.walk(ast.parse(self._code))
            return frozenset(str(node.value) for node in nodes if isinstance(node, ast.Constant))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return frozenset()  # then every value counts as computed


def _find_leaves(value: Any) -> Iterator[str]:
    """Yields the texts and numbers of plain data, which is not nested more deeply than JSON can be written."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif one is not None and not isinstance(one, bool):
            yield str(one)
