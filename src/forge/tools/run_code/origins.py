"""Follows untrusted text through a script: a value that the script computed after it read such text is tainted.

A value in a call of a script is either written in the script, or computed from results, the script's frozen clock and
its seeded random numbers. From outside, nobody sees which result it was computed from. So once a result of an untrusted
tool has reached the script, each computed value counts as untrusted; a value that is written in the script does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from forge.core.label import UNTRUSTED, Label, merge_labels
from forge.core.result import ToolResult
from forge.permissions.labels.settings import current_provenance

COMPUTED = "computed by the script: "
LONGEST = 10_000  # characters of a computed value that are kept


class ScriptOrigins:
    """Knows the labels of everything that one script has read, and the constants that are written in it."""

    def __init__(self, code: str, call: str) -> None:
        self._code, self._call = code, call
        self._labels: tuple[Label, ...] = ()
        self._noted: set[str] = set()

    def note_result(self, result: ToolResult) -> None:
        """Notes the labels of a result that the script receives."""
        if result.labels:
            self._labels = merge_labels(self._labels, (one for one in result.labels if one.kind == UNTRUSTED))

    def note_stored(self, result: ToolResult) -> None:
        """Notes a result from before the script waited: another process may have read it."""
        self.note_result(result)
        provenance = current_provenance.get()
        if result.labels and provenance is not None:
            provenance.note_inner(self._call, result.for_llm, result.labels)

    def note_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Notes the computed values of a call that the script is about to make, if it has read untrusted text."""
        provenance = current_provenance.get()
        if not self._labels or provenance is None:
            return
        for leaf in _find_leaves(arguments):
            if leaf not in self._constants and leaf not in self._noted:
                self._noted.add(leaf)
                provenance.note(f"{COMPUTED}{leaf[:LONGEST]}", self._labels)

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
