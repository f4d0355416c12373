"""Bytes of a page as text: in the charset they are really in, and never without saying what was guessed or lost."""

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
_KNOWN = frozenset(  # Python's names; its other codecs are no charsets (zip, rot13) or no longer safe (UTF-7)
    "ascii utf-8 utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be iso8859-1 iso8859-2 iso8859-3 iso8859-4 "
    "iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 "
    "cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp437 cp850 cp852 cp866 cp874 koi8-r koi8-u "
    "mac-roman mac-cyrillic tis-620 gb2312 gbk gb18030 big5 big5hkscs shift_jis cp932 euc_jp euc_kr cp949 "
    "iso2022_jp".split()
)
_WESTERN = frozenset({"ascii", "iso8859-1", "cp1252"})  # what servers claim when they do not know
_DECLARED = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_IN_PAGE = re.compile(rb"""<meta\b[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_IN_XML = re.compile(rb"""^\s*<\?xml\b[^>]{0,100}?encoding\s*=\s*["']([\w.:-]{1,40})""")
_HEAD = 4_096  # bytes that are looked at
_HOLES = b"\x81\x8d\x8f\x90\x9d"  # bytes that windows-1252 has no letter for
_LETTERS = "".join(bytes([byte]).decode("latin-1" if byte in _HOLES else "cp1252") for byte in range(256))
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Text:
    """A body as text. `note` says in words what was guessed or replaced; empty if nothing was."""

    text: str
    charset: str
    note: str = ""
    binary: bool = False  # no text at all: an image, an archive


def read_text(body: bytes, content_type: str = "", *, cut: bool = False) -> Text:
    """Never raises. `cut`: the body was cut off, so the last character may be incomplete and is left out."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return _decoded(body[len(mark) :], charset, cut, "")
    declared, unknown = _declared(body, content_type)
    if declared.startswith(("utf-16", "utf-32")):
        if (text := _strict(body, declared, cut)) is not None and "\x00" not in text[:_HEAD]:
            return Text(text, declared)
        return _guessed(body, cut, f"declared as {declared}, which it is not")
    if _is_binary(body):
        return Text(body.decode("latin-1"), "binary", "not text: every byte is shown as one character", binary=True)
    if not declared:
        return _guessed(body, cut, f"declared as {unknown!r}, which is no known charset" if unknown else "")
    text = _strict(body, declared, cut)
    if declared != "utf-8" and (text is None or declared in _WESTERN) and not body.isascii():
        if (real := _strict(body, "utf-8", cut)) is not None:
            return Text(real, "utf-8", f"declared as {declared}, but it is UTF-8")
        if declared == "ascii":
            return _guessed(body, cut, "declared as ascii, which it is not")
    if text is not None:
        return Text(text, declared)
    if declared == "utf-8" and _replaced(body, "utf-8", cut) > len(body) // 50:
        return _guessed(body, cut, "declared as utf-8, which it is not")
    return _decoded(body, declared, cut, "")


def _guessed(body: bytes, cut: bool, why: str) -> Text:
    """UTF-8 if it is that, and what most old pages of the West are in otherwise."""
    if _is_binary(body):
        note = "not text: every byte is shown as one character"
        return Text(body.decode("latin-1"), "binary", f"{why}; {note}" if why else note, binary=True)
    if (text := _strict(body, "utf-8", cut)) is not None:
        return Text(text, "utf-8", f"{why}; read as UTF-8" if why else "")
    note = "guessed to be windows-1252: letters beyond ASCII may be wrong"
    return Text(_western(body), "cp1252", f"{why}; {note}" if why else note)


def _declared(body: bytes, content_type: str) -> tuple[str, str]:
    """The charset that header or page claims, by Python's name, and the first claim that is no known charset."""
    claims = [found[1] for found in _DECLARED.finditer(content_type[:1_000])][:1]
    head = body[:_HEAD]
    claims += [found[1].decode("ascii", "replace") for found in (_IN_PAGE.search(head), _IN_XML.search(head)) if found]
    unknown = ""
    for place, claim in enumerate(claims):
        charset = _known(claim)
        if charset.startswith(("utf-16", "utf-32")) and (place > 0 or content_type == ""):
            charset = "utf-8"  # a page that could be read so far is not in UTF-16
        if charset:
            return charset, unknown
        unknown = unknown or claim
    return "", unknown


def _known(claim: str) -> str:
    try:
        name = codecs.lookup(claim.strip().removeprefix("x-")).name
    except (LookupError, ValueError):
        return ""
    return name if name in _KNOWN else ""


def _strict(body: bytes, charset: str, cut: bool) -> str | None:
    if charset in ("iso8859-1", "cp1252"):
        return _western(body)
    try:
        return codecs.getincrementaldecoder(charset)("strict").decode(body, final=not cut)
    except (UnicodeError, ValueError):
        return None


def _decoded(body: bytes, charset: str, cut: bool, why: str) -> Text:
    text = codecs.getincrementaldecoder(charset)("replace").decode(body, final=not cut)
    lost = _replaced(body, charset, cut)
    note = f"{lost} invalid {'byte sequence' if lost == 1 else 'byte sequences'} shown as \ufffd" if lost else ""
    return Text(text, charset, "; ".join(filter(None, (why, note))))


def _replaced(body: bytes, charset: str, cut: bool) -> int:
    """How many characters had to be replaced; those that are really in the text do not count."""
    text = codecs.getincrementaldecoder(charset)("replace").decode(body, final=not cut)
    kept = codecs.getincrementaldecoder(charset)("ignore").decode(body, final=not cut)
    return text.count("\ufffd") - kept.count("\ufffd")


def _western(body: bytes) -> str:
    """windows-1252, as browsers read what claims to be ISO-8859-1; its five holes are control characters."""
    return codecs.charmap_decode(body, "strict", _LETTERS)[0]


def _is_binary(body: bytes) -> bool:
    head = body[:_HEAD]
    return b"\x00" in head or len(_CONTROL.findall(head)) > len(head) * 0.3
