"""Searches the contents of files for a pattern."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from forge.core.arguments.parameters import ParameterLimits, Setting
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool

if TYPE_CHECKING:  # they load what only a call needs
    from forge.tools.grep_search.ripgrep import FoundMatches, GrepRequest, Ripgrep, RipgrepClock
    from forge.workspace.paths import Location

MAX_RESULTS = 100
MOST_LINES = 10_000  # lines that a call may ask for
SEARCH_SECONDS = 30.0


class GrepSearch(
    Tool,
    category=Category.BUILTIN,
    groups={"search", "read", "code-agent"},
    aliases=("grep",),
    argument_aliases={
        "query": "pattern",
        "regex": "pattern",
        "search": "pattern",
        "directory": "path",
        "dir": "path",
        "file_path": "path",
        "glob": "include",
        "include_pattern": "include",
        "exclude_pattern": "exclude",
        "limit": "max_results",
        "head_limit": "max_results",
        "max_matches": "max_results",
        "context_lines": "context",
        "literal": "fixed_strings",
        "files_with_matches": "names_only",
    },
    permissions={"read"},
    target="path",
    repeatable=False,
    idempotent=True,
):
    """Search file contents for a regular expression, line by line. Returns file:line:text; skips ignored files."""

    def __init__(self, max_results: int = MAX_RESULTS, seconds: float = SEARCH_SECONDS) -> None:
        self.max_results = max_results
        self.seconds = seconds
        self.show_settings()

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"max_results": Setting(self.max_results)}

    async def run(
        self,
        ctx: ToolContext,
        pattern: Annotated[str, ParameterLimits(example=r"def \w+_total\("), "In ripgrep's syntax."],
        path: Annotated[str, "A file or directory; default: the workspace."] = "",
        include: Annotated[str | list[str], "Globs, such as *.py or src/**/*.ts."] = "",
        exclude: Annotated[str | list[str], "Globs of files or directories."] = "",
        context: Annotated[int, ParameterLimits(ge=0, le=100), "Lines around each match."] = 0,
        before: Annotated[int, ParameterLimits(ge=0, le=100), "Lines before it."] = 0,
        after: Annotated[int, ParameterLimits(ge=0, le=100), "Lines after it."] = 0,
        max_results: Annotated[int, ParameterLimits(ge=1, le=MOST_LINES), "Lines or files."] = MAX_RESULTS,
        fixed_strings: Annotated[bool, "The pattern is plain text."] = False,
        case_sensitive: bool = True,
        names_only: Annotated[bool, "Only list files."] = False,
        include_ignored: Annotated[bool, "Also node_modules and the like."] = False,
    ) -> ToolResult:

        from forge.core.execution.threads import in_thread
        from forge.tools.grep_search.answer import SearchAnswer
        from forge.tools.grep_search.pattern import read_pattern
        from forge.tools.grep_search.ripgrep import (
            FileFilter,
            GrepRequest,
            RipgrepClock,
            count_denied,
            escape_brackets,
            find_ripgrep,
            make_readable,
        )
        from forge.tools.shared.approved_paths import denied_by_rules, resolve_approved
        from forge.workspace.paths import PathValidator

        parsed = read_pattern(pattern, fixed_strings)
        location = (await resolve_approved(ctx, Permission.READ, path, blank=True))[0]
        top, name = await _split_target(location)
        most = max_results

        def make_filter(include: str | list[str]) -> FileFilter:
            return FileFilter(
                top, "" if name else include, "" if name else exclude, None if name else denied_by_rules(ctx)
            )

        globs, plain = make_readable(include), escape_brackets(include)
        request = GrepRequest(
            location=top,
            name=name,
            pattern=parsed,
            folds=not case_sensitive,
            include=globs,
            include_ignored=include_ignored,
            most=0 if names_only else most,
            wanted=make_filter(globs),
            reads_brackets=globs is not include,
        )
        again = replace(request, include=plain, wanted=make_filter(plain), reads_brackets=True) if plain else None
        clock = RipgrepClock(self.seconds, lambda found: _report(ctx, found))
        program = find_ripgrep(PathValidator.of(ctx.scope))
        request, ripgrep, found = await _search(program, request, again, clock)
        if globs is not include and not found.total:
            make_filter(include)  # says what is wrong with it
        paths = _select_files(found, most, names_only)
        if not names_only:
            await ripgrep.locate([path for path in paths if path not in found.positions], found, clock)
        answer = SearchAnswer(request, found, before or context, after or context, names_only)
        if not request.wanted.is_all:
            answer.denied = await in_thread(lambda: count_denied(request, lambda: ctx.cancelled or clock.is_over()))
        await answer.collect(ctx, paths, most)
        return answer.result(self.seconds)


async def _search(
    program: str, request: GrepRequest, again: GrepRequest | None, clock: RipgrepClock
) -> tuple[GrepRequest, Ripgrep, FoundMatches]:
    """Searches; if nothing is found, searches with the other request."""
    from forge.tools.grep_search.ripgrep import Ripgrep

    ripgrep = Ripgrep(request, program)
    found = await ripgrep.search(clock)
    if again is not None and not (found.total or found.is_partial or request.name):
        other = await _search(program, again, None, clock)
        if other[2].total:
            return other
    return request, ripgrep, found


async def _split_target(location: Location) -> tuple[Location, str]:
    """Returns the directory to search and, if the path is a file, the name of that file."""

    from forge.core.execution.threads import in_thread
    from forge.workspace.paths import quote_path
    from forge.workspace.paths.open import open_file, status_of

    if ".git" in location.relative.split("/"):
        raise ToolError(f"{quote_path(location.shown)}: .git is never searched", ErrorKind.USER, "Use git itself.")

    def look() -> bool:
        status = status_of(location)
        if status is not None and stat.S_ISDIR(status.st_mode):
            return True
        os.close(open_file(location))  # says what is wrong with anything but a file
        return False

    if await in_thread(look):
        return location, ""
    return location.parent, location.name


def _report(ctx: ToolContext, found: FoundMatches) -> None:
    files = len(found.counts)
    ctx.progress(f"{found.total:,} lines in {files:,} files so far", matches=found.total, files=files)


def _select_files(found: FoundMatches, most: int, names_only: bool) -> list[str]:
    """Returns the files to show, in order."""
    paths = found.list_paths()
    if names_only:
        return paths[:most]
    chosen: list[str] = []
    lines = 0
    for path in paths:
        if lines >= most:
            break
        chosen.append(path)
        lines += found.counts[path]
    return chosen
