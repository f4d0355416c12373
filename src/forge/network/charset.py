"""Decodes the bytes of a page in their real charset, and notes every guess and every lost character."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

_MARKS = (  # longest first: one of UTF-32 begins like one of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_KNOWN_CODECS = frozenset(  # Python's names; its other codecs are no charsets (zip, rot13) or no longer safe (UTF-7)
    "ascii utf-8 utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be iso8859-1 iso8859-2 iso8859-3 iso8859-4 "
    "iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 "
    "cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp437 cp850 cp852 cp866 cp874 koi8-r koi8-u "
    "mac-roman mac-cyrillic tis-620 gb2312 gbk gb18030 big5 big5hkscs shift_jis cp932 euc_jp euc_kr cp949 "
    "iso2022_jp".split()
)
_WESTERN = frozenset({"ascii", "iso8859-1", "cp1252"})  # servers claim these when they do not know the charset
_DECLARED = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_IN_PAGE = re.compile(rb"""<meta\b[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_IN_XML = re.compile(rb"""^\s*<\?xml\b[^>]{0,100}?encoding\s*=\s*["']([\w.:-]{1,40})""")
_HEAD = 4_096  # bytes that are looked at
_HOLES = b"\x81\x8d\x8f\x90\x9d"  # bytes that windows-1252 has no letter for
_LETTERS = "".join(bytes([byte]).decode("latin-1" if byte in _HOLES else "cp1252") for byte in range(256))
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A body as text. `note` describes guesses and replacements; empty if there were none."""

    text: str
    charset: str
    note: str = ""
    binary: bool = False  # no text at all: an image, an archive


def read_text(body: bytes, content_type: str = "", *, cut: bool = False) -> DecodedText:
    """Decodes a body. Never raises. `cut`: the body was cut off, so an incomplete last character is dropped."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return _decode_declared(body[len(mark) :], charset, cut, "")
    declared, unknown = _find_declared(body, content_type)
    if declared.startswith(("utf-16", "utf-32")):
        if (text := _decode_strictly(body, declared, cut)) is not None and "\x00" not in text[:_HEAD]:
            return DecodedText(text, declared)
        return _guess_text(body, cut, f"declared as {declared}, but it is not")
    if _is_binary(body):
        return DecodedText(
            body.decode("latin-1"), "binary", "not text: every byte is shown as one character", binary=True
        )
    if not declared:
        return _guess_text(body, cut, f"declared as {unknown!r}, which is not a known charset" if unknown else "")
    text = _decode_strictly(body, declared, cut)
    if declared != "utf-8" and (text is None or declared in _WESTERN) and not body.isascii():
        if (real := _decode_strictly(body, "utf-8", cut)) is not None:
            return DecodedText(real, "utf-8", f"declared as {declared}, but it is UTF-8")
        if declared == "ascii":
            return _guess_text(body, cut, "declared as ascii, but it is not")
    if text is not None:
        return DecodedText(text, declared)
    if declared == "utf-8" and _count_replaced(body, "utf-8", cut) > len(body) // 50:
        return _guess_text(body, cut, "declared as utf-8, but it is not")
    return _decode_declared(body, declared, cut, "")


def _guess_text(body: bytes, cut: bool, why: str) -> DecodedText:
    """Decodes as UTF-8 if possible, otherwise as windows-1252, which most old Western pages use."""
    if _is_binary(body):
        note = "not text: every byte is shown as one character"
        return DecodedText(body.decode("latin-1"), "binary", f"{why}; {note}" if why else note, binary=True)
    if (text := _decode_strictly(body, "utf-8", cut)) is not None:
        return DecodedText(text, "utf-8", f"{why}; read as UTF-8" if why else "")
    note = "guessed to be windows-1252: non-ASCII letters may be wrong"
    return DecodedText(_decode_western(body), "cp1252", f"{why}; {note}" if why else note)


def _find_declared(body: bytes, content_type: str) -> tuple[str, str]:
    """Returns the charset that header or page declares, by Python's name, and the first unknown declaration."""
    claims = [found[1] for found in _DECLARED.finditer(content_type[:1_000])][:1]
    head = body[:_HEAD]
    claims += [found[1].decode("ascii", "replace") for found in (_IN_PAGE.search(head), _IN_XML.search(head)) if found]
    unknown = ""
    for index, claim in enumerate(claims):
        charset = _find_codec(claim)
        if charset.startswith(("utf-16", "utf-32")) and (index > 0 or content_type == ""):
            charset = "utf-8"  # a page that could be read so far is not in UTF-16
        if charset:
            return charset, unknown
        unknown = unknown or claim
    return "", unknown


def _find_codec(claim: str) -> str:
    try:
        name = codecs.lookup(claim.strip().removeprefix("x-")).name
    except (LookupError, ValueError):
        return ""
    return name if name in _KNOWN_CODECS else ""


def _decode_strictly(body: bytes, charset: str, cut: bool) -> str | None:
    if charset in ("iso8859-1", "cp1252"):
        return _decode_western(body)
    try:
        return codecs.getincrementaldecoder(charset)("strict").decode(body, final=not cut)
    except (UnicodeError, ValueError):
        return None


def _decode_declared(body: bytes, charset: str, cut: bool, why: str) -> DecodedText:
    text = codecs.getincrementaldecoder(charset)("replace").decode(body, final=not cut)
    lost = _count_replaced(body, charset, cut)
    note = f"{lost} invalid {'byte sequence' if lost == 1 else 'byte sequences'} shown as \ufffd" if lost else ""
    return DecodedText(text, charset, "; ".join(filter(None, (why, note))))


def _count_replaced(body: bytes, charset: str, cut: bool) -> int:
    """Counts the replaced characters, without replacement characters that the text itself contains."""
    text = codecs.getincrementaldecoder(charset)("replace").decode(body, final=not cut)
    decoded = codecs.getincrementaldecoder(charset)("ignore").decode(body, final=not cut)
    return text.count("\ufffd") - decoded.count("\ufffd")


def _decode_western(body: bytes) -> str:
    """Decodes as windows-1252, as browsers do for ISO-8859-1; its five unused bytes become control characters."""
    return codecs.charmap_decode(body, "strict", _LETTERS)[0]


def _is_binary(body: bytes) -> bool:
    head = body[:_HEAD]
    return b"\x00" in head or len(_CONTROL.findall(head)) > len(head) * 0.3
