"""Unified diffs that `patch -p1` and `git apply` accept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import AnyStr, NamedTuple

from forge.workspace.text import decode, encoding_of, is_binary
from forge.workspace.text.common_lines import shared_blocks

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
    """What changed, as a patch; `None` stands for a file that is not there. Empty when nothing changed.

    Lines end with \\n alone, as the programs that read patches see them: a carriage return is part of its line.
    """
    new_path = new_path or path
    if before == after and (path == new_path or before is None):
        return ""
    hunks = "".join(_hunks(*_cut(before or "", after or "", "\n", context), context))
    return _header(before, after, path, new_path) + (_names(before, after, path, new_path) if hunks else "") + hunks


def content_diff(before: bytes | None, after: bytes | None, path: str, new_path: str = "", context: int = 3) -> str:
    """The same of files as they are. `ToolError` where one is no text. Of large ones only what differs is decoded."""
    new_path = new_path or path
    if before == after and (path == new_path or before is None):
        return ""
    if any(content is not None and (encoding_of(content)[1] or is_binary(content)) for content in (before, after)):
        return unified_diff(_text(before), _text(after), path, new_path, context)
    first, old, new = _cut(before or b"", after or b"", b"\n", context)
    try:
        hunks = "".join(_hunks(first, old.decode(), new.decode(), context))
    except UnicodeDecodeError:
        return unified_diff(_text(before), _text(after), path, new_path, context)
    return _header(before, after, path, new_path) + (_names(before, after, path, new_path) if hunks else "") + hunks


def changed_lines(diff: str) -> list[tuple[int, int]]:
    """First and last number of the lines that a diff of one file puts into it; of a removal, the line now there."""
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
            place = max(number, 1)
            if found and found[-1][1] >= place - 1:
                found[-1] = (found[-1][0], max(found[-1][1], place) if mark == "+" else found[-1][1])
            else:
                found.append((place, place))
        old -= mark in (" ", "-")
        new -= mark in (" ", "+")
        number += mark in (" ", "+")
    return found


def _text(content: bytes | None) -> str | None:
    return None if content is None else decode(content).text


def _names(before: object, after: object, path: str, new_path: str) -> str:
    old = "/dev/null" if before is None else _name("a/", path)
    new = "/dev/null" if after is None else _name("b/", new_path)
    return f"--- {old}\n+++ {new}\n"


def _header(before: object, after: object, path: str, new_path: str) -> str:
    """What only git's extended form can say: a file moved, an empty one made or removed."""
    first = f"diff --git {_quoted('a/' + path, ' ')} {_quoted('b/' + new_path, ' ')}\n"
    if before is None:
        return "" if after else f"{first}new file mode 100644\nindex 0000000..e69de29\n"
    if after is None:
        return "" if before else f"{first}deleted file mode 100644\nindex e69de29..0000000\n"
    if path == new_path:
        return ""
    same = "similarity index 100%\n" if before == after else ""
    return f"{first}{same}rename from {_quoted(path)}\nrename to {_quoted(new_path)}\n"


def _cut(before: AnyStr, after: AnyStr, newline: AnyStr, context: int) -> tuple[int, AnyStr, AnyStr]:
    """Both without the lines that they begin and end with, all but `context` of them; and how many lines come before.

    So a changed line in a large file costs little more than finding it.
    """
    head = _shared_head(before, after)
    tail = _shared_tail(before, after, min(len(before), len(after)) - head)
    head = before.rfind(newline, 0, head) + 1
    for _ in range(context):
        head = before.rfind(newline, 0, head - 1) + 1 if head else 0
    start = len(before) - tail
    for _ in range(context + 1):
        start = before.find(newline, start) + 1 or len(before)
    tail = len(before) - start
    return before.count(newline, 0, head), before[head : len(before) - tail], after[head : len(after) - tail]


def _hunks(first: int, before: str, after: str, context: int) -> Iterator[str]:
    """The changed lines with some around them. `first` lines come before these texts."""
    if before == after:
        return
    old, new = _lines(before), _lines(after)
    for changes in _grouped(list(_changes(old, new)), context):
        start, position = max(changes[0].start - context, 0), max(changes[0].position - context, 0)
        end, until = min(changes[-1].end + context, len(old)), min(changes[-1].until + context, len(new))
        yield f"@@ -{_range(first + start, end - start)} +{_range(first + position, until - position)} @@\n"
        for change in changes:
            yield from _marked(" ", old[start : change.start])
            yield from _marked("-", old[change.start : change.end])
            yield from _marked("+", new[change.position : change.until])
            start = change.end
        yield from _marked(" ", old[start:end])


def _shared_head(before: AnyStr, after: AnyStr) -> int:
    most = min(len(before), len(after))
    same, size = 0, min(CHUNK, most)
    while size:  # a step that is the same is taken, any other is halved
        if before[same : same + size] == after[same : same + size]:
            same += size
            size = min(size, most - same)
        else:
            size //= 2
    return same


def _shared_tail(before: AnyStr, after: AnyStr, most: int) -> int:
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
    for start, position, size in shared_blocks(old, new):
        if start > here or position > there:
            yield _Change(here, start, there, position)
        here, there = start + size, position + size


def _grouped(changes: list[_Change], context: int) -> Iterator[list[_Change]]:
    """Changes whose surroundings touch belong into one hunk."""
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


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line if line.endswith("\n") else mark + line + _NO_NEWLINE


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _name(prefix: str, path: str) -> str:
    """A tab ends a name with spaces, which some programs would otherwise cut at the first one."""
    quoted = _quoted(prefix + path)
    return f"{quoted}\t" if " " in quoted and not quoted.startswith('"') else quoted


def _quoted(name: str, awkward: str = "") -> str:
    if name.isprintable() and not any(letter in name for letter in f'"\\{awkward}'):
        return name
    shown = [_ESCAPES.get(letter) or (letter if letter.isprintable() else _octal(letter)) for letter in name]
    return '"' + "".join(shown) + '"'


def _octal(letter: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))
