"""Reads the text of a patch, a `*** Begin Patch` envelope or a unified diff, into operations on files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from forge.core.errors import ErrorKind, ToolError

Action = Literal["add", "update", "delete", "move"]

BEGIN, END, END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
FORM = f'{BEGIN}\n*** Update File: hello.py\n@@ def greet():\n-    print("Hi")\n+    print("Hello")\n{END}'
NOWHERE = "/dev/null"

_HEADER = re.compile(r"\*\*\* (add|update|delete) file:(.*)", re.IGNORECASE)
_MOVE = re.compile(r"\*\*\* move to:(.*)", re.IGNORECASE)
_RANGES = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,\d{1,9})? @@.*")
_HERE_DOCUMENT = re.compile(r"(?:[\w./-]+\s+)*<<-?\s*(['\"]?)(\w+)\1")


class SignedLine(NamedTuple):
    """A line of a chunk."""

    sign: str  # " " stays, "-" goes, "+" comes
    text: str


@dataclass(frozen=True, slots=True)
class PatchChunk:
    """Adjacent lines of a file, and their changes."""

    line: int  # of the patch, where it begins
    lines: tuple[SignedLine, ...]
    anchors: tuple[str, ...] = ()  # lines of the file that stand somewhere before it, one below the other
    at_end: bool = False
    near: int | None = None  # how many lines of the file stand before it, where the patch counts them
    unended: bool = False  # its last new line has no newline

    @property
    def changes(self) -> bool:
        return any(line.sign != " " for line in self.lines)


@dataclass(frozen=True, slots=True)
class ParsedOperation:
    """One change of a file."""

    where: str  # in what was sent: "operations[2]", "line 3 of the patch"
    action: Action
    path: str
    new_path: str = ""
    content: str | None = None
    chunks: tuple[PatchChunk, ...] = ()
    overwrite: bool = False


class NumberedLine(NamedTuple):
    """A line of the patch and its number."""

    number: int
    text: str


def parse_patch(text: str) -> list[ParsedOperation]:
    """Returns the operations of a patch. Raises `ToolError` that names the line that cannot be read."""
    stripped = text.strip("\n")
    first = text[: text.find(stripped)].count("\n") + 1
    lines = _unwrap(
        [NumberedLine(number, line.removesuffix("\r")) for number, line in enumerate(stripped.split("\n"), first)]
    )
    if not lines:
        raise ToolError("the patch is empty", ErrorKind.VALIDATION, f"Write it like this:\n{FORM}")
    is_diff = lines[0].text.startswith(("diff --git ", "--- "))
    return list(_read_diff(lines) if is_diff else _read_envelope(lines))


def unreadable_error(number: int, problem: str, suggestion: str = "") -> ToolError:
    """Returns the error for a line of the patch."""
    return ToolError(
        f"line {number} of the patch: {problem}",
        ErrorKind.VALIDATION,
        suggestion or f"A patch looks like this:\n{FORM}",
    )


def _unwrap(lines: list[NumberedLine]) -> list[NumberedLine]:
    """Removes blank lines, a code fence or a shell's here-document around the patch."""
    start, end = 0, len(lines)
    while start < end:
        first, last = lines[start].text.strip(), lines[end - 1].text.rstrip()
        last = last or lines[end - 1].text  # a space alone is an empty line that stays
        document = _HERE_DOCUMENT.fullmatch(first)
        fenced = first.startswith("```") and last == "```"
        wrapped = fenced or (document is not None and last == document[2])
        if not (wrapped and end - start > 1) and first and last:
            break
        start += wrapped or not first
        end -= wrapped or not last
    return lines[start:end]


def _read_envelope(lines: list[NumberedLine]) -> Iterator[ParsedOperation]:
    if lines[0].text.strip() != BEGIN:
        raise unreadable_error(lines[0].number, f'expected "{BEGIN}", found {_shorten(lines[0].text)}')
    starts, end = _find_markers(lines)
    if not end:
        raise unreadable_error(
            lines[-1].number, f'"{END}" is missing: the patch may have been cut off', "Send all of it."
        )
    for line in lines[end + 1 :]:
        if line.text.strip():
            raise unreadable_error(line.number, f'there is text after "{END}"', "Put all files into one patch.")
    first = starts[0] if starts else end
    for line in lines[1:first]:
        if line.text.strip():
            raise unreadable_error(
                line.number, f'expected "*** Update File: path" or the like, found {_shorten(line.text)}'
            )
    if not starts:
        raise unreadable_error(lines[0].number, "the patch names no file")
    for start, stop in pairwise([*starts, end]):
        yield _read_section(lines[start], lines[start + 1 : stop])


