"""Reads the words of a shell line without their quotes, and marks parts that are known only when the line runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from forge.permissions.shell.word_patterns import ANY, SOME

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
