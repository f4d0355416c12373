"""Brings text into one spelling, so that a disguised copy is still found."""

from __future__ import annotations

import binascii
import re
import unicodedata
from base64 import b32decode, b64decode
from collections.abc import Callable, Iterator
from functools import cache
from html import unescape
from re import Match
from urllib.parse import unquote

LONGEST_DECODED = 400_000  # characters of a text in which encoded parts are looked for
MOST_ROUNDS = 6  # of decoding: a text may be encoded several times
SHORTEST_ENCODED = 6  # letters of a base64 word: four bytes

# From Unicode's confusables.txt: characters, by number, that look like the first one of the line.
_LOOKALIKES = r"""
" 201c-201e
' 2bc 2018-201a
- 2d7 2010-2015 2043 2212 2796 2cba
. b7 6d4 6f0 2022 2219 22c5 3002 30fb a4f8 a60e 1d16d
/ 1735 2041 2044 2215 2571 27cb 29f8 2cc6 3033 30ce 31d3 4e3f 1d23a
2 1a7 3e8 14bf a644 a6ef a75a
3 1b7 21c 417 4e0 2ccc a76a a7ab 118ca 16f3b 1d206
4 13ce 118af
5 1bc 118bb
6 431 13ee 2cd2 118d5
7 104d2 118c6 1d212
8 222-223 9ea a6a b03 1031a
9 9ed a67 b68 d6d 2cca a76e 118ac 118cc 118d6
: 2d0 2f8 589 903 a83 16ec 1803 1809 205a 2236 a4fd a789
a 251 391 3b1 410 430 13aa 15c5 237a a4ee 102a0 16f40
b 184 392 412 42c 432 13cf 13f4 1472 15af 15f7 a4d0 a7b4 10282 102a1 10301
c 421 441 13df 2ca4-2ca5 a4da abaf 102a2 10302 10415 1043d 1051c 118e9 118f2 1f74c
d 501 13a0 13e7 146f 15de 15ea a4d2-a4d3
e 395 3b5 415 435 4bd 13ac 212e 22ff 2d39 a4f0 ab32 10286 118a6 118ae
f 3dc 584 15b4 1e9d a4dd ab35 10287 102a5 10525 118a2 118c2 1d213
g 18d 261 50c 581 13c0 13f3 a4d6
h 397 41d 43d 4bb 570 13bb 13c2 157c 2c8e a4e7 102cf
i 131 269 3b9 456 4cf 13a5 2373 a647 ab75 118c3
j 37f 3f3 408 458 13ab 148d a4d9
k 39a 3ba 41a 43a 13e6 16d5 2c94 a4d7 10518
l 196 1c0 399 406 4c0 6f1 13de 14aa 16c1 2223 23fd 2c92 2cd0 2d4f a4e1 a4f2 1028a 10309 10320 1041b 10526 118a3
l 118b2 16f16 16f28 1d22a
m 39c 3fa 41c 43c 13b7 15f0 16d6 2c98 a4df 102b0 10311
n 39d 3bd 578 57c 2c9a a4e0 10513
o 39f 3bf 3c3 41e 43e 555 585 6f5 966 9e6 a66 ae6 b20 b66 be6 c02 c66 c82 ce6 d02 d20 d66 d82 e50 ed0 101d 1040
o 10ff 12d0 1d11 2c9e-2c9f 2d54 3007 a4f3 ab3d 10292 102ab 10404 1042c 104c2 104ea 10516 114d0 118b5 118c8 118d7
o 118e0
p 3a1 3c1 420 440 13e2 146d 2374 2ca2-2ca3 a4d1 10295
q 51b 563 566 2d55
r 1a6 433 13a1 13d2 1587 1d26 2c85 a4e3 ab47-ab48 ab81 104b4 16f35 1d216
s 1bd 405 455 54f 13d5 13da a4e2 abaa 10296 10420 10448 118c1 16f3a
t 3a4 3c4 422 442 13a2 22a4 27d9 2ca6 a4d4 10297 102b1 10315 118bc 16f0a 1f768
u 3c5 54d 57d 1200 144c 222a 22c3 a4f4 a79f 104ce 104f6 118b8 118d8 16f42
v 474-475 6f7 13d9 142f 2228 22c1 2d38 a4e6 a6df aba9 1051d 11706 118a0 118c0 16f08 1d20d
w 26f 461 51c-51d 561 13b3 13d4 a4ea ab83 1170a 1170e-1170f 118e6 118ef
x d7 3a7 3c7 425 445 1541 157d 166d-166e 16b7 2573 292b-292c 2a2f 2cac 2d5d a4eb a7b3 10290 102b4 10317 10322
x 10527 118ec
y 263 3a5 3b3 423 443 4ae-4af 10e7 13a9 13bd 2ca8 a4ec 102b2 118a4 118dc 16f43
z 396 13c3 a4dc ab93 102f5 118a9 118c4 118e5
"""
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"  # letters and signs that show nothing
_SMALL = re.compile(r"LATIN (?:SMALL |CAPITAL )?LETTER (?:SMALL CAPITAL )?([A-Z])(?: WITH .*)?")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]+")
_ELEMENT = re.compile(r"<!--.*?-->|</?[a-z][a-z0-9:-]*(?:\s[^<>]*)?/?>")
_MARKUP = re.compile(r"[\s*_~`|<>()\[\]{}\"'\\^]+")
_NO_WORD = re.compile(r"[\W_]+")
_SPOKEN = re.compile(
    r"\s*[\[({<]\s*(?P<closed>at|a|dot|dash|slash)\s*[\])}>]\s*|[\s_]+(?P<spaced>at|dot|dash|slash)[\s_]+"
)
_SIGNS = {"at": "@", "a": "@", "dot": ".", "dash": "-", "slash": "/"}
_BASE64 = re.compile(rf"[A-Za-z0-9+/_-]{{{SHORTEST_ENCODED},}}(?:\r?\n[ \t]*[A-Za-z0-9+/_-]{{4,}})*={{0,2}}")
_JOINED = re.compile(r"([/_+-]+)")
_SPACED64 = re.compile(r"(?<![\w+/])(?:[A-Za-z0-9+/]{4} ){2,}[A-Za-z0-9+/]{2,4}={0,2}(?![\w+/])")
_BASE32 = re.compile(r"\b(?:[A-Z2-7]{8,}|[a-z2-7]{16,})={0,6}")
_BITS = re.compile(r"(?<![01])[01]{8}(?:[\s,;-]{0,2}[01]{8}){3,}(?![01])")
_NUMBER = re.compile(r"[0-9]+")
_BYTE = r"(?:0x|\\x)?[0-9a-fA-F]{2}"
_HEX = re.compile(  # quotes stand only around single bytes: two quoted values beside each other stay two
    rf"(?<![0-9a-fA-F]){_BYTE}(?:[\s:,;-]{{0,2}}{_BYTE}){{3,}}(?![0-9a-fA-F])"
    rf"|(?<![0-9a-fA-F]){_BYTE}(?:[\s:,;'\"-]{{1,4}}{_BYTE}(?![0-9a-fA-F])){{3,}}"
)
_CODES = re.compile(r"(?<!\d)\d{2,3}(?:\D{1,8}\d{2,3}){4,}(?!\d)")
_ESCAPES = re.compile(
    r"\\u(?=\{)\{([0-9a-fA-F]{1,6})\}|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\x([0-9a-fA-F]{2})|U\+([0-9a-fA-F]{4,6})\s?|=([0-9A-F]{2})|\\([0-7]{3})"
)
_SHORT_ESCAPES = re.compile(r"(?:\\[0-7]{2,3}){4,}")  # octal, of two digits or three
_STYLE_ESCAPES = re.compile(r"\\([0-9a-fA-F]{2,6})[ \t]?")  # of style sheets
_SMALL_PRINTABLE = re.compile(r"=([0-9a-fA-F]{2})")
_OCTALS = re.compile(r"(?<!\w)0o?[0-7]{2,3}(?:[\s,;]{1,2}0o?[0-7]{2,3}){4,}(?!\w)")
_BINARIES = re.compile(r"(?<!\w)(?:0b)?[01]{7,8}(?:[\s,;-]{1,2}(?:0b)?[01]{7,8}){3,}(?!\w)")
_MARKS = re.compile(  # inside a word
    r"(?<=[\w@.])(?:\[([^\[\]\n]*)\]\([^()\s]*\)|\[/?[a-z]{1,8}(?:=[^\[\]\n]*)?\]|\[\d{1,3}\])(?=[\w@]|\.\w)"
)
_TAGS = re.compile(r"[\U000e0020-\U000e007e]+")
_SELECTORS = re.compile(r"[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}")