def _find_markers(lines: list[NumberedLine]) -> tuple[list[int], int]:
    """Returns the starts of the sections and the end of the patch; 0: no end.

    A marker may have space before it, but not among the lines of an update: there it is a line of the file that stays,
    unless it is the last line of the patch.
    """
    starts: list[int] = []
    updates = False
    for index, line in enumerate(lines):
        marker = line.text.rstrip() if updates else line.text.strip()
        if marker == END or (index == len(lines) - 1 and line.text.strip() == END):
            return starts, index
        if marker.startswith("***") and (found := _HEADER.fullmatch(marker)):
            starts.append(index)
            updates = found[1].lower() == "update"
    return starts, 0


def _read_section(header: NumberedLine, body: list[NumberedLine]) -> ParsedOperation:
    found = _HEADER.fullmatch(header.text.strip())
    assert found is not None
    action, path, where = found[1].lower(), found[2].strip(), f"line {header.number} of the patch"
    if not path:
        raise unreadable_error(header.number, "it names no file")
    if action == "add":
        return ParsedOperation(where, "add", path, content=_new_content(body))
    if action == "delete":
        for line in body:
            if line.text.strip():
                raise unreadable_error(line.number, "a deleted file has no lines here", "Leave them out.")
        return ParsedOperation(where, "delete", path)
    moved = _MOVE.fullmatch(body[0].text) if body else None
    if moved is None:
        return _update_operation(where, header, path, "", _read_chunks(body))
    if not (new_path := moved[1].strip()):
        raise unreadable_error(body[0].number, "it names no file")
    return _update_operation(where, header, path, new_path, _read_chunks(body[1:]))


def _update_operation(
    where: str, header: NumberedLine, path: str, new_path: str, chunks: tuple[PatchChunk, ...]
) -> ParsedOperation:
    if not any(chunk.changes for chunk in chunks):
        if chunks or not new_path:
            raise unreadable_error(header.number, f"nothing in {_shorten(path)} is changed", "Mark lines with - and +.")
        return ParsedOperation(where, "move", path, new_path)
    return ParsedOperation(where, "update", path, new_path, chunks=chunks)


def _new_content(body: Sequence[NumberedLine]) -> str:
    """Returns the content of a new file. An empty line between others counts; one after the last does not."""
    content: list[str] = []
    blank = 0
    for line in body:
        if line.text.startswith("+"):
            content += [""] * blank + [line.text[1:]]
            blank = 0
        elif not line.text.strip():
            blank += 1
        elif line.text.rstrip() != END_OF_FILE:
            raise unreadable_error(
                line.number,
                f"every line of an added file begins with +, this is {_shorten(line.text)}",
                "Begin each line of the new file with +, empty ones too.",
            )
    return "".join(f"{text}\n" for text in content)


def _read_chunks(body: Sequence[NumberedLine]) -> tuple[PatchChunk, ...]:
    chunks: list[PatchChunk] = []
    start = 0
    for index, line in enumerate(body):
        last = index + 1 == len(body)
        ends = line.text.rstrip() == END_OF_FILE
        if ends or last or (body[index + 1].text.startswith("@@") and not line.text.startswith("@@")):
            chunk = _read_chunk(body[start : index + (not ends)], at_end=ends)
            if chunk is not None:
                chunks.append(chunk)
            start = index + 1
    return tuple(chunks)


