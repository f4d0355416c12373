"""Writes a search pattern as Python's regular expressions, which match on the same lines as ripgrep does."""

from __future__ import annotations

import re
from functools import cache
from typing import Any as Whatever

from forge.workspace._pattern_parts import (
    Any,
    At,
    Choice,
    Group,
    Literal,
    Part,
    Pattern,
    Reference,
    Repeat,
    Sequence,
    Set,
)

_INVALID = (0xDC80, 0xDCFF)  # bytes that are no UTF-8, as `surrogateescape` decodes them
_SPACES = ((9, 9), (11, 13), (32, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A))
_MORE_SPACES = ((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000))
_ASCII_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_CIRCLED = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))  # letters that are symbols
_DOTLESS = {"i": "(?-i:[iI])", "I": "(?-i:[iI])", "\u0130": "(?-i:\u0130)", "\u0131": "(?-i:\u0131)"}
_SHORTEST_HINT = 3  # bytes: shorter ones are in every file

Ranges = tuple[tuple[int, int], ...]


class Expressions:
    """The same pattern for bytes and for text, with and without carriage returns in it; each compiled when needed."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.hints = _hints(pattern.part)
        self.for_any_bytes = _is_literal(pattern.part)
        self._compiled: list[re.Pattern[Whatever] | None] = [None] * 4  # for bytes, then for text

    def matching(self, content: bytes) -> tuple[re.Pattern[Whatever], str | bytes]:
        """What to search with, and what to search."""
        returns = b"\r" in content and not self.pattern.has_return
        if self.for_any_bytes or content.isascii():
            return self._compiled[returns] or self._compile(False, returns), content
        return self._compiled[2 + returns] or self._compile(True, returns), content.decode("utf-8", "surrogateescape")

    def check(self) -> None:
        """Raises `re.error` or `OverflowError` for what only Python's compiler sees."""
        self._compile(False, False)

    def _compile(self, text: bool, returns: bool) -> re.Pattern[Whatever]:
        written = _Writer(text, returns, self.pattern.only_python).written(self.pattern.part)
        compiled: re.Pattern[Whatever] = re.compile(written if text else written.encode("utf-8", "surrogateescape"))
        self._compiled[2 * text + returns] = compiled
        return compiled


class _Writer:
    def __init__(self, text: bool, returns: bool, captures: bool) -> None:
        self.text = text
        self.returns = returns
        self.captures = captures
        self.ends: Ranges = ((10, 10), (13, 13)) if returns else ((10, 10),)
        self.never: Ranges = (*self.ends, _INVALID) if text else self.ends

    def written(self, part: Part) -> str:
        match part:
            case Literal():
                return self._literal(part)
            case Any():
                return f"[^{_shown(self.never)}]"
            case Set():
                return self._set(part)
            case At():
                return self._place(part.place)
            case Group():
                opening = part.opening if self.captures or part.opening[:3] not in ("(", "(?P") else "(?:"
                return f"{opening}{self.written(part.part)})"
            case Reference():
                return part.text
            case Repeat():
                count = f"{{{part.low},{'' if part.high < 0 else part.high}}}"
                return f"(?:{self.written(part.part)}){count}{'?' * part.lazy}"
            case Sequence():
                return "".join(map(self.written, part.parts))
            case Choice():
                return f"(?:{'|'.join(map(self.written, part.parts))})"

    def _literal(self, part: Literal) -> str:
        char = part.char
        if not part.folds:
            return re.escape(char) if char.isascii() or self.text else f"(?:{re.escape(char)})"
        if self.text:
            return _DOTLESS.get(char) or f"(?i:{re.escape(char)})"
        lower = char.lower()  # of the Kelvin sign, k
        if char == "\u017f":
            return "[sS]"
        return f"(?i:{re.escape(lower)})" if lower.isascii() else "(?!)"

    def _set(self, part: Set) -> str:
        ranges = _without(part.ranges if self.text else _ascii(part), self.never)
        for kind in part.perl:
            if kind.islower():
                ranges += _without(self._perl(kind), self.never)
        others = [self._perl(kind.lower()) for kind in part.perl if kind.isupper()]
        if part.negated:
            return self._negated(part, ranges, others)
        choices = [self._folded(part, f"[{_shown(ranges)}]", ranges)] if ranges else []
        choices += [f"[^{_shown((*other, *self.never))}]" for other in others]
        return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})" if choices else "(?!)"

    def _negated(self, part: Set, ranges: Ranges, others: list[Ranges]) -> str:
        inside = f"(?!{self._folded(part, f'[{_shown(ranges)}]', ranges)})" if part.folds and ranges else ""
        left_out = self.never if part.folds else (*ranges, *self.never)
        required = "".join(f"(?=[{_shown(other)}])" for other in others)
        return f"(?:{inside}{required}[^{_shown(left_out)}])"

    def _folded(self, part: Set, shown: str, ranges: Ranges) -> str:
        if not part.folds:
            return shown
        if not self.text:
            return f"(?i:{shown})"
        dotless = ((0x130, 0x131),)  # Python takes these two for an i
        named = tuple((code, code) for code in (0x130, 0x131) if any(low <= code <= high for low, high in ranges))
        others = _without(ranges, dotless)
        choices = [f"(?![{_shown(dotless)}])(?i:[{_shown(others)}])"] if others else []
        choices += [f"[{_shown(named)}]"] if named else []
        return f"(?:{'|'.join(choices)})"

    def _perl(self, kind: str) -> Ranges:
        if kind == "w":
            return word_ranges() if self.text else _ASCII_WORD
        if kind == "d":
            return digit_ranges() if self.text else ((48, 57),)
        return (*_SPACES, *_MORE_SPACES) if self.text else _SPACES[:3]

    def _place(self, place: str) -> str:
        match place:
            case "^":
                return r"(?:\A|(?<=\n)|(?<=\r)(?!\n))" if self.returns else "(?m:^)"
            case "$":
                return r"(?:(?=\r)|(?<!\r)(?=\n)|\Z)" if self.returns else "(?m:$)"
            case "A":
                return r"\A"
            case "z":
                return r"\Z"
        if not self.text and place in "bB":
            return f"\\{place}"
        word = f"[{_shown(word_ranges() if self.text else _ASCII_WORD)}]"
        start, end = f"(?<!{word})(?={word})", f"(?<={word})(?!{word})"
        if place in "<>":
            return start if place == "<" else end
        if place == "b":
            return f"(?:{start}|{end})"
        invalid = f"[{_shown((_INVALID,))}]"
        return f"(?:(?<!{invalid})(?!{invalid})(?:(?<={word})(?={word})|(?<!{word})(?!{word})))"


