"""Undoes disguises of a text: quotes, escapes, odd spaces and look-alike letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from forge.core.plain_values import sendable

_LOOK_ALIKES = {  # letters of other alphabets, and signs, by the ASCII character that they look like
    "a": "\u0430\u0251\u03b1",
    "b": "\u042c\u0185",
    "c": "\u0441\u03f2\u217d",
    "d": "\u0501\u0257",
    "e": "\u0435\u04bd\u025b\u212e",
    "f": "\ua799",
    "g": "\u0261\u0581",
    "h": "\u04bb\u0570",
    "i": "\u0456\u03b9\u0131\u0269",
    "j": "\u0458\u03f3",
    "k": "\u03ba\u043a\u1d0b",
    "l": "\u04cf\u05df",
    "m": "\u043c\u1d0d",
    "n": "\u0578\u043f\u057c",
    "o": "\u043e\u03bf\u0585\u03c3",
    "p": "\u0440\u03c1",
    "q": "\u051b\u0563",
    "r": "\u0433\u1d26\uab47",
    "s": "\u0455\ua731",
    "t": "\u0442\u03c4\u1d1b",
    "u": "\u03c5\u057d\u028b",
    "v": "\u0475\u03bd\u1d20",
    "w": "\u0461\u051d\u026f\u0561",
    "x": "\u0445\u03c7",
    "y": "\u0443\u04af\u03b3",
    "z": "\u1d22\u0290",
    "A": "\u0410\u0391",
    "B": "\u0412\u0392",
    "C": "\u0421\u03f9",
    "D": "\u13a0",
    "E": "\u0415\u0395",
    "F": "\u03dc",
    "G": "\u050c",
    "H": "\u041d\u0397",
    "I": "\u0406\u0399\u04c0",
    "J": "\u0408",
    "K": "\u041a\u039a",
    "L": "\u13de",
    "M": "\u041c\u039c",
    "N": "\u039d",
    "O": "\u041e\u039f\u0555",
    "P": "\u0420\u03a1",
    "R": "\u13a1",
    "S": "\u0405\u054f",
    "T": "\u0422\u03a4",
    "U": "\u054d",
    "V": "\u0474",
    "W": "\u051c",
    "X": "\u0425\u03a7",
    "Y": "\u0423\u03a5\u04ae",
    "Z": "\u0396",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\ufe58",
    "'": "\u2018\u2019\u02bc\u2032",
    '"': "\u201c\u201d\u2033",
    "/": "\u2044\u2215\u29f8",
    "\\": "\u2216\u29f5",
    "*": "\u2217\u204e",
    ":": "\u2236\u02d0",
    ".": "\u2024",
    "~": "\u223c\u02dc",
    "|": "\u2223\u01c0",
    "=": "\ua78a",
}
_TABLE = {ord(look_alike): plain for plain, look_alikes in _LOOK_ALIKES.items() for look_alike in look_alikes}
_UNSEEN = frozenset({"Mn", "Me", "Cf"})
_UNSEEN_LETTERS = frozenset(map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)))
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrtbf\"\\/]))")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_QUOTES = str.maketrans("", "", "\"'`\\")
_SEPARATOR = re.compile(r"\$\{IFS[^}]*\}|\$IFS(?!\w)")
_NOTHING = re.compile(r"\$[1-9@*]|\$\{[1-9@*]\}")  # a line's positional parameters: usually empty


def spellings(text: str, *, command: bool = False) -> Iterator[str]:
    """Yields the text, then every other reading of it, each once. `command`: a shell would read it."""
    seen: set[str] = set()
    for spelling in _spellings(sendable(text), command):
        if spelling not in seen:
            seen.add(spelling)
            yield spelling


def _spellings(text: str, command: bool) -> Iterator[str]:
    yield text
    plain = fold_look_alikes(text)
    yield plain
    if command:
        plain = _NOTHING.sub("", _SEPARATOR.sub(" ", plain.replace("\\\n", "")))
    yield collapse_spaces(plain)
    if "\\" in plain:
        decoded = fold_look_alikes(decode_escapes(decode_escapes(plain)))
        yield decoded
        yield collapse_spaces(decoded.translate(_QUOTES))
    bare = plain.translate(_QUOTES)
    if len(bare) != len(plain):
        yield collapse_spaces(bare)


def fold_look_alikes(text: str) -> str:
    """Removes invisible characters, and replaces every look-alike by its ASCII character."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text.translate(_TABLE))
    seen = "".join(
        char
        for char in apart
        if char.isascii() or (unicodedata.category(char) not in _UNSEEN and char not in _UNSEEN_LETTERS)
    )
    return unicodedata.normalize("NFKC", seen).translate(_TABLE)


def collapse_spaces(text: str) -> str:
    """Replaces runs of white space by single spaces."""
    return " ".join(text.split())


def decode_escapes(text: str) -> str:
    """Decodes the escapes of JSON and similar formats."""
    decoded = _ESCAPE.sub(_decode_escape, text)
    if decoded.isascii():
        return decoded
    return sendable(decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))  # joins surrogate pairs


def _decode_escape(found: re.Match[str]) -> str:
    number = found[1] or found[2] or found[3]
    if number is None:
        return _LETTERS.get(found[4], found[4])
    code = int(number, 16)
    return chr(code) if code <= 0x10FFFF else found[0]
