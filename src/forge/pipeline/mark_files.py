"""Step: files that were written from untrusted text are untrusted when they are read again, also in later sessions."""

from __future__ import annotations

import glob
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.executor import Next, Step
from forge.core.label import LONGEST_ORIGIN, UNTRUSTED, Label, merge_labels
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, ToolSpec
from forge.permissions.labels.label_call import is_shell, matches_settings, prints_untrusted, relative_paths
from forge.permissions.labels.settings import LabelSettings, current_provenance
from forge.permissions.targets import targets_of
from forge.pipeline._step import add_attributes
from forge.workspace.state.untrusted_files import find_origin, mark_span

if TYPE_CHECKING:  # without a run, nothing is traced
    from forge.permissions.labels.provenance import Provenance

MOST_FILES = 200  # of one call that are looked at
_FILES = {Permission.READ, Permission.WRITE, Permission.EXECUTE}
_NOT_IN_PATHS = re.compile(r"[\s;|&<>()'\"`=]+")
_GLOB = re.compile(r"[*?\[]")

log = logging.getLogger(__name__)


def mark_files(settings: LabelSettings) -> Step:
    """Marks the files that a call writes from untrusted text, and labels results that come from marked files."""

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        provenance = current_provenance.get()
        if provenance is None:
            return await proceed(ctx)
        began = time.time_ns()
        result = await proceed(ctx)
        try:
            return _look(settings, provenance, ctx, result, began)
        except ToolError:  # arguments that name no target
            return result

    return add_attributes(step, applies=_touches_files)


def _touches_files(spec: ToolSpec) -> bool:
    if not (spec.permissions | spec.optional_permissions) & _FILES:
        return False
    if spec.category is Category.BUILTIN or spec.targets:
        return True  # built-in tools name the files in their data
    return _writes_untrusted(spec)


def _writes_untrusted(spec: ToolSpec) -> bool:
    """Says whether others decide what the tool writes, such as a program that is an MCP server."""
    return spec.trust == UNTRUSTED and bool(spec.permissions & {Permission.WRITE, Permission.EXECUTE})


def _look(
    settings: LabelSettings, provenance: Provenance, ctx: ToolContext, result: ToolResult, began: int
) -> ToolResult:
    spec, workspace = ctx.spec, ctx.scope.workspace
    targets = [str(one) for one in targets_of(spec, ctx.arguments, ctx.tool)]
    words = _find_words(targets, ctx.arguments, str(workspace)) if is_shell(spec) else _find_paths(result.data)
    paths = [*words] if is_shell(spec) else [*targets, *words]
    folders = is_shell(spec)  # what a program reads in a folder is not known
    found = ((path, find_origin(workspace, path, folders=folders)) for path in paths[:MOST_FILES])
    origins = {path: origin for path, origin in found if origin}
    names = relative_paths([*origins], ctx.scope)
    if origins and not matches_settings(settings.trusted, spec, [], names):
        path, origin = next(iter(origins.items()))
        where = f"{spec.name} {path}, from {origin}"
        result = result.with_labels(merge_labels(result.labels, (Label(UNTRUSTED, where[:LONGEST_ORIGIN]),)))
    if (source := _find_source(provenance, ctx, targets, result)) and (
        result.failure is None or is_shell(spec) or _writes_untrusted(spec)
    ):
        seconds = result.data.get("duration") if "job_id" in result.data else 0
        earlier = int(seconds * 1e9) if isinstance(seconds, int | float) else 0  # a job in the background
        try:
            mark_span(workspace, began - earlier, source)
        except OSError as error:
            log.warning("%s wrote untrusted text, and this could not be noted: %s", spec.name, error.strerror)
    return result


def _find_source(provenance: Provenance, ctx: ToolContext, targets: list[str], result: ToolResult) -> str:
    """Returns where the text comes from that a call writes; empty if it writes nothing, or nothing untrusted."""
    if is_shell(ctx.spec):
        label = next((one for one in result.labels if one.kind == UNTRUSTED), None)
        if label is not None:
            return label.origin
        return ctx.spec.name if any(map(prints_untrusted, targets)) else ""
    if _writes_untrusted(ctx.spec):
        return ctx.spec.name
    if Permission.WRITE not in ctx.spec.permissions:
        return ""
    from forge.permissions.labels.values import find_texts  # a run has loaded it

    texts = (text for name, text in find_texts(ctx.arguments) if name not in ctx.spec.targets)
    label = next(filter(None, map(provenance.find_copy, texts)), None)
    return label.origin if label is not None else ""


def _find_words(lines: list[str], arguments: Mapping[str, Any], workspace: str) -> Iterator[str]:
    """Yields the words of command lines that may be paths, with those that a pattern stands for."""
    start = os.path.join(workspace, str(arguments.get("working_dir") or ""))
    for line in lines:
        for word in islice(filter(None, _NOT_IN_PATHS.split(line)), MOST_FILES):
            path = os.path.join(start, word)
            yield from islice(glob.iglob(path), MOST_FILES) if _GLOB.search(word) else (path,)


def _find_paths(data: Any, depth: int = 0) -> Iterator[str]:
    """Yields the paths that a result names as fields, such as those of a search."""
    if isinstance(data, Mapping) and depth < 4:
        for name, value in data.items():
            if name in ("path", "file") and isinstance(value, str):
                yield value
            else:
                yield from _find_paths(value, depth + 1)
    elif isinstance(data, list | tuple) and depth < 4:
        for value in data[:MOST_FILES]:
            yield from _find_paths(value, depth + 1)
