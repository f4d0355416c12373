"""Covers the value of a secret in the answers of servers, in the ways in which servers spell texts."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

_LEADS = rb"[%=\\&]"  # the first byte of an escape: in URLs, mails, JSON, HTML
_HEX = rb"[0-9a-fA-F]"
_OPEN_ESCAPE = (  # the end of a piece, after the first byte of an escape
    rb"(?:%b?|\\{0,3}(?:u\{?%b{0,8}|x%b?)?|#[xX]?%b{0,12}|[a-zA-Z]{0,24})\Z" % ((_HEX,) * 4)
)
_CUT_ESCAPE = re.compile(_LEADS + _OPEN_ESCAPE)
_LEAST_CODED = 8  # characters in base64 below which ordinary text would be covered
_FOUND_BY, _CHECKED_BY = 4, 16  # characters at the beginning of a text: of all texts together, and of each
_LONGEST_LETTER = 32  # bytes; at the end of a piece, less may be the beginning of one
_ZEROS = rb"\0{0,3}"


class _Letter(NamedTuple):
    """The ways to spell one character. An escape is split: its first byte is one of `_LEADS`."""

    plain: tuple[bytes, ...]
    escaped: re.Pattern[bytes]
    after_lead: tuple[bytes, ...]
    second: frozenset[bytes]  # bytes of escapes

    @property
    def pattern(self) -> bytes:
        return b"(?:%b|%b)" % (b"|".join(map(re.escape, self.plain)), self.escaped.pattern)


class _Text(NamedTuple):
    """A text to look for, and what is shown instead, as often as needed."""

    letters: tuple[_Letter, ...]
    beginning: re.Pattern[bytes]
    cover: bytes


class ValueCover:
    """Puts placeholders in the place of values, into pieces of a text, also where a value stands across pieces.

    Lengths stay as they are, since answers name them. A value is found as it is, in base64 and in hexadecimal; its
    letters in upper or lower case, each character also as an escape, and with zeros between, as wide characters have.
    """

    def __init__(self, values: Iterable[tuple[str, str]], headers: Iterable[tuple[str, str]] = ()) -> None:
        """`values`: each with its placeholder. `headers`: texts that hold one of them, such as a user and a password in
        base64.
        """
        texts = [text for value, placeholder in values for text in _spell(value, placeholder)]
        texts += [_read_text(one, placeholder) for one, placeholder in headers]
        self._texts = tuple(texts)
        self._beginnings = _find_beginning(tuple(one.letters[:_FOUND_BY] for one in texts)) if texts else ()
        self._kept = b""

    def change_whole(self, text: bytes) -> bytes:
        changed, _ = self._change(text, last=True)
        return changed

    def change(self, piece: bytes, *, last: bool = False) -> bytes:
        """Returns what may be passed on; keeps the end, which may be the beginning of a value."""
        changed, cut = self._change(self._kept + piece, last=last)
        self._kept = changed[cut:]
        return changed[:cut]

    def _change(self, text: bytes, *, last: bool) -> tuple[bytes, int]:
        """Returns the text with covers, and where a value begins that may go on in the next piece."""
        parts, done, cut = list[bytes](), 0, len(text)
        for at in self._find_candidates(text, last=last):
            if at < done:
                continue
            ends = [_find_end(one, text, at, last=last) for one in self._texts]
            end = max(ends)
            cover = self._texts[ends.index(end)].cover
            if end > at:
                parts += (text[done:at], (cover * ((end - at) // len(cover) + 1))[: end - at])
                done = end
            elif end == at:
                cut = min(cut, at)
        return b"".join((*parts, text[done:])), max(cut, done)

    def _find_candidates(self, text: bytes, *, last: bool) -> list[int]:
        """Returns where a value may begin, and where an escape may be cut."""
        found = {at for one in self._beginnings for at in _find_places(one, text)}
        if self._texts and not last:
            end = max(0, len(text) - _LONGEST_LETTER)
            found.update(end + at for at in _find_places(_CUT_ESCAPE, text[end:]))
        return sorted(found)


def _find_places(pattern: re.Pattern[bytes], text: bytes) -> Iterator[int]:
    """Yields all places where a pattern begins, also inside what it found."""
    at = 0
    while found := pattern.search(text, at):
        yield found.start()
        at = found.start() + 1


def _find_end(searched: _Text, text: bytes, at: int, *, last: bool) -> int:
    """Returns where a text that begins here ends; `at` if only the next piece can say that, -1 if it is not here."""
    is_near = not last and len(text) - at <= _CHECKED_BY * _LONGEST_LETTER
    if not is_near and not searched.beginning.match(text, at):
        return -1
    places, is_open = {at}, False
    for letter in searched.letters:
        following = set[int]()
        for place in places:
            zeros = text[place : place + 3] if place > at else b""
            place += len(zeros) - len(zeros.lstrip(b"\0"))
            rest = text[place : place + _LONGEST_LETTER]
            is_open |= not rest or any(one.startswith(rest) for one in letter.plain)
            following.update(place + len(one) for one in letter.plain if rest.startswith(one))
            if escaped := letter.escaped.match(text, place):
                following.add(escaped.end())
            elif len(rest) < _LONGEST_LETTER and _CUT_ESCAPE.match(rest):
                is_open = True
        if not following:
            return at if is_open and not last else -1
        places = following
    return max(places)


@lru_cache(maxsize=64)
def _find_beginning(heads: tuple[tuple[_Letter, ...], ...]) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Returns what finds the places where texts may begin, and few others: by some plain characters, and by an escape.
    Both begin with a class of bytes, which makes searches fast.
    """
    first, *others = zip(*heads, strict=False)
    ways = b""
    for letters in reversed(others):
        begin = _any_of(letters)
        wide = rb"\0\0{0,2}[%b%%=\\&]" % begin[1:-1]
        escape = rb"%b(?:%b|%b)" % (_LEADS, _escapes_of(letters), _OPEN_ESCAPE)
        ways = rb"(?:%b%b|%b|%b|\Z)" % (begin, ways, escape, wide)
    return re.compile(_any_of(first) + ways), re.compile(_LEADS + _escapes_of(first))


