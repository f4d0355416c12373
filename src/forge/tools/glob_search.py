"""Finds files by a pattern over their paths."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.parameters import ParameterLimits, Setting
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.tools.shared.listing import (
    PATIENCE,
    count_text,
    is_directory,
    missing_error,
    no_directory_error,
    printable,
    sendable_name,
)

if TYPE_CHECKING:  # they load what only a call needs
    from forge.workspace.paths import Location
    from forge.workspace.search.glob import Glob
    from forge.workspace.search.walk import FileWalk

MAX_RESULTS = 100
MOST_RESULTS = 10_000  # results that a call may ask for


class GlobSearch(
    Tool,
    category=Category.BUILTIN,
    groups={"search", "read", "code-agent"},
    aliases=("glob",),
    argument_aliases={
        "glob": "pattern",
        "glob_pattern": "pattern",
        "query": "pattern",
        "directory": "path",
        "dir": "path",
        "dir_path": "path",
        "folder": "path",
        "limit": "max_results",
        "max_matches": "max_results",
    },
    permissions={"read"},
    target="path",
    repeatable=False,
    idempotent=True,
):
    """Find files by a glob such as src/**/*.ts, newest first. Skips ignored files unless the pattern names them."""

    def __init__(self, max_results: int = MAX_RESULTS, patience: float = PATIENCE) -> None:
        self.max_results = max_results
        self.patience = patience
        self.show_settings()

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"max_results": Setting(self.max_results)}

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """Returns the start of the search, which the pattern may name, too."""
        return [split_pattern(arguments["pattern"], arguments.get("path", ""))[0]]

    async def run(
        self,
        ctx: ToolContext,
        pattern: Annotated[str, ParameterLimits(example="**/*.md"), "** for any directories; *, ?, [a-z], {a,b}."],
        path: Annotated[str, "Default: the workspace."] = "",
        max_results: Annotated[int, ParameterLimits(ge=1, le=MOST_RESULTS)] = MAX_RESULTS,
        include_ignored: Annotated[bool, "Also node_modules, build and the like."] = False,
        case_sensitive: bool = False,
    ) -> ToolResult:
        from forge.core.execution.threads import in_thread  # imports asyncio, which listing tools does without
        from forge.tools.shared.approved_paths import resolve_approved

        if not pattern.strip():
            raise ToolError("the pattern is empty", ErrorKind.VALIDATION, "Give a pattern such as **/*.py.")
        start, rest = split_pattern(pattern, path)
        end = time.monotonic() + self.patience

        def work() -> ToolResult:
            where, below = _find_start(ctx, location, path, pattern, rest)
            if ".git" in where.relative.split("/"):
                raise ToolError(".git is never searched", ErrorKind.USER, "directory_list shows what is in it.")
            most = max_results

            def search(glob: Glob, *, plain: bool = False) -> GlobRun:
                return GlobRun(ctx, where, glob, include_ignored, end, most, plain=plain)

            return _search_with_brackets(below, case_sensitive, search).result(pattern)

        location = (await resolve_approved(ctx, Permission.READ, start, blank=True))[0]
        result: ToolResult = await in_thread(work)
        return result


class GlobRun:
    """One search: the files found, and the files left out."""

    def __init__(
        self,
        ctx: ToolContext,
        location: Location,
        glob: Glob,
        include_ignored: bool,
        end: float,
        most: int,
        *,
        plain: bool = False,
    ) -> None:
        from forge.tools.shared.approved_paths import denied_by_rules
        from forge.workspace.paths import PathValidator
        from forge.workspace.search.walk import walk

        self.location = location
        self.glob = glob
        self.paths = PathValidator.of(ctx.scope)
        self.names = frozenset(location.relative.split("/"))  # written by the caller, so never skipped
        self.walk: FileWalk = walk(
            location,
            include_ignored=include_ignored,
            named=self,
            only=glob,
            stop=lambda: ctx.cancelled or time.monotonic() > end,
        )
        self.denied = denied_by_rules(ctx)
        self.left_out = 0
        self.total = 0
        self._plain = plain  # the glob is the pattern with its brackets as parts of names
        self._prefix = "" if location.shown == "." else f"{location.shown.rstrip('/')}/"
        from heapq import nsmallest

        self._found = nsmallest(most, chain.from_iterable(self._files(self._prefix)))

    def __contains__(self, name: object) -> bool:
        return name in self.glob or name in self.names

    def result(self, pattern: str) -> ToolResult:
        files = [f"{self._prefix}{relative}" for _, relative in self._found]
        truncated = self.walk.stopped or self.total > len(files)
        lines = [printable(file) for file in files] or [f"No files match {printable(pattern)}."]
        hidden = self.walk.ignored_files + self.walk.ignored_directories
        return ToolResult(
            for_llm="\n".join([*lines, *self._notes(len(files), pattern)]),
            title=f"{printable(pattern)}: {count_text(self.total, 'file') or 'no files'}",
            data={
                "files": [sendable_name(file) for file in files],
                "total": self.total,
                "truncated": truncated,
                "hidden": hidden,
            },
        )

    def _files(self, prefix: str) -> Iterator[list[tuple[int, str]]]:
        """Yields the files of each directory: sort keys, newest first, and paths."""
        denied = self.denied
        for above, _, entries in self.walk.by_directory():
            found: list[tuple[int, str]] = []
            for entry in entries:
                relative = above + entry.name
                try:
                    if entry.is_file(follow_symlinks=False):
                        modified = entry.stat(follow_symlinks=False).st_mtime_ns
                    elif entry.is_symlink():
                        modified = self._modified_time(prefix + relative)
                    else:
                        continue
                except (OSError, ToolError):  # gone meanwhile, or a link that leads nowhere or outside
                    continue
                if denied is not None and denied(prefix + relative):
                    self.left_out += 1
                else:
                    found.append((-modified, relative))
            self.total += len(found)
            yield found

    def _modified_time(self, shown: str) -> int:
        """Returns the time of the file that a link leads to."""
        from forge.workspace.paths.open import status_of  # loads what only a call needs

        location = self.paths.resolve(shown)
        status = status_of(location)
        if status is None or not S_ISREG(status.st_mode) or (self.denied is not None and self.denied(location.shown)):
            raise FileNotFoundError(shown)
        return status.st_mtime_ns

    def _notes(self, shown: int, pattern: str) -> Iterator[str]:
        walk = self.walk
        if walk.stopped:
            yield f"[stopped: it took too long; {self.total:,} files were found until then; search a smaller directory]"
        elif self.total > shown:
            yield f"[{shown:,} of {self.total:,} files, the newest; use a larger max_results or a narrower pattern]"
        if self._plain:
            yield "[the brackets in the pattern were read as plain characters: as a glob it finds nothing]"
        if not self.total and "/" not in pattern:
            yield f"[only names in this directory were compared; **/{printable(pattern)} also looks below it]"
        files, directories = count_text(walk.ignored_files, "file"), count_text(walk.ignored_directories, "directory")
        if hidden := [text for text in (files, directories) if text]:
            yield f"[{' and '.join(hidden)} hidden by ignore rules; include_ignored=true searches them]"
        for path in walk.unread_rules[:3]:
            yield f"[{printable(path)} is not a regular file, so its rules do not count]"
        if walk.unreadable:
            yield f"[{count_text(walk.unreadable, 'directory')} could not be read]"
        if self.left_out:
            yield f"[{count_text(self.left_out, 'file')} left out: a rule denies reading]"


def split_pattern(pattern: str, path: str) -> tuple[str, str]:
    """Returns the directory to start from, and the pattern below it."""
    from forge.workspace.search.glob import literal_head

    head, rest = literal_head(pattern)
    return os.path.join(path, head) if head else path, rest


def _search_with_brackets(pattern: str, case_sensitive: bool, search: Callable[..., GlobRun]) -> GlobRun:
    """Searches with the pattern; if nothing is found, again with its brackets as parts of names."""
    from forge.workspace.search.glob import compile_glob, compile_plain_glob

    plain = compile_plain_glob(pattern, case_sensitive)
    try:
        glob = compile_glob(pattern, case_sensitive)
    except ToolError:  # such as [2024-01-15], whose range goes backwards
        if plain is None or not (again := search(plain, plain=True)).total:
            raise
        return again
    found = search(glob)
    if plain is None or found.total or found.walk.stopped:
        return found
    again = search(plain, plain=True)
    return again if again.total else found


def _find_start(ctx: ToolContext, location: Location, path: str, pattern: str, rest: str) -> tuple[Location, str]:
    """Returns the directory to walk and the pattern there; the walk finds directories named in the wrong case."""
    from forge.workspace.paths import PathValidator
    from forge.workspace.paths.open import status_of

    status = status_of(location)
    if status is not None and S_ISDIR(status.st_mode):
        return location, rest
    base = PathValidator.of(ctx.scope).resolve(path, blank=True)
    if not is_directory(ctx, base):
        raise no_directory_error(base)
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise missing_error(ctx, location)
    return base, pattern
