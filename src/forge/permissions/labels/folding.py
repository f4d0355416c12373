"""Brings text into one spelling, so that a disguised copy is still found."""

from __future__ import annotations

import binascii
import unicodedata
from base64 import b64decode
from collections.abc import Iterator
from urllib.parse import unquote

from forge.core.lazy import lazy_pattern

LONGEST_DECODED = 200_000  # characters of a text in which encoded parts are looked for
MOST_DECODED = 50  # encoded parts of one text

_HEX = lazy_pattern(r"(?:[0-9a-fA-F]{2})+")
_ENCODED = lazy_pattern(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_CYRILLIC = (
    "\u0430\u0435\u0456\u0458\u043e\u0440\u0441\u0443\u0445\u0455"
    "\u0501\u04bb\u051b\u051d\u043a\u043c\u0442\u0432\u043d\u0433"
)
_GREEK = "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7"
_LOOKALIKES = {
    **dict(zip(_CYRILLIC, "aeijopcyxsdhqwkmtbhr", strict=True)),
    **dict(zip(_GREEK, "aeiknoptux", strict=True)),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **dict.fromkeys("\u2018\u2019\u201a", "'"),
    **dict.fromkeys("\u201c\u201d\u201e", '"'),
}
_TABLE: dict[int, str | None] = {ord(seen): plain for seen, plain in _LOOKALIKES.items()}


def fold(text: str) -> str:
    """Returns the text in lower case, without invisible characters, with single spaces and Latin lookalikes."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).casefold().translate(_table_for(text))
    return " ".join(text.lower().split())


def decode_parts(text: str) -> Iterator[str]:
    """Yields what percent-encoded, base64 and hexadecimal parts of the text say."""
    if "%" in text and (plain := unquote(text)) != text:
        yield plain
    for number, match in enumerate(_ENCODED.finditer(text[:LONGEST_DECODED])):
        if number >= MOST_DECODED:
            return
        for decode in (_decode_base64, _decode_hex):
            if plain := decode(match.group()):
                yield plain


def _decode_base64(part: str) -> str:
    try:
        padded = part.rstrip("=").replace("-", "+").replace("_", "/")
        return _keep_readable(b64decode(padded + "=" * (-len(padded) % 4), validate=True))
    except (binascii.Error, ValueError):
        return ""


def _decode_hex(part: str) -> str:
    return _keep_readable(bytes.fromhex(part)) if _HEX.fullmatch(part) else ""


def _keep_readable(data: bytes) -> str:
    try:
        plain = data.decode()
    except UnicodeDecodeError:
        return ""
    return plain if plain.isprintable() or "\n" in plain else ""


def _table_for(text: str) -> dict[int, str | None]:
    """Returns the table of lookalikes, with the invisible characters that this text has."""
    hidden = {
        ord(one): None for one in set(text) if unicodedata.category(one) in ("Cf", "Mn", "Cc") and one not in "\n\t\r"
    }
    return {**_TABLE, **hidden} if hidden else _TABLE