@cache
def word_ranges() -> Ranges:
    """What `\\w` is in ripgrep; Python's own leaves out marks and takes in fractions."""
    from unicodedata import category

    kept = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"}
    return (*_ranges(lambda char: category(char) in kept), (0x200C, 0x200D), *_CIRCLED)


@cache
def digit_ranges() -> Ranges:
    from unicodedata import category

    return _ranges(lambda char: category(char) == "Nd")


def _ranges(belongs: Whatever) -> Ranges:
    """Of the planes that have letters."""
    found: list[tuple[int, int]] = []
    start = -1
    for first, last in ((0, 0x33FFF), (0xE0100, 0xE01F0)):
        for code in range(first, last + 1):
            if belongs(chr(code)):
                start = code if start < 0 else start
            elif start >= 0:
                found.append((start, code - 1))
                start = -1
    return tuple(found)


def _ascii(part: Set) -> Ranges:
    """The part of a class that a file in ASCII can match: also the letters that long s and the Kelvin sign are."""
    codes = {0x17F: (115, 115), 0x212A: (107, 107)} if part.folds else {}
    also = (code for sign, code in codes.items() if any(low <= sign <= high for low, high in part.ranges))
    return (*((low, min(high, 127)) for low, high in part.ranges if low < 128), *also)


def _without(ranges: Ranges, others: Ranges) -> Ranges:
    for low, high in others:
        ranges = tuple(
            piece
            for one in ranges
            for piece in ((one[0], min(one[1], low - 1)), (max(one[0], high + 1), one[1]))
            if piece[0] <= piece[1]
        )
    return tuple(dict.fromkeys(ranges))


def _shown(ranges: Ranges) -> str:
    return "".join(
        re.escape(chr(low)) if low == high else f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in ranges
    )


def _is_literal(part: Part) -> bool:
    """Whether it means the same for any bytes as for text."""
    match part:
        case Literal():
            return not part.folds
        case Set():
            plain = not part.negated and not part.folds and not part.perl
            return plain and all(high < 128 for _, high in part.ranges)
        case At():
            return part.place in "^$"
        case Group() | Repeat():
            return _is_literal(part.part)
        case Sequence() | Choice():
            return all(map(_is_literal, part.parts))
    return False


def _hints(part: Part) -> tuple[bytes, ...]:
    """Texts of which a line that matches has at least one; none: it may have anything."""
    match part:
        case Literal():
            return () if part.folds else (part.char.encode(),)
        case Group():
            return _hints(part.part) if part.opening[:3] in ("(", "(?:", "(?P") else ()
        case Repeat():
            return _hints(part.part) if part.low else ()
        case Choice():
            found = [_hints(one) for one in part.parts]
            return tuple(hint for one in found for hint in one) if all(map(_worthy, found)) and len(found) <= 8 else ()
        case Sequence():
            return max(_runs(part), key=lambda one: min(map(len, one)) if one else 0, default=())
    return ()


def _runs(part: Sequence) -> list[tuple[bytes, ...]]:
    """Literal characters in a row joined; of everything else its own hints."""
    found: list[tuple[bytes, ...]] = []
    run = b""
    for one in (*part.parts, Any()):
        if isinstance(one, Literal) and not one.folds:
            run += one.char.encode("utf-8", "surrogateescape")
            continue
        if run:
            found.append((run,))
            run = b""
        found.append(_hints(one))
    return found


def _worthy(hints: tuple[bytes, ...]) -> bool:
    return bool(hints) and min(map(len, hints)) >= _SHORTEST_HINT
