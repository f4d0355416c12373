"""Renders directories as lines for a model: safe names, sizes, and notes on omissions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult

if TYPE_CHECKING:  # they load what only a call needs
    from forge.workspace.paths import Location
    from forge.workspace.search.walk import Overview, OverviewItem

MAX_ENTRIES = 500
MOST_ENTRIES = 10_000  # entries that a call may ask for
PATIENCE = 20.0  # seconds

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_JOINERS = "\u200c\u200d"  # invisible, and yet part of names in some scripts and of emoji


ALIASES = {
    **dict.fromkeys(("directory", "dir", "directory_path", "dir_path", "folder", "file_path"), "path"),
    **dict.fromkeys(("limit", "max_results"), "max_entries"),
}
"""Names of these tools' parameters in other systems."""


def list_directory(
    ctx: ToolContext,
    location: Location,
    *,
    include_hidden: bool = True,
    recursive: bool = False,
    max_entries: int = MAX_ENTRIES,
    patience: float = PATIENCE,
) -> ToolResult:
    """Returns a directory listing as a result: directories first, with sizes. Blocks, so call it in a thread."""
    found = scan_directory(
        ctx, location, 0 if recursive else 1, max_entries, patience, hidden=include_hidden, ignored=not recursive
    )
    items = list(_walk_items(found.top))
    lines = [_line(item, item.relative if recursive else item.name) for item in items]
    for item in (found.top, *items):
        if item.more:
            where = f" in {printable(item.relative)}/" if item.relative else ""
            lines.append(f"[{count_text(item.more, 'more entry')}{where} left out]")
    return listing_result(location, found, lines or [f"{printable(location.shown)} is empty."])


def list_one_entry(ctx: ToolContext, location: Location) -> ToolResult:
    """Lists a single file, as `ls` does."""
    from forge.workspace.paths.open import status_of
    from forge.workspace.search.walk import OverviewItem

    status = status_of(location)
    if status is None:
        raise missing_error(ctx, location)
    item = OverviewItem(location.name, "", "file", status.st_size)
    data = {**entry_data(location, item), "path": sendable_name(location.shown)}
    return ToolResult(
        for_llm=_line(item, location.shown),
        title=printable(location.shown),
        data={"path": data["path"], "entries": [data], "total": 1, "truncated": False, "hidden": 0},
    )


def scan_directory(
    ctx: ToolContext, location: Location, depth: int, most: int, patience: float, *, hidden: bool, ignored: bool
) -> Overview:
    """Returns the first entries of a directory, without those that a rule denies."""

    from forge.tools.shared.approved_paths import denied_predicate
    from forge.workspace.search.walk import OverviewOptions, make_overview

    end = time.monotonic() + patience
    return make_overview(
        location,
        OverviewOptions(
            most, depth, hidden, ignored, denied_predicate(ctx), lambda: ctx.cancelled or time.monotonic() > end
        ),
    )


def listing_result(location: Location, found: Overview, lines: list[str]) -> ToolResult:
    """Returns the lines, notes on omissions, and the same as data for programs."""
    items = list(_walk_items(found.top))
    truncated = found.uncounted or found.total > len(items)
    least = "at least " * found.uncounted
    if found.stopped:
        lines.append("[stopped: it took too long; name a smaller directory]")
    elif truncated:
        what = f"{len(items):,} of {least}{count_text(found.total, 'entry')}"
        lines.append(f"[{what}; ask for more with a larger max_entries, or look into one directory]")
    if found.hidden:
        lines.append(f"[{count_text(found.hidden, 'hidden entry')}; include_hidden=true shows them]")
    if found.ignored:
        files = count_text(found.ignored, "file")
        lines.append(f"[{files} ignored by ignore files; directory_list of one directory shows all]")
    if found.denied:
        lines.append(f"[{count_text(found.denied, 'entry')} left out: a rule denies reading]")
    shown = printable(location.shown)
    return ToolResult(
        for_llm="\n".join(lines),
        title=f"{shown}: {count_text(len(items), 'entry') or 'empty'}",
        data={
            "path": sendable_name(location.shown),
            "entries": [entry_data(location, item) for item in items],
            "total": found.total,
            "truncated": truncated,
            "hidden": found.hidden + found.ignored,
            **({"total_is_minimum": True} if found.uncounted else {}),
        },
    )


