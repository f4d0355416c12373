"""Reads a search pattern in ripgrep's syntax into parts, so that every engine can be told the same thing."""

from __future__ import annotations

import re

from forge.workspace._pattern_parts import (
    POSIX,
    Any,
    At,
    BadPattern,
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

__all__ = ["LONGEST", "BadPattern", "Pattern", "literal_pattern", "read_pattern"]

LONGEST = 10_000  # characters of a pattern
DEEPEST = 100  # groups inside each other
LARGEST_COUNT = 65_535  # of a counted repetition

RETURN = 13
_PERL = "dDsSwW"
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": RETURN, "v": 11}
_WIDTHS = {"x": 2, "u": 4, "U": 8}
_FLAGS = "imsUxRu"
_COUNT = re.compile(r"\{(?P<low>\d+)(?P<comma>,(?P<high>\d*))?\}")
_HALF = re.compile(r"\{(?:start|end)(?:-half)?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GROUP = re.compile(
    r"\(\?(?:P?<(?P<name>[^=!>][^>]*)>|(?P<look><?[=!]|>)|P=(?P<ref>\w+)\)|(?P<flags>[\w-]*)(?P<end>[:)]))"
)


def literal_pattern(text: str, *, folds: bool = False) -> Pattern:
    """The pattern that is this text."""
    if (end := text.find("\n")) >= 0:
        raise _ends_line(end)
    return Pattern(Sequence(tuple(Literal(char, folds) for char in text)), text, has_return="\r" in text)


def read_pattern(text: str, *, folds: bool = False) -> Pattern:
    """Raises `BadPattern`. `folds`: upper and lower case are the same."""
    reader = _Reader(text, folds)
    part = reader.choice()
    if reader.place < len(text):
        raise BadPattern("unopened group", reader.place + 1)
    source = "".join(f"\\{char}" if place in reader.plain_braces else char for place, char in enumerate(text))
    return Pattern(part, source, reader.only_python, reader.only_ripgrep, reader.has_return)


class _Reader:
    def __init__(self, text: str, folds: bool) -> None:
        self.text = text
        self.place = 0
        self.depth = 0
        self.folds = folds
        self.verbose = False
        self.only_python = False
        self.only_ripgrep = ""
        self.has_return = False
        self.names: set[str] = set()
        self.plain_braces: set[int] = set()

    def choice(self) -> Part:
        before = self.folds, self.verbose
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self.folds, self.verbose = before
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self.place < len(self.text) and self.text[self.place] not in "|)":
            if self.verbose and self._skipped():
                continue
            start = self.place
            char = self.text[start]
            if char in "*+?" or (char == "{" and (_COUNT.match(self.text, start) and parts)):
                if not parts:
                    raise BadPattern("repetition operator missing expression", start + 1)
                parts.append(self._repeated(parts.pop()))
            elif (part := self._atom()) is not None:
                parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self) -> Part | None:
        start = self.place
        char = self.text[start]
        self.place += 1
        match char:
            case ".":
                return Any()
            case "^" | "$":
                return At(char)
            case "(":
                return self._group(start)
            case "[":
                return self._set(start)
            case "\\":
                return self._escape(start)
            case "\n":
                raise _ends_line(start)
            case "{":
                self.plain_braces.add(start)
        self.has_return |= char == "\r"
        return Literal(char, self.folds)

    def _repeated(self, part: Part) -> Repeat:
        start = self.place
        char = self.text[start]
        low, high = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}.get(char, (0, 0))
        self.place += 1
        if char == "{" and (count := _COUNT.match(self.text, start)):
            self.place = count.end()
            low = int(count["low"][:9])
            high = low if not count["comma"] else int(count["high"][:9]) if count["high"] else -1
            if max(low, high) > LARGEST_COUNT:
                raise BadPattern(f"more than {LARGEST_COUNT:,} repetitions", start + 1)
            if -1 < high < low:
                raise BadPattern("invalid repetition count range, the start must be <= the end", start + 1)
        return Repeat(part, low, high, self._take("?"))

    def _group(self, start: int) -> Part | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadPattern(f"more than {DEEPEST} groups inside each other", start + 1)
        opening = "("
        before = self.folds, self.verbose
        if self.text.startswith("?", self.place):
            kind = _GROUP.match(self.text, start)
            if kind is None:
                raise BadPattern(
                    "unclosed group" if self.place + 1 >= len(self.text) else "unrecognized group", start + 1
                )
            self.place = kind.end()
            if kind["ref"]:
                self.depth -= 1
                self.only_python = True
                return Reference(f"(?P={kind['ref']})")
            if kind["flags"] is not None:
                self._set_flags(kind["flags"], kind.start("flags"))
                if kind["end"] == ")":
                    self.depth -= 1
                    return None  # for the rest of the group it stands in
            opening = self._opening(kind)
        part = self.choice()
        if not self._take(")"):
            raise BadPattern("unclosed group", start + 1)
        self.folds, self.verbose = before
        self.depth -= 1
        return Group(part, opening)

    def _opening(self, kind: re.Match[str]) -> str:
        if kind["look"]:
            self.only_python = True
            return f"(?{kind['look']}"
        name = kind["name"]
        if name is None:
            return "(?:"
        if not _NAME.fullmatch(name):
            raise BadPattern("invalid capture group name", kind.start("name") + 1)
        if name in self.names:
            raise BadPattern("duplicate capture group name", kind.start("name") + 1)
        self.names.add(name)
        return f"(?P<{name}>"

    def _set_flags(self, flags: str, start: int) -> None:
        on = True
        for place, flag in enumerate(flags, start):
            if flag == "-":
                on = False
            elif flag not in _FLAGS:
                raise BadPattern("unrecognized flag", place + 1)
            elif flag == "i":
                self.folds = on
            elif flag == "x":
                self.verbose = on
            elif flag in "Ru" or (flag == "m" and not on):
                self.only_ripgrep = f"(?{'' if on else '-'}{flag})"

    def _escape(self, start: int) -> Part:
        char = self.text[self.place : self.place + 1]
        if not char:
            raise BadPattern("incomplete escape sequence", start + 1)
        if char in _PERL:
            self.place += 1
            return Set((), char, False, self.folds)
        if char in "bBAz<>":
            self.place += 1
            if char == "b" and (half := _HALF.match(self.text, self.place)):
                self.only_ripgrep = f"\\b{half[0]}"
                self.place = half.end()
            return At(char)
        if char in "123456789":
            self.place += 1
            self.only_python = True
            return Reference(f"(?:\\{char})")
        if char in "pP":
            return self._property(start)
        code = self._code(start)
        if code == 10:
            raise _ends_line(start)
        self.has_return |= code == RETURN
        return Literal(chr(code), self.folds)

    def _code(self, start: int) -> int:
        """The character that an escape stands for."""
        char = self.text[self.place]
        self.place += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in _WIDTHS:
            return self._hexadecimal(start, _WIDTHS[char])
        if char.isascii() and not char.isalnum() and char not in "<>":
            return ord(char)
        raise BadPattern("unrecognized escape sequence", start + 1)

    def _hexadecimal(self, start: int, width: int) -> int:
        braced = self.text.startswith("{", self.place)
        end = self.text.find("}", self.place) if braced else self.place + width
        digits = self.text[self.place + braced : end]
        if not re.fullmatch(r"[0-9A-Fa-f]{1,8}", digits) or (not braced and len(digits) < width):
            raise BadPattern("invalid hexadecimal digit", start + 1)
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise BadPattern("hexadecimal literal is not a Unicode scalar value", start + 1)
        self.place = end + braced
        return code

    def _property(self, start: int) -> Part:
        """What Python's own engine does not know."""
        self.place += 1
        end = self.text.find("}", self.place) if self.text.startswith("{", self.place) else self.place
        if end < 0 or end >= len(self.text):
            raise BadPattern("incomplete escape sequence", start + 1)
        self.place = end + 1
        self.only_ripgrep = self.text[start : self.place]
        return Any()

    def _set(self, start: int) -> Part:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        perl = ""
        first = True
        while True:
            if self.place >= len(self.text):
                raise BadPattern("unclosed character class", start + 1)
            here = self.place
            if self.text[here] == "]" and not first:
                self.place += 1
                break
            first = False
            if self.text.startswith(("&&", "~~"), here) or (self.text.startswith("--", here) and ranges):
                self.only_ripgrep = self.text[here : here + 2]
            if self.text[here] == "[":
                ranges += self._posix(here)
                continue
            if self.text[here] == "\\" and (kind := self.text[here + 1 : here + 2]) and kind in _PERL + "pP":
                self.place += 2
                if kind in _PERL:
                    perl += kind
                else:
                    self.place -= 1
                    self._property(here)
                continue
            ranges.append(self._range(here))
        self.has_return |= any(low == RETURN or high == RETURN for low, high in ranges)
        if not negated and not perl and all(low == high == 10 for low, high in ranges) and not self.only_ripgrep:
            raise _ends_line(start)
        return Set(tuple(ranges), perl, negated, self.folds)

    def _range(self, start: int) -> tuple[int, int]:
        low = self._member()
        rest = self.text[self.place : self.place + 2]
        if rest[:1] != "-" or rest in ("-]", "-", "--"):
            return low, low
        self.place += 1
        high = self._member()
        if high < low:
            raise BadPattern("invalid character class range, the start must be <= the end", start + 1)
        return low, high

    def _member(self) -> int:
        start = self.place
        if start >= len(self.text):
            raise BadPattern("unclosed character class", start)
        self.place += 1
        if self.text[start] != "\\":
            return ord(self.text[start])
        if self.place >= len(self.text):
            raise BadPattern("incomplete escape sequence", start + 1)
        if self.text[self.place] in "bBAz" + _PERL:
            raise BadPattern("invalid escape sequence found in character class", start + 1)
        return self._code(start)

    def _posix(self, start: int) -> list[tuple[int, int]]:
        named = re.compile(r"\[:(\^?)(\w+):\]").match(self.text, start)
        if named is None or named[2] not in POSIX:
            return self._nested(start)
        self.place = named.end()
        if not named[1]:
            return POSIX[named[2]]
        self.only_ripgrep = named[0]
        return []

    def _nested(self, start: int) -> list[tuple[int, int]]:
        """A class inside a class: what it contains is contained."""
        self.place += 1
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadPattern(f"more than {DEEPEST} groups inside each other", start + 1)
        inner = self._set(start)
        self.depth -= 1
        assert isinstance(inner, Set)
        if inner.negated or inner.perl:
            self.only_ripgrep = self.text[start : self.place]
        return list(inner.ranges)

    def _skipped(self) -> bool:
        """With `(?x)`, blanks and comments mean nothing."""
        found = re.compile(r"\s+|#[^\n]*").match(self.text, self.place)
        if found:
            self.place = found.end()
        return found is not None

    def _take(self, char: str) -> bool:
        if self.verbose:
            while self._skipped():
                pass
        found = self.text.startswith(char, self.place)
        self.place += found
        return found


def _ends_line(place: int) -> BadPattern:
    return BadPattern("a line break, which cannot be matched because the search goes line by line,", place + 1)
