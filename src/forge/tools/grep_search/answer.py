"""Builds the answer of grep_search: lines as text for the model and as data for programs, and notes on omissions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from forge.core.context import ToolContext
from forge.core.execution.threads import in_thread
from forge.core.result import ToolResult
from forge.tools.file_parts.listing import printable, sendable_name
from forge.tools.grep_search.lines import can_open, read_lines
from forge.tools.grep_search.matches import FoundMatches
from forge.tools.grep_search.ripgrep import GrepRequest
from forge.workspace.history.tracking import batch_read_notes

AT_ONCE = 20  # files a chunk of streamed output


class SearchAnswer:
    """Grows file by file."""

    def __init__(self, request: GrepRequest, found: FoundMatches, before: int, after: int, names_only: bool) -> None:
        self.request = request
        self.found = found
        self.before = before
        self.after = after
        self.names_only = names_only
        self.text: list[str] = []
        self.matches: list[dict[str, Any]] = []
        self.files: list[str] = []
        self.denied = 0  # files that a rule leaves out
        self.changed = 0  # files that are not what they were

    async def collect(self, ctx: ToolContext, paths: Sequence[str], most: int) -> None:
        """Reads the files in a thread; listeners see them as they come."""
        size = AT_ONCE if ctx.activity.listening else max(1, len(paths))
        for start in range(0, len(paths), size):
            before = len(self.text)
            await in_thread(lambda some=paths[start : start + size]: self._add_all(some, most))  # type: ignore[misc]
            if len(self.text) > before:
                ctx.output("\n".join(self.text[before:]) + "\n")

    def _add_all(self, paths: Sequence[str], most: int) -> None:
        with batch_read_notes():
            for path in paths:
                if self.names_only:
                    self._add_name(path)
                else:
                    self._add_lines(path, most - len(self.matches))

    def _add_name(self, path: str) -> None:
        location = self.request.location.child(path)
        if can_open(location):
            self.text.append(printable(location.shown))
            self.files.append(sendable_name(location.shown))
        else:
            self.changed += 1

    def _add_lines(self, path: str, room: int) -> None:
        location = self.request.location.child(path)
        positions = self.found.positions.get(path, [])[: max(0, room)]
        lines = read_lines(location, positions, self.before, self.after) if positions else None
        if not lines:
            self.changed += room > 0
            return
        name, sent = printable(location.shown), sendable_name(location.shown)
        self.files.append(sent)
        last = -1
        for line in lines:
            if (self.before or self.after) and self.text and line.number != last + 1:
                self.text.append("--")
            last = line.number
            mark = ":" if line.matches else "-"
            self.text.append(f"{name}{mark}{line.number}{mark}{line.text}")
            if line.matches:
                self.matches.append({"path": sent, "line": line.number, "text": line.text})

    def result(self, seconds: float) -> ToolResult:
        found, files = self.found, len(self.found.counts)
        total = files if self.names_only else found.total
        shown = len(self.files if self.names_only else self.matches)
        data: dict[str, Any] = {} if self.names_only else {"matches": self.matches}
        data |= {"files": self.files, "total": total, "total_files": files}
        data |= {"truncated": found.is_partial or shown < total, "timed_out": found.is_partial}
        notes = self._notes(shown, total, seconds)
        where = "" if self.names_only else f" in {_count_text(files, 'file')}"
        return ToolResult(
            for_llm="\n".join([*(self.text or ["No matches."]), *(f"[{note}]" for note in notes)]),
            title=_count_text(total, "file" if self.names_only else "matching line") + where,
            data=data,
        )

    def _notes(self, shown: int, total: int, seconds: float) -> Iterator[str]:
        found = self.found
        if shown < total:
            what = "file" if self.names_only else "matching line"
            where = "" if self.names_only else f" in {_count_text(len(found.counts), 'file')}"
            least = "at least " if found.is_partial else ""
            yield f"{shown:,} of {least}{_count_text(total, what)}{where}; narrow the search or raise max_results"
        if found.is_partial:
            yield f"stopped after {seconds:g} s, so there may be more; narrow the search"
        if self.request.reads_brackets:
            yield "the brackets in include were read as plain characters: as a glob it finds nothing"
        if self.denied:
            yield f"{_count_text(self.denied, 'file')} left out: a rule denies reading"
        if self.changed:
            yield f"{_count_text(self.changed, 'file')} changed during the search; search again to see it all"
        if found.is_too_hard:
            yield "some lines were skipped: the pattern takes too long on them; simplify it"
        for path in found.unread_rules[:3]:
            name = printable(self.request.location.child(path).shown)
            yield f"{name} is not a regular file, so its rules do not count; remove it to search faster"
        if found.unreadable:
            yield "some files or directories could not be read"


def _count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