def entry_data(location: Location, item: OverviewItem) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": sendable_name(item.name),
        "path": sendable_name(location.child(item.relative).shown),
        "type": item.kind,
    }
    if item.kind == "file":
        data["size"] = item.size
    if item.kind == "link":
        data["target"] = sendable_name(item.target)
    return data


def size_text(size: int) -> str:
    """Formats a size: `512 B`, `1.2 KiB`, `34 MiB`."""
    power = min((size.bit_length() - 1) // 10, 5) if size else 0
    number = size / 1024**power
    return f"{number:.1f} {_UNITS[power]}" if power and number < 10 else f"{number:.0f} {_UNITS[power]}"


def printable(name: str) -> str:
    """Returns a name that fits on a line and is safe for a terminal; unusual names are quoted and escaped."""
    if name.isprintable() or all(char.isprintable() or char in _JOINERS for char in name):
        return name
    return f'"{"".join(_escape_character(char) for char in name)}"'


def sendable_name(name: str) -> str:
    """Returns the name if JSON can hold it; bytes that are not text are escaped."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return printable(name)
    return name


def missing_error(ctx: ToolContext, location: Location, what: str = "directory") -> ToolError:
    """Returns the error for a missing path. It suggests no names that a rule hides."""
    from forge.tools.shared.approved_paths import denied_predicate
    from forge.workspace.search.glob import find_similar_names

    hidden = denied_predicate(ctx)
    found = (name for name in find_similar_names(location) if not hidden(name))
    names = " or ".join(f'"{printable(name)}"' for name in found)
    advice = f"Did you mean {names}?" if names else f"Name an existing {what}; . is the workspace itself."
    return ToolError(f'"{printable(location.shown)}" does not exist', ErrorKind.NOT_FOUND, advice)


def no_directory_error(location: Location) -> ToolError:
    return ToolError(
        f'"{printable(location.shown)}" is not a directory', ErrorKind.USER, "Name a directory; file_read reads files."
    )


def is_directory(ctx: ToolContext, location: Location) -> bool:
    """Returns False for a file. Raises `ToolError` for a missing path, a loop of links or a special file."""

    from forge.workspace.paths.open import open_file, status_of

    status = status_of(location)
    if status is None:
        raise missing_error(ctx, location)
    if not S_ISDIR(status.st_mode) and not S_ISREG(status.st_mode):
        try:
            os.close(open_file(location))  # says what it is
        except ToolError as error:
            raise ToolError(error.message, error.kind, "Name a directory.") from None
    return S_ISDIR(status.st_mode)


def _walk_items(item: OverviewItem) -> Iterator[OverviewItem]:
    """Yields everything below, each directory followed by its content."""
    pending = item.items[::-1]
    while pending:
        one = pending.pop()
        yield one
        pending += one.items[::-1]


def _line(item: OverviewItem, name: str) -> str:
    return f"{printable(name)}{kind_mark(item)}" + (f"  {size_text(item.size)}" if item.kind == "file" else "")


def kind_mark(item: OverviewItem) -> str:
    """Returns the mark after a name that is not a file's."""
    if item.kind == "directory":
        return ("/…" if item.skipped else "/") + (" [cannot be read]" if item.unreadable else "")
    if item.kind == "link":
        return f" -> {printable(item.target)}"
    return "" if item.kind == "file" else " [special file]"


def _escape_character(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable() or char in _JOINERS:
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no text
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def count_text(number: int, noun: str) -> str:
    """Formats a count: `1 file`, `2 entries`; an empty text for 0."""
    if number < 2:
        return f"1 {noun}" if number else ""
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"