def _escapes_of(letters: Collection[_Letter]) -> bytes:
    """Returns what may follow the first byte of an escape of these characters."""
    ways = b"|".join(dict.fromkeys(way for one in letters for way in one.after_lead))
    return b"(?=%b)(?:%b)" % (_class(one for letter in letters for one in letter.second), ways)


def _any_of(letters: Iterable[_Letter]) -> bytes:
    """Returns the class of the bytes with which these characters begin."""
    return _class(one[:1] for letter in letters for one in letter.plain)


def _class(letters: Iterable[bytes]) -> bytes:
    return b"[%b]" % b"".join(sorted(map(re.escape, {*letters})))


@lru_cache(maxsize=64)
def _spell(value: str, placeholder: str) -> tuple[_Text, ...]:
    """Returns the texts that stand for a value."""
    plain = value.encode()
    texts = dict.fromkeys((value, plain.hex()))
    for offset in range(3):  # base64 spells a text in three ways, by its place
        coded = base64.b64encode(b"\0" * offset + plain).decode()
        texts[coded[4 if offset else 0 : len(coded) // 4 * 4 - 4]] = None
    long_enough = [one for one in texts if one and len(one) >= min(_LEAST_CODED, len(value))]
    return tuple(_read_text(one, placeholder) for one in long_enough)


@lru_cache(maxsize=256)
def _read_text(text: str, placeholder: str) -> _Text:
    letters = tuple(map(_read_letter, text))
    beginning = re.compile(_ZEROS.join(one.pattern for one in letters[:_CHECKED_BY]))
    return _Text(letters, beginning, placeholder.encode())


@lru_cache(maxsize=1_024)
def _read_letter(letter: str) -> _Letter:
    written, code = letter.encode(), ord(letter)
    wide = letter.encode("utf-16-be").hex()
    plain = {written, letter.lower().encode(), letter.upper().encode()}
    plain |= {also for one, also in ((" ", b"+"), ("+", b"-"), ("/", b"_")) if one == letter}  # in URLs
    numbers = [_hex(f"{one:02x}") for one in written]
    by_json = [rb"\\{1,4}".join(b"u" + _hex(wide[at : at + 4]) for at in range(0, len(wide), 4))]
    by_json += [rb"u\{0{0,6}%b\}" % _hex(f"{code:x}"), b"x" + _hex(f"{code:02x}")]
    by_json += [] if letter.isalnum() else [re.escape(written)]
    by_html = [b"#0{0,6}%d;?" % code, b"#[xX]0{0,6}%b;?" % _hex(f"{code:x}")]
    by_html += [b"%b;?" % one for one in _entities().get(letter, ())]
    after = {
        b"%": b"%".join(numbers),
        b"=": b"=".join(numbers),
        rb"\\": rb"\\{0,3}(?:%b)" % b"|".join(by_json),
        b"&": b"(?:%b)" % b"|".join(by_html),
    }
    escaped = re.compile(b"|".join(lead + way for lead, way in after.items()))
    second = {written[:1], b"\\", b"u", b"x", b"#", *(one[:1] for one in _entities().get(letter, ()))}
    first_digit = f"{written[0]:02x}"[0]
    second |= {first_digit.encode(), first_digit.upper().encode()}
    return _Letter(tuple(sorted(plain)), escaped, tuple(after.values()), frozenset(second))


def _hex(digits: str) -> bytes:
    return "".join(f"[{one}{one.upper()}]" if one.isalpha() else one for one in digits).encode()


@cache
def _entities() -> dict[str, list[bytes]]:
    """Returns the names that HTML has for signs."""
    from html.entities import html5  # large

    found: dict[str, list[bytes]] = {}
    for name, text in html5.items():
        if text.isascii() and len(text) == 1:
            found.setdefault(text, []).append(name.rstrip(";").encode())
    return {text: list(dict.fromkeys(names)) for text, names in found.items()}
