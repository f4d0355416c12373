"""Follows untrusted text through a script: a value that the script computed from such text, or chose by it, is tainted.

A value in a call of a script is either written in the script, or computed from results, the script's frozen clock and
its seeded random numbers. Reading the script tells which results a value can be computed from, and which results decide
that a call is made (`data_flow`). Where a script is not understood, each value counts as untrusted once a result of an
untrusted tool has reached the script.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from forge.core.label import UNTRUSTED, Label, merge_labels
from forge.core.result import ToolResult
from forge.permissions.labels.settings import current_provenance
from forge.tools.run_code.data_flow import ScriptFlow, read_flow

COMPUTED = "computed by the script: "
CHOSEN = "chosen by a condition on this text: "
LONGEST = 10_000  # characters of a computed value that are kept


class ScriptOrigins:
    """Knows the labels of everything that one script has read, and what the values of its calls depend on."""

    def __init__(self, code: str, call: str, tools: Iterable[str]) -> None:
        self._code, self._call, self._tools = code, call, tools
        self._labels: dict[str, tuple[Label, ...]] = {}  # by the name of the tool in the script
        self._noted: set[str] = set()

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

    def note_arguments(self, function: str, names: Sequence[str], arguments: Mapping[str, Any]) -> None:
        """Notes the values of a call that the script computed from untrusted text or chose by it, before the call."""
        provenance = current_provenance.get()
        if not self._labels or provenance is None:
            return
        for name, value in arguments.items():
            labels = self._find_labels(function, name, names.index(name) if name in names else -1)
            if not labels:
                continue
            for leaf in _find_leaves(value):
                kept = leaf[:LONGEST]
                if kept not in self._noted:
                    self._noted.add(kept)
                    how = CHOSEN if leaf in self._constants else COMPUTED
                    provenance.note(f"{how}{kept}", labels)

    def _find_labels(self, function: str, name: str, place: int) -> tuple[Label, ...]:
        """Returns the labels of the results that an argument can be computed from."""
        sources = self._flow.find_sources(function, name, place) if self._flow is not None else None
        if sources is None:
            return merge_labels(*self._labels.values())
        return merge_labels(*(labels for one, labels in self._labels.items() if one in sources))

    @cached_property
    def _flow(self) -> ScriptFlow | None:
        return read_flow(self._code, self._tools)

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
