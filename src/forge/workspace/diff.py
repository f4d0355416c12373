"""Unified diffs that `patch -p1` and `git apply` accept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forge.workspace._blocks import shared_blocks

CHUNK = 65_536  # characters compared at once
_NO_NEWLINE = "\n\\ No newline at end of file\n"
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
    hunks = "".join(_hunks(before or "", after or "", context))
    names = ""
    if hunks:
        old, new = _name("a/", path), _name("b/", new_path)
        names = f"--- {old if before is not None else '/dev/null'}\n+++ {new if after is not None else '/dev/null'}\n"
    return _header(before, after, path, new_path) + names + hunks


def _header(before: str | None, after: str | None, path: str, new_path: str) -> str:
    """What only git's extended form can say: a file moved, an empty one made or removed."""
    first = f"diff --git {_quoted('a/' + path)} {_quoted('b/' + new_path)}\n"
    if before is None:
        return "" if after else f"{first}new file mode 100644\nindex 0000000..e69de29\n"
    if after is None:
        return "" if before else f"{first}deleted file mode 100644\nindex e69de29..0000000\n"
    if path == new_path:
        return ""
    same = "similarity index 100%\n" if before == after else ""
    return f"{first}{same}rename from {_quoted(path)}\nrename to {_quoted(new_path)}\n"


def _hunks(before: str, after: str, context: int) -> Iterator[str]:
    """The changed lines with some around them; lines that both texts begin and end with are cut off first."""
    if before == after:
        return
    head, tail = _shared_ends(before, after, context)
    first = before.count("\n", 0, head)
    old, new = _lines(before[head : len(before) - tail]), _lines(after[head : len(after) - tail])
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


def _shared_ends(before: str, after: str, context: int) -> tuple[int, int]:
    """How many characters at both ends are the same and not needed: whole lines, all but `context` of them."""
    head = _shared_head(before, after)
    tail = _shared_tail(before, after, min(len(before), len(after)) - head)
    for _ in range(context + 1):  # the first step goes back to the start of the line
        head = before.rfind("\n", 0, max(head - 1, 0)) + 1 if _ else before.rfind("\n", 0, head) + 1
    start = len(before) - tail
    for _ in range(context + 1):
        start = before.find("\n", start) + 1 or len(before)
    return head, len(before) - start


def _shared_head(before: str, after: str) -> int:
    most = min(len(before), len(after))
    same = 0
    while same < most and before.startswith(after[same : same + CHUNK], same) and same + CHUNK <= most:
        same += CHUNK
    size = min(CHUNK, most - same)
    while size:  # a step that is the same is taken, any other is halved
        if before[same : same + size] == after[same : same + size]:
            same += size
            size = min(size, most - same)
        else:
            size //= 2
    return same


def _shared_tail(before: str, after: str, most: int) -> int:
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


def _quoted(name: str) -> str:
    if name.isprintable() and '"' not in name and "\\" not in name:
        return name
    shown = [_ESCAPES.get(letter) or (letter if letter.isprintable() else _octal(letter)) for letter in name]
    return '"' + "".join(shown) + '"'


def _octal(letter: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))
