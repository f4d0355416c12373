"""Reads a shell line into its commands, wherever they stand: in lists, loops, functions, substitutions, here-documents.

The grammar is tree-sitter's for bash. It is close to bash, not equal to it: rules that forbid read a line
loosely too (see `commands`), and rules that allow take only lines that need no such grammar (`literal_line`).
"""

from __future__ import annotations

import time
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from forge.permissions.shell.parsed_line import ShellLine
from forge.permissions.shell.syntax_tree import CommandReader, TooDeep
from forge.permissions.shell.word_patterns import ANY
from forge.permissions.shell.words import UNKNOWN, LineSource

if TYPE_CHECKING:
    from tree_sitter import Language, Tree

LONGEST = 50_000  # characters of a line that is read
PATIENCE = 0.5  # seconds of processor time: repairing a broken line may take the parser hours
_AT_ONCE = 1_000  # bytes that are parsed without looking at the clock
_CHUNK = 512
MOST_PIPES = 3_000  # a broken line with more takes the parser seconds, after it has read everything


def read(line: str, values: tuple[tuple[str, str], ...] = ()) -> ShellLine:
    """Returns the commands of a line."""
    return ShellLine(is_broken=True) if ANY in line else read_inner(line, values)


def read_inner(text: str, values: tuple[tuple[str, str], ...] = ()) -> ShellLine:
    """Returns the commands of a line that another one makes: parts of its text may be `ANY`.

    `values` are of variables, and stand in the place of their names.
    """
    if len(text) > LONGEST:
        return ShellLine(is_broken=True)
    return _short(text, values) if len(text) <= _AT_ONCE else _long(text, values)


def _read(line: str, values: tuple[tuple[str, str], ...]) -> ShellLine:
    source = LineSource(line.replace(ANY, UNKNOWN).encode("utf-8", "replace"))
    source.values = dict(values)
    tree = _parse_source(source)
    if tree is None:
        return ShellLine(is_broken=True)
    reader = CommandReader(source)
    reader.found.is_broken = tree.root_node.has_error
    try:
        reader.walk(tree.root_node, 0)
    except TooDeep:
        reader.found.is_broken = True
    return reader.found


_short = lru_cache(maxsize=512)(_read)
_long = lru_cache(maxsize=8)(_read)


def _parse_source(source: bytes) -> Tree | None:
    """Parses a line; None where it takes too long."""
    from tree_sitter import Parser  # only where a line is no plain one

    parser = Parser(_language())  # of its own: parsers may not be shared by threads
    if len(source) <= _AT_ONCE:
        return parser.parse(source)
    if source.count(b"|") > MOST_PIPES:
        return None
    deadline = time.thread_time() + PATIENCE
    is_late = False

    def chunk(start: int, _: object) -> bytes:
        nonlocal is_late
        is_late = is_late or time.thread_time() > deadline
        return b"" if is_late else source[start : start + _CHUNK]

    tree = parser.parse(chunk)
    return None if is_late else tree


@cache
def _language() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())
