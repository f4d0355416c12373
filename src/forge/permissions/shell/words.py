"""Reads the words of a shell line without their quotes, and marks parts that are known only when the line runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node


GLOB = "\2"  # in a word: a wildcard, which the shell replaces by names of files

UNKNOWN = "\uf8ff"  # `ANY` in a source: no parser takes its own character

_OPEN, _CLOSE, _COMMA, _LEFT, _RIGHT = "\x0e", "\x0f", "\x10", "\x11", "\x12"  # brackets that are not quoted
_MARKS = str.maketrans("{},[]", _OPEN + _CLOSE + _COMMA + _LEFT + _RIGHT)
_UNMARKS = str.maketrans(_OPEN + _CLOSE + _COMMA + _LEFT + _RIGHT, "{},[]")
_HAS_MARKS = re.compile(f"[{_OPEN}{_LEFT}]")
_SPECIAL = re.compile(r"[\\*?\[\]{},]")
_BARE = re.compile(r"\\\n|\\(.)|([*?]+)", re.DOTALL)
_IN_QUOTES = re.compile(r"\\(?:\n|([\"\\$`]))")
_EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})
_VARIABLE = re.compile(rb"\$(?:(\w+)|\{(\w+)\})")
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|[uU](?P<code>[0-9a-fA-F]{1,8})|(?P<one>.))", re.DOTALL
)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


class LineSource(bytes):
    """The text of a line, with the values of variables that are known before it runs."""

    values: Mapping[str, str] = MappingProxyType({})


def word(source: bytes, nodes: list[Node]) -> str:
    """Returns the word that adjacent nodes make."""
    if len(nodes) == 1 and nodes[0].type == "word":
        plain = _slice(source, nodes[0].start_byte, nodes[0].end_byte)
        if not _SPECIAL.search(plain):
            return plain
    text = (
        _read_part(source, nodes[0], is_quoted=False)
        if len(nodes) == 1
        else _join_parts(source, nodes, is_quoted=False)
    )
    return _read_brackets(text) if _HAS_MARKS.search(text) else text.translate(_UNMARKS)


def _read_part(source: bytes, node: Node, *, is_quoted: bool) -> str:
    kind = node.type
    if kind == "raw_string":
        return _slice(source, node.start_byte + 1, node.end_byte - 1)
    if kind == "ansi_c_string":
        return _unescape(_slice(source, node.start_byte + 2, node.end_byte - 1))
    if kind == "string":
        return _read_between(source, node, node.start_byte + 1, node.end_byte - 1)
    if kind in _EXPANSIONS:
        return _read_expansion(source, node, is_quoted=is_quoted)
    if kind == "process_substitution":
        return SOME
    if kind == "brace_expression":
        return ANY
    if not node.child_count:
        return _unquote(source, node) if is_quoted else _read_bare(_slice(source, node.start_byte, node.end_byte))
    return _join_parts(source, node.children, is_quoted=is_quoted)


def _join_parts(source: bytes, nodes: list[Node], *, is_quoted: bool) -> str:
    found = ""
    for node in nodes:
        if node.type == "string" and source[node.start_byte - 1 : node.start_byte] == b"$":
            found = found.removesuffix("$")  # $"…" is translated
        found += _read_part(source, node, is_quoted=is_quoted)
    return found


def _unquote(source: bytes, node: Node) -> str:
    return _IN_QUOTES.sub(r"\1", _slice(source, node.start_byte, node.end_byte))


def _read_between(source: bytes, node: Node, start: int, end: int) -> str:
    """Reads the content of double quotes, from the source between expansions: the tree leaves blanks out."""
    found = []
    for child in node.children:
        if child.type in _EXPANSIONS:
            found.append(_IN_QUOTES.sub(r"\1", _slice(source, start, child.start_byte)))
            found.append(_read_expansion(source, child, is_quoted=True))
            start = child.end_byte
    found.append(_IN_QUOTES.sub(r"\1", _slice(source, start, end)))
    return "".join(found)


def _read_expansion(source: bytes, node: Node, *, is_quoted: bool) -> str:
    value = _read_value(source, node)
    if value is not None and (is_quoted or not any(map(str.isspace, value))):
        return value
    if is_quoted:
        text = source[node.start_byte : node.end_byte]
        return ANY if node.type in ("simple_expansion", "expansion") and b"@" in text else SOME
    is_folder = node.type == "simple_expansion" and source[node.end_byte : node.end_byte + 1] == b"/"
    return SOME if is_folder and source[node.start_byte + 1 : node.start_byte + 2] not in b"@*" else ANY


def _read_value(source: bytes, node: Node) -> str | None:
    """Returns the value of a variable, where it is known."""
    if not isinstance(source, LineSource) or not source.values:
        return None
    name = _VARIABLE.fullmatch(source, node.start_byte, node.end_byte)
    return source.values.get((name[1] or name[2]).decode()) if name else None


def _read_bare(text: str) -> str:
    if not _SPECIAL.search(text):
        return text
    found, at = [], 0
    for piece in _BARE.finditer(text):
        found += [text[at : piece.start()].translate(_MARKS), GLOB if piece[2] else piece[1] or ""]
        at = piece.end()
    return "".join([*found, text[at:].translate(_MARKS)])


def _read_brackets(text: str) -> str:
    """Reads brackets: `a{b,c}` is several words, `[ab]` any of several characters; others are themselves."""
    start, end = text.find(_OPEN), text.rfind(_CLOSE)
    if 0 <= start < end and (_COMMA in text[start:end] or ".." in text[start:end]):
        return text[:start].translate(_UNMARKS) + ANY
    start, end = text.find(_LEFT), text.rfind(_RIGHT)
    if 0 <= start < end:
        text = text[:start] + GLOB + text[end + 1 :]
    return text.translate(_UNMARKS)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_read_character, text) if "\\" in text else text


def _read_character(escape: re.Match[str]) -> str:
    if octal := escape["octal"]:
        code = int(octal, 8) & 0xFF
    elif digits := escape["hex"] or escape["code"]:
        code = int(digits, 16)
    else:
        one = escape["one"]
        return _NAMED.get(one) or (one if one in "\\'\"?" else SOME)
    return chr(code) if 0 < code < 0x80 else SOME


def _slice(source: bytes, start: int, end: int) -> str:
    return source[start:end].decode("utf-8", "replace").replace(UNKNOWN, ANY)


# Matches command patterns against words that are partly known only when the line runs.


ANY = "\0"  # in a word: any text, or several words, or none
SOME = "\1"  # in a word: any text without blanks
MOST_MASKS = 1_000  # characters whose places in a pattern are kept

_PIECE = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


def fits(words: str, pattern: str) -> bool:
    """Returns whether the words fit a pattern; `git log *` also fits `git log`."""
    return fnmatchcase(words, pattern) or (pattern.endswith(" *") and fnmatchcase(words, pattern[:-2]))


def may_fit(words: Sequence[str], pattern: str) -> bool:
    """Returns whether the words fit for some text in the place of every `ANY` and `SOME`.

    Options between the words may be left out, with the word behind them or without: `git -C . push` fits `git push *`.
    """
    if all(is_known(word) and not word.startswith("-") for word in words):
        return fits(" ".join(words), pattern)
    return _may_fit(words, pattern) or (pattern.endswith(" *") and _may_fit(words, pattern[:-2]))


def is_known(word: str) -> bool:
    """Returns whether a word is complete before the line runs."""
    return ANY not in word and SOME not in word


def _may_fit(words: Sequence[str], pattern: str) -> bool:
    glob = _compile(pattern)
    positions = [1, *[0] * (len(words) + 1)]  # where in the pattern one may be before each word
    needed = max((index for index, word in enumerate(words) if word != ANY), default=0)
    for index, word in enumerate(words):
        if not positions[index]:
            continue
        reached = glob.advance(positions[index], f" {word}" if index else word)
        if index >= needed and reached & glob.end:
            return True
        positions[index + 1] |= reached
        if index and word.startswith(("-", ANY, SOME)):
            positions[index + 1] |= positions[index]
            positions[index + 2] |= positions[index] if "=" not in word and word != "--" else 0
    return False


class _Glob:
    """A pattern as a set of positions, one bit each, so that a character moves all of them at once."""

    def __init__(self, pattern: str) -> None:
        pieces: list[str | re.Pattern[str]] = []
        self.loops = 0  # places at a `*`, where every character may stay
        for piece in _PIECE.findall(pattern):
            if piece == "*":
                self.loops |= 1 << len(pieces)
            else:
                pieces.append(re.compile(translate(piece)) if piece[0] in "[?" else piece)
        self.pieces = pieces
        self.end = 1 << len(pieces)
        self.blanks = sum(1 << position for position, piece in enumerate(pieces) if piece == " ")
        self._masks: dict[str, int] = {}

    def advance(self, positions: int, text: str) -> int:
        """Returns the possible positions after the text."""
        for char in text:
            if char == ANY:
                positions = -(positions & -positions) & (2 * self.end - 1)  # anywhere from the first place on
            elif char == SOME:
                positions = self._to_blanks(positions)
            else:
                positions = ((positions & self._mask(char)) << 1) | (positions & self.loops)
            if not positions:
                break
        return positions

    def _to_blanks(self, positions: int) -> int:
        before = 0
        while positions != before:
            before = positions
            positions |= ((positions & ~self.blanks) << 1) & (2 * self.end - 1)
        return positions

    def _mask(self, char: str) -> int:
        found = self._masks.get(char)
        if found is None:
            taken = (piece == char if isinstance(piece, str) else piece.match(char) for piece in self.pieces)
            found = sum(1 << position for position, takes in enumerate(taken) if takes)
            if len(self._masks) < MOST_MASKS:
                self._masks[char] = found
        return found


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> _Glob:
    return _Glob(pattern)


# The parts of a shell line: its commands, and how they are connected.


class Redirection(NamedTuple):
    """A redirection: `2> errors` is `>` to `errors`; `target` of a here-document or here-string is the text."""

    operator: str
    target: str
    descriptor: str = ""  # the number before it, where there is one


class CommandRange(NamedTuple):
    """Some of a line's commands, by number."""

    start: int
    end: int


NONE = CommandRange(0, 0)


@dataclass(slots=True)
class ShellCommand:
    """The words of one command, and its surroundings."""

    words: tuple[str, ...] = ()
    assignments: list[tuple[str, str]] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)
    inside: CommandRange = NONE  # the commands in its own substitutions
    joint: str = ""  # "&&" where it runs only if the command before it succeeded


@dataclass(slots=True)
class ShellFunction:
    """A function that the line defines."""

    name: str
    body: CommandRange


@dataclass(slots=True)
class ShellLine:
    """The parts of a line."""

    commands: list[ShellCommand] = field(default_factory=list)
    pipes: list[list[CommandRange]] = field(default_factory=list)
    background: list[CommandRange] = field(default_factory=list)
    functions: list[ShellFunction] = field(default_factory=list)
    loops: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # `for x in a b`
    is_broken: bool = False  # the grammar does not know all of it
