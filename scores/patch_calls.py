"""Writes a change of a file as a call, and damages the call, or the file under it, as models or time do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import takewhile
from typing import NamedTuple

NONE = "none"
FORMS = ("edit", "diff", "envelope")
PATCHES = ("diff", "envelope")
_CONTEXTS = (3, 5, 8, 13, 21)  # lines around a change, until every piece occurs once
_LOOK_ALIKE = str.maketrans({"'": "’", '"': "”"})


class Line(NamedTuple):
    """A line of a hunk, and its place in the file before and after."""

    sign: str  # " " stays, "-" goes, "+" comes
    text: str
    old: int = -1
    new: int = -1


Hunk = tuple[Line, ...]


@dataclass(frozen=True)
class Change:
    """The file before and after, and what the call says of it."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    hunks: tuple[Hunk, ...]
    unit: str = "    "  # one level of indentation
    file_end: str = "\n"
    call_end: str = "\n"
    shift: int = 0  # of the line numbers
    bare_blanks: bool = False  # empty context lines have no space before them

    def file_before(self) -> bytes:
        return "".join(f"{line}{self.file_end}" for line in self.before).encode()

    def file_after(self) -> bytes:
        return "".join(f"{line}{self.file_end}" for line in self.after).encode()


class Damage(NamedTuple):
    """One kind of damage; None where it changes nothing or would leave the meaning open."""

    make: Callable[[Change], Change | None]
    forms: tuple[str, ...] = FORMS


def make_change(before: str, after: str, suffix: str) -> Change | None:
    """The change with as much context as every piece needs to occur once; None if there is none, or none is enough."""
    old, new = before.split("\n")[:-1], after.split("\n")[:-1]
    if old == new or not any(line.strip() for line in old):
        return None
    unit = "\t" if suffix == ".go" else "  " if suffix == ".js" else "    "
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    opcodes: list[Opcode] = [*matcher.get_opcodes()]
    for context in _CONTEXTS:
        hunks = tuple(_make_hunk(group, old, new) for group in _group(opcodes, context))
        if all(_occurs_once(hunk, old) for hunk in hunks):
            return Change(tuple(old), tuple(new), hunks, unit)
    return None


def render(change: Change, form: str, path: str) -> str | list[tuple[str, str]]:
    """The texts to replace, or the text of a patch."""
    if form == "edit":
        return [(_join(change, hunk, "+"), _join(change, hunk, "-")) for hunk in change.hunks]
    lines = [f"--- a/{path}", f"+++ b/{path}"] if form == "diff" else ["*** Begin Patch", f"*** Update File: {path}"]
    for hunk in change.hunks:
        old = sum(line.sign != "+" for line in hunk)
        new = sum(line.sign != "-" for line in hunk)
        first = max(min((line.old for line in hunk if line.old >= 0), default=0) + 1 + change.shift, 1)
        there = max(min((line.new for line in hunk if line.new >= 0), default=0) + 1 + change.shift, 1)
        lines.append(f"@@ -{first},{old} +{there},{new} @@" if form == "diff" else "@@")
        lines += ["" if change.bare_blanks and line[:2] == (" ", "") else f"{line.sign}{line.text}" for line in hunk]
    lines += ["*** End Patch"] if form == "envelope" else []
    return "".join(f"{line}{change.call_end}" for line in lines)


def indentation_left_out(change: Change) -> Change | None:
    """The lines of every piece begin further left, by what is common to them."""

    def dedent(hunk: Hunk) -> Hunk:
        indents = [_indentation(line.text) for line in hunk if line.text.strip()]
        common = min(indents, key=len, default="")
        while common and not all(indent.startswith(common) for indent in indents):
            common = common[:-1]
        return tuple(line._replace(text=line.text.removeprefix(common)) if line.text.strip() else line for line in hunk)

    return _change_lines(change, dedent)


def one_level_too_deep(change: Change) -> Change | None:
    def indent(hunk: Hunk) -> Hunk:
        return tuple(line._replace(text=change.unit + line.text) if line.text.strip() else line for line in hunk)

    return _change_lines(change, indent)


