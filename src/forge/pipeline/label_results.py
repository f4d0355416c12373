"""Steps that label what a model reads with its origin: results, and files that were written from untrusted text."""

from __future__ import annotations

import glob
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.execution.chain import Next, StepObject
from forge.core.messages import InnerCall
from forge.core.result import LONGEST_ORIGIN, UNTRUSTED, Label, ToolResult, merge_labels
from forge.core.spec import Category, Permission, ToolSpec
from forge.permissions.gate import gate_of
from forge.permissions.labels.settings import (
    LabelSettings,
    current_provenance,
    find_fixed_labels,
    is_shell,
    label_call,
    matches_settings,
    prints_untrusted,
    relative_paths,
)
from forge.permissions.labels.texts import find_fields
from forge.permissions.labels.values import find_texts
from forge.permissions.targets import targets_of
from forge.workspace.state.untrusted_files import find_origin, has_marks, mark_span

if TYPE_CHECKING:
    from forge.permissions.labels.provenance import Provenance


class LabelResults(StepObject):
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
        provenance.note_inner(ctx.call.parent, result.for_llm, labels, find_fields(result, ctx.spec))
    return result.with_labels(labels)


# Files that were written from untrusted text are untrusted when they are read again, also in later sessions.


MOST_FILES = 2_000  # of one call that are looked at
MOST_FOLDERS = 8  # that a line enters
UNKNOWN = "a file that was not looked at"
_ENTERS = frozenset({"cd", "pushd", "-C"})  # before the name of a folder in a command line
_FILES = {Permission.READ, Permission.WRITE, Permission.EXECUTE}
_NOT_IN_PATHS = re.compile(r"[\s;|&<>()'\"`=]+")
_GLOB = re.compile(r"[*?\[]")

log = logging.getLogger(__name__)


class MarkFiles(StepObject):
    """Marks the files that a call writes from untrusted text, and labels results that come from marked files."""

    name = "mark_files"

    def __init__(self, settings: LabelSettings) -> None:
        self._settings = settings

    def applies(self, spec: ToolSpec) -> bool:
        return _touches_files(spec)

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        provenance = current_provenance.get()
        if provenance is None:
            return await proceed(ctx)
        before = _find_before(ctx)
        began = time.time_ns()
        result = await proceed(ctx)
        try:
            return _look(self._settings, provenance, ctx, result, began, before)
        except ToolError:  # arguments that name no target
            return result


def _touches_files(spec: ToolSpec) -> bool:
    if not (spec.permissions | spec.optional_permissions) & _FILES:
        return False
    if spec.category is Category.BUILTIN or spec.targets:
        return True  # built-in tools name the files in their data
    return _writes_untrusted(spec)


def _writes_untrusted(spec: ToolSpec) -> bool:
    """Returns whether others decide what the tool writes, such as a program that is an MCP server."""
    return spec.trust == UNTRUSTED and bool(spec.permissions & {Permission.WRITE, Permission.EXECUTE})


def _look(
    settings: LabelSettings,
    provenance: Provenance,
    ctx: ToolContext,
    result: ToolResult,
    began: int,
    before: Mapping[str, str],
) -> ToolResult:
    spec, workspace = ctx.spec, ctx.scope.workspace
    targets = [str(one) for one in targets_of(spec, ctx.arguments, ctx.tool)]
    shown = [] if is_shell(spec) else [*_find_paths(result.data)]
    origins = {**before, **_find_origins(ctx, [*_find_named(ctx, targets), *shown])}
    names = relative_paths([*origins], ctx.scope)
    if origins and not matches_settings(settings.trusted, spec, [], names):
        path, origin = next(iter(origins.items()))
        where = f"{spec.name} {path}, from {origin}"
        result = result.with_labels(merge_labels(result.labels, (Label(UNTRUSTED, where[:LONGEST_ORIGIN]),)))
    if (source := _find_source(provenance, ctx, targets, result, before)) and (
        result.failure is None or is_shell(spec) or _writes_untrusted(spec)
    ):
        if (trial := gate_of(ctx).trial) is not None:  # its files are written when its effects are applied
            trial.source = source
            return result
        seconds = result.data.get("duration") if "job_id" in result.data else 0
        earlier = int(seconds * 1e9) if isinstance(seconds, int | float) else 0  # a job in the background
        try:
            mark_span(workspace, began - earlier, source)
        except OSError as error:
            log.warning("%s wrote untrusted text, and this could not be noted: %s", spec.name, error.strerror)
    return result


