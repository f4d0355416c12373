"""Builds unified diffs that `patch -p1` and `git apply` accept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import AnyStr, NamedTuple

from forge.workspace.text import decode, encoding_of, find_shared_blocks, is_binary

CHUNK = 65_536  # characters compared at once
_NO_NEWLINE = "\n\\ No newline at end of file\n"
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


class _Change(NamedTuple):
    """Lines `start` to `end` became lines `position` to `until`; counted from 0, the ends not included."""

    start: int
    end: int
    position: int
    until: int


def unified_diff(before: str | None, after: str | None, path: str, new_path: str = "", context: int = 3) -> str:
    """Returns the changes as a patch; `None` stands for a missing file. Empty if nothing changed.

    Lines end with \\n alone, as the programs that read patches see them: a carriage return is part of its line.
    """
    new_path = new_path or path
    if before == after and (path == new_path or before is None):
        return ""
    hunks = "".join(_hunks(*_cut_common_ends(before or "", after or "", "\n", context), context))
    return (
        _header(before, after, path, new_path) + (_name_lines(before, after, path, new_path) if hunks else "") + hunks
    )


def content_diff(before: bytes | None, after: bytes | None, path: str, new_path: str = "", context: int = 3) -> str:
    """Builds the diff of two file contents. Raises `ToolError` if one is not text. Decodes only the differing part of
    large ones.
    """
    new_path = new_path or path
    if before == after and (path == new_path or before is None):
        return ""
    if any(content is not None and (encoding_of(content)[1] or is_binary(content)) for content in (before, after)):
        return unified_diff(_text(before), _text(after), path, new_path, context)
    first, old, new = _cut_common_ends(before or b"", after or b"", b"\n", context)
    try:
        hunks = "".join(_hunks(first, old.decode(), new.decode(), context))
    except UnicodeDecodeError:
        return unified_diff(_text(before), _text(after), path, new_path, context)
    return (
        _header(before, after, path, new_path) + (_name_lines(before, after, path, new_path) if hunks else "") + hunks
    )


def find_changed_lines(diff: str) -> list[tuple[int, int]]:
    """Returns the first and last number of each run of lines that a diff puts into a file; for a removal, the line now
    there.
    """
    found: list[tuple[int, int]] = []
    old = new = number = 0  # lines left in the hunk, and the number of the next new one
    for line in diff.split("\n"):
        if not old and not new:
            if match := _HUNK.match(line):
                old, new = int(match[1] or 1), int(match[3] or 1)
                number = int(match[2]) + (new == 0)
            continue
        mark = line[:1]
        if mark in ("+", "-"):
            at_line = max(number, 1)
            if found and found[-1][1] >= at_line - 1:
                found[-1] = (found[-1][0], max(found[-1][1], at_line) if mark == "+" else found[-1][1])
            else:
                found.append((at_line, at_line))
        old -= mark in (" ", "-")
        new -= mark in (" ", "+")
        number += mark in (" ", "+")
    return found


def _text(content: bytes | None) -> str | None:
    return None if content is None else decode(content).text


def _name_lines(before: object, after: object, path: str, new_path: str) -> str:
    old = "/dev/null" if before is None else _format_name("a/", path)
    new = "/dev/null" if after is None else _format_name("b/", new_path)
    return f"--- {old}\n+++ {new}\n"


def _header(before: object, after: object, path: str, new_path: str) -> str:
    """Builds git's extended header for a move, or for an empty file that is made or removed."""
    first = f"diff --git {_quote_name('a/' + path, ' ')} {_quote_name('b/' + new_path, ' ')}\n"
    if before is None:
        return "" if after else f"{first}new file mode 100644\nindex 0000000..e69de29\n"
    if after is None:
        return "" if before else f"{first}deleted file mode 100644\nindex e69de29..0000000\n"
    if path == new_path:
        return ""
    same = "similarity index 100%\n" if before == after else ""
    return f"{first}{same}rename from {_quote_name(path)}\nrename to {_quote_name(new_path)}\n"


def _cut_common_ends(before: AnyStr, after: AnyStr, newline: AnyStr, context: int) -> tuple[int, AnyStr, AnyStr]:
    """Removes common lines at both ends, all but `context` of them; also returns the number of lines before.

    So a changed line in a large file costs little more than finding it.
    """
    head = _count_shared_head(before, after)
    tail = _count_shared_tail(before, after, min(len(before), len(after)) - head)
    head = before.rfind(newline, 0, head) + 1
    for _ in range(context):
        head = before.rfind(newline, 0, head - 1) + 1 if head else 0
    start = len(before) - tail
    for _ in range(context + 1):
        start = before.find(newline, start) + 1 or len(before)
    tail = len(before) - start
    return before.count(newline, 0, head), before[head : len(before) - tail], after[head : len(after) - tail]


def _hunks(first: int, before: str, after: str, context: int) -> Iterator[str]:
    """Yields the changed lines with their context. `first` lines come before these texts."""
    if before == after:
        return
    old, new = _lines(before), _lines(after)
    for changes in _group_changes(list(_changes(old, new)), context):
        start, position = max(changes[0].start - context, 0), max(changes[0].position - context, 0)
        end, until = min(changes[-1].end + context, len(old)), min(changes[-1].until + context, len(new))
        yield f"@@ -{_range(first + start, end - start)} +{_range(first + position, until - position)} @@\n"
        for change in changes:
            yield from _mark_lines(" ", old[start : change.start])
            yield from _mark_lines("-", old[change.start : change.end])
            yield from _mark_lines("+", new[change.position : change.until])
            start = change.end
        yield from _mark_lines(" ", old[start:end])


def _count_shared_head(before: AnyStr, after: AnyStr) -> int:
    most = min(len(before), len(after))
    same, size = 0, min(CHUNK, most)
    while size:  # a step that is the same is taken, any other is halved
        if before[same : same + size] == after[same : same + size]:
            same += size
            size = min(size, most - same)
        else:
            size //= 2
    return same


def _count_shared_tail(before: AnyStr, after: AnyStr, most: int) -> int:
    same, end, until = 0, len(before), len(after)
    size = min(CHUNK, most)
    while size:
        if before[end - same - size : end - same] == after[until - same - size : until - same]:
            same += size
            size = min(size, most - same)
        else:
            size //= 2
    return same


def _changes(old: list[str], new: list[str]) -> Iterator[_Change]:
    here = there = 0
    for start, position, size in find_shared_blocks(old, new):
        if start > here or position > there:
            yield _Change(here, start, there, position)
        here, there = start + size, position + size


def _group_changes(changes: list[_Change], context: int) -> Iterator[list[_Change]]:
    """Groups changes whose contexts touch: they share a hunk."""
    group: list[_Change] = []
    for change in changes:
        if group and change.start - group[-1].end > 2 * context:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _range(start: int, size: int) -> str:
    if size == 1:
        return str(start + 1)
    return f"{start + 1 if size else start},{size}"


def _mark_lines(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line if line.endswith("\n") else mark + line + _NO_NEWLINE


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _format_name(prefix: str, path: str) -> str:
    """Formats a file name; a tab ends a name with spaces, which some programs would cut at the first space."""
    quoted = _quote_name(prefix + path)
    return f"{quoted}\t" if " " in quoted and not quoted.startswith('"') else quoted


def _quote_name(name: str, awkward: str = "") -> str:
    if name.isprintable() and not any(letter in name for letter in f'"\\{awkward}'):
        return name
    shown = [_ESCAPES.get(letter) or (letter if letter.isprintable() else _octal(letter)) for letter in name]
    return '"' + "".join(shown) + '"'


def _octal(letter: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))