def tabs_and_spaces_exchanged(change: Change) -> Change | None:
    """Tabs stand for levels of spaces, or spaces for tabs."""

    def exchange(text: str) -> str:
        indent = _indentation(text)
        if change.unit == "\t":
            return indent.replace("\t", "    ") + text[len(indent) :]
        levels, rest = divmod(len(indent), len(change.unit))
        return "\t" * levels + " " * rest + text[len(indent) :] if "\t" not in indent else text

    return _change_lines(change, lambda hunk: tuple(line._replace(text=exchange(line.text)) for line in hunk))


def context_changed_since(change: Change) -> Change | None:
    """A line that stays was changed in the file after it was read."""
    line = _find_context(change, lambda line: re.search(r"[A-Za-z]{3,}", line.text) is not None)
    if line is None:
        return None
    words = re.findall(r"[A-Za-z]{3,}", line.text)
    now = line.text.replace(max(words, key=len), f"{max(words, key=len)}Now", 1)
    before, after = [*change.before], [*change.after]
    before[line.old] = after[line.new] = now
    return replace(change, before=tuple(before), after=tuple(after))


def crlf_in_the_file(change: Change) -> Change | None:
    return replace(change, file_end="\r\n")


def crlf_in_the_call(change: Change) -> Change | None:
    return replace(change, call_end="\r\n")


def blanks_at_line_ends_in_the_call(change: Change) -> Change | None:
    def add(hunk: Hunk) -> Hunk:
        return tuple(
            line._replace(text=f"{line.text}  ") if line.sign != "+" and line.text.strip() else line for line in hunk
        )

    return _change_lines(change, add)


def blanks_at_line_ends_in_the_file(change: Change) -> Change | None:
    """The lines around a change end with blanks; texts to replace do not say which of the lines between them stay."""
    before, after = [*change.before], [*change.after]
    for hunk in change.hunks:
        around = [*takewhile(lambda line: line.sign == " ", hunk)]
        around += takewhile(lambda line: line.sign == " ", reversed(hunk))
        once = Counter(line.text for line in hunk)  # a line that comes again may be said to be the one that stays
        for line in (line for line in around if line.text.strip() and once[line.text] == 1):
            before[line.old] = after[line.new] = f"{line.text}  "
    return replace(change, before=tuple(before), after=tuple(after)) if before != [*change.before] else None


def wrong_line_numbers(change: Change) -> Change | None:
    return replace(change, shift=17)


def context_left_out(change: Change) -> Change | None:
    """Only the lines that change are in the call; one line more where none of the file would be."""

    def strip(hunk: Hunk) -> Hunk:
        places = [index for index, line in enumerate(hunk) if line.sign != " "]
        first, last = places[0], places[-1] + 1
        if all(line.sign == "+" for line in hunk[first:last]):
            first, last = (first - 1, last) if first else (first, last + 1)
        return hunk[first:last]

    hunks = tuple(strip(hunk) for hunk in change.hunks)
    return replace(change, hunks=hunks) if hunks != change.hunks else None


def line_left_out_inside(change: Change) -> Change | None:
    """A line that stays, between others, is left out."""
    return _leave_out(change, lambda line: bool(line.text.strip()))


def blank_lines_left_out(change: Change) -> Change | None:
    return _leave_out(change, lambda line: not line.text.strip(), every=True)


def look_alike_quotes(change: Change) -> Change | None:
    def quote(hunk: Hunk) -> Hunk:
        return tuple(
            line._replace(text=line.text.translate(_LOOK_ALIKE)) if line.sign != "+" else line for line in hunk
        )

    return _change_lines(change, quote)


def empty_lines_without_their_space(change: Change) -> Change | None:
    has_empty = any(line[:2] == (" ", "") for hunk in change.hunks for line in hunk)
    return replace(change, bare_blanks=True) if has_empty else None


DAMAGES = {
    "indentation left out": Damage(indentation_left_out),
    "one level too deep": Damage(one_level_too_deep),
    "tabs and spaces exchanged": Damage(tabs_and_spaces_exchanged),
    "a line nearby changed since": Damage(context_changed_since),
    "CRLF in the file": Damage(crlf_in_the_file),
    "CRLF in the call": Damage(crlf_in_the_call),
    "blanks at line ends in the call": Damage(blanks_at_line_ends_in_the_call),
    "blanks at line ends in the file": Damage(blanks_at_line_ends_in_the_file),
    "wrong line numbers": Damage(wrong_line_numbers, ("diff",)),
    "only the lines that change": Damage(context_left_out),
    "a line left out inside": Damage(line_left_out_inside),
    "blank lines left out": Damage(blank_lines_left_out),
    "look-alike quotes": Damage(look_alike_quotes),
    "empty lines without their space": Damage(empty_lines_without_their_space, PATCHES),
}