def _find_before(ctx: ToolContext) -> dict[str, str]:
    """Returns the origins of the files that a call names, before it runs: it may write them again."""
    if not has_marks(ctx.scope.workspace):
        return {}
    try:
        return _find_origins(ctx, _find_named(ctx, [str(one) for one in targets_of(ctx.spec, ctx.arguments, ctx.tool)]))
    except Exception:  # arguments that name no target: after the call, its failure says why
        return {}


def _find_named(ctx: ToolContext, targets: list[str]) -> list[str]:
    """Returns the paths that a call names."""
    if not is_shell(ctx.spec):
        return targets
    return [*islice(_find_words(targets, ctx.arguments, str(ctx.scope.workspace)), MOST_FILES)]


def _find_origins(ctx: ToolContext, paths: list[str]) -> dict[str, str]:
    """Returns the origins of marked files. Where too many are named, those that are not looked at may be marked."""
    workspace, folders = ctx.scope.workspace, is_shell(ctx.spec)  # what a program reads in a folder is not known
    if not has_marks(workspace):
        return {}
    found = ((path, find_origin(workspace, path, folders=folders)) for path in paths[:MOST_FILES])
    origins = {path: origin for path, origin in found if origin}
    return origins or ({"one of many files": UNKNOWN} if len(paths) > MOST_FILES else {})


def _find_source(
    provenance: Provenance, ctx: ToolContext, targets: list[str], result: ToolResult, before: Mapping[str, str]
) -> str:
    """Returns where the text comes from that a call writes; empty if it writes nothing, or nothing untrusted."""
    if Permission.WRITE in ctx.spec.permissions or is_shell(ctx.spec):
        inherited = (one for one in provenance.find_inherited(ctx.call.id) if one.kind == UNTRUSTED)
        if (label := next(inherited, None)) is not None:
            return label.origin
    if is_shell(ctx.spec):
        label = next((one for one in result.labels if one.kind == UNTRUSTED), None)
        if label is not None:
            return label.origin
        return ctx.spec.name if any(map(prints_untrusted, targets)) else ""
    if _writes_untrusted(ctx.spec):
        return ctx.spec.name
    if Permission.WRITE not in ctx.spec.permissions:
        return ""
    if before:
        return next(iter(before.values()))  # it stays untrusted, whatever is written to it by name

    texts = (text for name, text in find_texts(ctx.arguments) if name not in ctx.spec.targets)
    label = next(filter(None, map(provenance.find_copy, texts)), None)
    return label.origin if label is not None else ""


def _find_words(lines: list[str], arguments: Mapping[str, Any], workspace: str) -> Iterator[str]:
    """Yields the words of command lines that may be paths, with those that a pattern stands for."""
    start = os.path.join(workspace, str(arguments.get("working_dir") or ""))
    for line in lines:
        folders, before = [start], ""
        for word in islice(filter(None, _NOT_IN_PATHS.split(line)), MOST_FILES):
            for folder in folders:
                path = os.path.join(folder, word)
                yield from islice(glob.iglob(path), MOST_FILES) if _GLOB.search(word) else (path,)
            if before in _ENTERS and len(folders) < MOST_FOLDERS:
                folders += [os.path.join(folder, word) for folder in folders]
            before = word


def _find_paths(data: Any, depth: int = 0) -> Iterator[str]:
    """Yields the paths that a result names as fields, such as those of a search."""
    if isinstance(data, Mapping) and depth < 4:
        for name, value in data.items():
            if name in ("path", "file") and isinstance(value, str):
                yield value
            elif name == "files" and isinstance(value, list):
                yield from (one for one in value if isinstance(one, str))
            else:
                yield from _find_paths(value, depth + 1)
    elif isinstance(data, list | tuple) and depth < 4:
        for value in data[: MOST_FILES + 1]:
            yield from _find_paths(value, depth + 1)