def fold(text: str) -> str:
    """Returns the text in lower case, with single spaces and Latin letters, without accents and what is invisible."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        text = text.translate(_Letters()).casefold().translate(_Letters())
    elif _CONTROL.search(text):
        text = _CONTROL.sub("", text)
    return " ".join(text.lower().split())


def squeeze(folded: str) -> str:
    """Returns a folded text without blanks and markup; words such as `(at)` and `dot` are the signs they stand for."""
    if "at" in folded or "dot" in folded or "(a)" in folded:
        folded = _SPOKEN.sub(lambda match: _SIGNS[match["closed"] or match["spaced"]], folded)
    if "<" in folded:
        folded = _ELEMENT.sub("", folded)
    return _MARKUP.sub("", folded)


def keep_letters(folded: str) -> str:
    """Returns the letters and digits of a folded text."""
    return _NO_WORD.sub("", folded)


def decode_parts(text: str) -> Iterator[str]:
    """Yields the text with its encoded parts decoded, as often as that changes something.

    Encodings are entities, escapes, percent-encoding, quoted-printable, base64, base32, hexadecimal and decimal codes,
    and the invisible characters that stand for letters.
    """
    text = text[:LONGEST_DECODED]
    seen = {text}
    yield from _decode_often(text, seen)
    for decode in _OTHER_READINGS:  # these may also be something else, so nothing is replaced for the others
        plain = decode(text)
        if plain not in seen:
            seen.add(plain)
            yield plain
            yield from _decode_often(plain, seen)


def _decode_often(text: str, seen: set[str]) -> Iterator[str]:
    for _ in range(MOST_ROUNDS):
        before = text
        for decode in _DECODERS:
            plain = decode(text)
            if plain != text:
                text = plain[:LONGEST_DECODED]
                if text not in seen:
                    seen.add(text)
                    yield text
        if text == before:
            return


class _Letters(dict[int, str | None]):
    """A table for `str.translate`: what a character looks like; None for what shows nothing."""

    def __missing__(self, code: int) -> str | None:
        found = self[code] = _letter(code)
        return found


@cache
def _letter(code: int) -> str | None:
    seen = _lookalikes().get(code)
    if seen is not None:
        return seen
    one = chr(code)
    if one in "\n\t\r":
        return " "
    if code < 128:
        return None if unicodedata.category(one) == "Cc" else one
    if one in _BLANKS or unicodedata.category(one) in ("Cf", "Mn", "Me", "Cc", "Co"):
        return None
    if 0x1F150 <= code <= 0x1F189:  # letters in dark circles and squares
        return chr(ord("a") + (code - 0x1F150) % 32) if (code - 0x1F150) % 32 < 26 else one
    if 0x1F1E6 <= code <= 0x1F1FF:  # of which flags are made
        return chr(ord("a") + code - 0x1F1E6)
    if (digit := unicodedata.decimal(one, None)) is not None:
        return str(digit)
    small = _SMALL.fullmatch(unicodedata.name(one, ""))
    return small[1].lower() if small else one


@cache
def _lookalikes() -> dict[int, str]:
    table: dict[int, str] = {}
    for line in _LOOKALIKES.split("\n"):
        plain, *codes = line.split() or [""]
        for code in codes:
            first, _, last = code.partition("-")
            table |= dict.fromkeys(range(int(first, 16), int(last or first, 16) + 1), plain)
    return table


def _unescape_entities(text: str) -> str:
    return unescape(text) if "&" in text else text


def _unquote(text: str) -> str:
    return unquote(text, errors="ignore") if "%" in text else text


def _unescape(text: str) -> str:
    if "\\" not in text and "=" not in text and "U+" not in text:
        return text
    return _ESCAPES.sub(_read_escape, text)


def _read_escape(match: Match[str]) -> str:
    digits = next(one for one in match.groups() if one is not None)
    code = int(digits, 8 if match[7] is not None else 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else match[0]


def _read_tags(text: str) -> str:
    if text.isascii():
        return text
    text = _TAGS.sub(lambda match: "".join(chr(ord(one) - 0xE0000) for one in match[0]), text)
    return _SELECTORS.sub(_read_selectors, text)


def _read_selectors(match: Match[str]) -> str:
    codes = (ord(one) for one in match[0])
    plain = _keep_readable(bytes(code - 0xFE00 if code < 0xFE10 else code - 0xE0100 + 16 for code in codes))
    return plain or match[0]


def _decode_words(text: str) -> str:
    return _BASE64.sub(_read_base64, text)


def _read_base64(match: Match[str]) -> str:
    word = match[0]
    joined = "".join(word.split())
    if joined.islower() or (joined.isalpha() and joined.istitle()) or not joined.strip("=_-"):
        return word  # a plain word
    plain = _decode_base64(joined)
    if plain:
        return plain
    if joined == word:  # perhaps words that are joined by such signs, as in a path
        parts = _JOINED.split(word)
        return "".join((len(part) >= SHORTEST_ENCODED and _decode_base64(part)) or part for part in parts)
    return "\n".join(_decode_base64(part) or part for part in word.split())  # lines that do not belong together


def _decode_spaced(text: str) -> str:
    return _SPACED64.sub(lambda match: _decode_base64(match[0].replace(" ", "")) or match[0], text)


def _decode_base64(word: str) -> str:
    padded = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return _keep_readable(b64decode(padded + "=" * (-len(padded) % 4), validate=True))
    except (binascii.Error, ValueError):
        return ""


def _decode_base32(text: str) -> str:
    def read(match: Match[str]) -> str:
        word = match[0].rstrip("=").upper()
        try:
            return _keep_readable(b32decode(word + "=" * (-len(word) % 8))) or match[0]
        except (binascii.Error, ValueError):
            return match[0]

    return _BASE32.sub(read, text)


def _decode_hex(text: str) -> str:
    def read(part: str) -> str:
        digits = "".join(one for one in part.replace("0x", "").replace("\\x", "") if one.isalnum())
        return _keep_readable(bytes.fromhex(digits)) if len(digits) % 2 == 0 else ""

    def read_parts(match: Match[str]) -> str:
        parts = match[0].split("  ")  # the place in front of the bytes
        return read(match[0]) or (len(parts) > 1 and "".join(read(part) for part in parts)) or match[0]

    return _HEX.sub(read_parts, text)


def _decode_bits(text: str) -> str:
    def read(match: Match[str]) -> str:
        bits = "".join(one for one in match[0] if one in "01")
        return _keep_readable(int(bits, 2).to_bytes(len(bits) // 8, "big")) or match[0]

    return _BITS.sub(read, text)


def _decode_codes(text: str) -> str:
    def read(match: Match[str]) -> str:
        codes = [int(one) for one in _NUMBER.findall(match[0])]
        return "".join(map(chr, codes)) if all(32 <= one < 127 for one in codes) else match[0]

    return _CODES.sub(read, text)


def _decode_numbers(text: str) -> str:
    """Reads codes of seven bits or with `0b`, and octal ones."""
    if "0" not in text:
        return text
    text = _BINARIES.sub(lambda match: _read_numbers(match[0], 2), text)
    return _OCTALS.sub(lambda match: _read_numbers(match[0], 8), text)


def _read_numbers(text: str, base: int) -> str:
    codes = [int(one, base) for one in _NUMBER.findall(text.replace("0b", "").replace("0o", ""))]
    return "".join(map(chr, codes)) if all(32 <= one < 127 for one in codes) else text


def _read_short_escapes(text: str) -> str:
    if "\\" not in text:
        return text
    return _SHORT_ESCAPES.sub(lambda match: "".join(chr(int(one, 8)) for one in match[0].split("\\")[1:]), text)


def _read_style_escapes(text: str) -> str:
    return _STYLE_ESCAPES.sub(_read_code, text) if "\\" in text else text


def _read_small_printable(text: str) -> str:
    return _SMALL_PRINTABLE.sub(_read_code, text) if "=2e" in text else text


def _read_code(match: Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if 32 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else match[0]


def _remove_marks(text: str) -> str:
    return _MARKS.sub(lambda match: match[1] or "", text) if "[" in text and "]" in text else text


_OTHER_READINGS: tuple[Callable[[str], str], ...] = (
    _decode_numbers,
    _read_short_escapes,
    _read_style_escapes,
    _read_small_printable,
    _remove_marks,
)
_DECODERS: tuple[Callable[[str], str], ...] = (
    _read_tags,
    _unescape_entities,
    _unquote,
    _unescape,
    _decode_bits,
    _decode_hex,
    _decode_codes,
    _decode_spaced,
    _decode_words,
    _decode_base32,
)


def _keep_readable(data: bytes) -> str:
    try:
        plain = data.decode("utf-16-le" if len(data) > 3 and not any(data[1::2]) else "utf-8")
    except UnicodeDecodeError:
        return ""
    return plain if plain.replace("\n", "").isprintable() and plain.strip() else ""