def _change_lines(change: Change, make: Callable[[Hunk], Hunk]) -> Change | None:
    """None if nothing changes, or if a piece is a right one: it shows no damage in the lines that the file has.

    Tabs in new lines, where no other line has any indentation, are tabs; a piece that stands in the file as it is now
    names that place. Lines of nothing but blanks would not say how deep they belong.
    """
    if any(line.text and not line.text.strip() for hunk in change.hunks for line in hunk):
        return None
    hunks = tuple(make(hunk) for hunk in change.hunks)
    pairs = [pair for pair in zip(change.hunks, hunks, strict=True) if pair[0] != pair[1]]
    whole = "".join(f"{line}\n" for line in change.before)
    is_shown = all("".join(f"{line.text}\n" for line in hunk if line.sign != "+") not in whole for _, hunk in pairs)
    return replace(change, hunks=hunks) if pairs and is_shown else None


def _leave_out(change: Change, fits: Callable[[Line], bool], *, every: bool = False) -> Change | None:
    left = None if every else _find_context(change, fits)

    def drop(hunk: Hunk) -> Hunk:
        return tuple(
            line
            for index, line in enumerate(hunk)
            if not (line is left or (every and line.sign == " " and 0 < index < len(hunk) - 1 and fits(line)))
        )

    return _change_lines(change, drop)


def _find_context(change: Change, fits: Callable[[Line], bool]) -> Line | None:
    """The first line that stays and fits, with lines of the file before and after it in its hunk."""
    for hunk in change.hunks:
        old = [line for line in hunk if line.sign != "+"]
        for line in old[1:-1]:
            if line.sign == " " and fits(line):
                return line
    return None


def _join(change: Change, hunk: Hunk, without: str) -> str:
    return "".join(f"{line.text}{change.call_end}" for line in hunk if line.sign != without)


def _indentation(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" \t"))]


Opcode = tuple[str, int, int, int, int]


def _group(opcodes: list[Opcode], context: int) -> list[list[Opcode]]:
    """The changes with that many lines around them; those that touch are one."""
    groups: list[list[Opcode]] = []
    for tag, i1, i2, j1, j2 in opcodes:
        if tag != "equal":
            if not groups:
                groups.append([])
            groups[-1].append((tag, i1, i2, j1, j2))
        elif groups and i2 - i1 > 2 * context:
            groups[-1].append((tag, i1, i1 + context, j1, j1 + context))
            groups.append([(tag, i2 - context, i2, j2 - context, j2)])
        elif groups:
            groups[-1].append((tag, i1, i2, j1, j2))
        else:
            groups.append([(tag, max(i1, i2 - context), i2, max(j1, j2 - context), j2)])
    if groups and groups[-1][-1][0] == "equal":
        tag, i1, i2, j1, j2 = groups[-1].pop()
        if groups[-1]:
            groups[-1].append((tag, i1, min(i2, i1 + context), j1, min(j2, j1 + context)))
        else:
            groups.pop()
    return groups


def _make_hunk(opcodes: list[Opcode], old: list[str], new: list[str]) -> Hunk:
    lines: list[Line] = []
    for tag, i1, i2, j1, j2 in opcodes:
        if tag == "equal":
            lines += [Line(" ", old[i1 + step], i1 + step, j1 + step) for step in range(i2 - i1)]
        else:
            lines += [Line("-", old[i], i) for i in range(i1, i2)]
            lines += [Line("+", new[j], -1, j) for j in range(j1, j2)]
    return tuple(lines)


def _occurs_once(hunk: Hunk, lines: list[str]) -> bool:
    wanted = "\n" + "".join(f"{line.text}\n" for line in hunk if line.sign != "+")
    whole = "\n" + "".join(f"{line}\n" for line in lines)
    first = whole.find(wanted)
    return len(wanted) > 1 and first >= 0 and whole.find(wanted, first + 1) < 0