def _read_chunk(body: Sequence[NumberedLine], *, at_end: bool) -> PatchChunk | None:
    """Reads one chunk: its anchors, then its lines; None if it is empty."""
    anchors: list[str] = []
    marked: list[SignedLine] = []
    near, counted, unended = None, False, False
    for line in body:
        if line.text.startswith("@@"):
            if ranges := _RANGES.fullmatch(line.text.rstrip()):
                counted = ranges[2] != "0"
                near = max(int(ranges[1]) - counted, 0)
            elif anchor := line.text[2:].removeprefix(" ").rstrip().removesuffix(" @@"):
                anchors.append(anchor)
        elif line.text.startswith("\\"):  # "\ No newline at end of file", said of the line before
            unended = bool(marked) and marked[-1].sign == "+"
        else:
            marked.append(_read_signed_line(line))
    if all(line == SignedLine(" ", "") for line in marked):
        if anchors:
            raise unreadable_error(
                body[0].number, "no line follows the anchor", "Write the lines that change below it."
            )
        return None
    if counted and all(line.sign == "+" for line in marked):
        raise unreadable_error(
            body[0].number,
            "it has line numbers, but no lines of the file to find its position",
            "Add a few unchanged lines, each with a space before it.",
        )
    return PatchChunk(body[0].number, tuple(marked), tuple(anchors), at_end, near, unended)


def _read_signed_line(line: NumberedLine) -> SignedLine:
    if not line.text:
        return SignedLine(" ", "")
    if line.text[0] not in " +-":
        raise unreadable_error(
            line.number,
            f"it must begin with a space, - or +: {_shorten(line.text)}",
            "Begin unchanged lines with a space, removed lines with -, added lines with +.",
        )
    return SignedLine(line.text[0], line.text[1:])


def _read_diff(lines: list[NumberedLine]) -> Iterator[ParsedOperation]:
    """Returns the operations of a unified diff. Its line numbers only decide between equally good matches."""
    starts: list[int] = []
    named = True  # whether the file that is being read has its names already
    for index, line in enumerate(lines):
        following = lines[index + 1].text if index + 1 < len(lines) else ""
        names = line.text.startswith("--- ") and following.startswith("+++ ")
        if line.text.startswith("diff --git ") or (names and named):
            starts.append(index)
        named = names or (named and not line.text.startswith("diff --git "))
    if not starts or starts[0]:
        raise unreadable_error(lines[0].number, 'a line "--- a/path" must be followed by a line "+++ b/path"')
    for start, stop in pairwise([*starts, len(lines)]):
        yield _read_diff_file(lines[start:stop])


def _read_diff_file(section: list[NumberedLine]) -> ParsedOperation:
    header = section[0]
    size = next((index for index, line in enumerate(section) if line.text.startswith("@@")), len(section))
    old, new = _read_names(section[:size])
    body = section[size:]
    where = f"line {header.number} of the patch"
    if not old or not new or (old == new == NOWHERE):
        raise unreadable_error(header.number, "it names no file")
    if old == NOWHERE:
        content = _new_content([line for line in body if line.text[:1] not in ("@", "\\")])
        unended = any(line.text.startswith("\\") for line in body)
        return ParsedOperation(where, "add", new, content=content.removesuffix("\n") if unended else content)
    if new == NOWHERE:
        return ParsedOperation(where, "delete", old)
    return _update_operation(where, header, old, new if new != old else "", _read_chunks(body))


def _read_names(preamble: list[NumberedLine]) -> tuple[str, str]:
    """Returns the old and the new name of a file, `/dev/null` where there is none."""
    found: dict[str, str] = {}
    for line in preamble:
        for start in ("--- ", "+++ ", "rename from ", "rename to "):
            if line.text.startswith(start):
                found[start] = line.text.removeprefix(start).partition("\t")[0].strip()
        for start in ("new file ", "deleted file "):
            if line.text.startswith(start):
                found[start] = NOWHERE
        if line.text.startswith(("Binary files ", "GIT binary patch", "copy from ")) or '"' in line.text[:13]:
            raise unreadable_error(
                line.number, f"this cannot be applied: {_shorten(line.text)}", "Use operations instead."
            )
    if "rename from " in found and "rename to " in found:
        return found["rename from "], found["rename to "]
    both = preamble[0].text.removeprefix("diff --git ")
    name = both[2 : len(both) // 2]  # "a/name b/name"
    same = both == f"a/{name} b/{name}"
    old = found.get("--- ") or found.get("new file ") or (f"a/{name}" if same else "")
    new = found.get("+++ ") or found.get("deleted file ") or (f"b/{name}" if same else "")
    if old.startswith(("a/", NOWHERE)) and new.startswith(("b/", NOWHERE)):
        return old.removeprefix("a/"), new.removeprefix("b/")
    return old, new


def _shorten(text: str) -> str:
    return f'"{text}"' if len(text) <= 80 else f'"{text[:80]}…"'
