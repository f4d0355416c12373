"""Reads bodies of responses: unpacks them piece by piece, up to a limit, and decodes them in their real charset."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from forge.core.errors import ErrorKind, ToolError

ACCEPTED = "gzip, deflate"  # sent as Accept-Encoding
MOST_LAYERS = 3
_PIECE = 64 * 1024  # bytes unpacked at a time


class Unpacker:
    """Unpacks a body as it arrives and stores up to `limit` bytes."""

    def __init__(self, encodings: list[str], limit: int) -> None:
        self.limit = limit
        self.full = False  # there was more
        self.body = bytearray()
        self._layers = [
            _make_layer(encoding) for encoding in reversed(encodings)
        ]  # the last one applied comes off first
        self._passed = [0] * len(self._layers)  # bytes each layer gave: a bomb may hide inside another

    def feed(self, chunk: bytes) -> None:
        self._push(0, chunk)

    def finish(self) -> None:
        """Raises `ToolError` if the body ended too early."""
        if not self.full and not all(layer.complete for layer in self._layers):
            raise _broken_body_error("it ends too early")

    def _push(self, depth: int, chunk: bytes) -> None:
        if depth == len(self._layers):
            room = self.limit - len(self.body)
            self.full = self.full or len(chunk) > room
            self.body += chunk[:room]
            return
        try:
            for piece in self._layers[depth].unpack(chunk):
                self._passed[depth] += len(piece)
                self._push(depth + 1, piece)
                if self._passed[depth] > self.limit:
                    self.full = True
                if self.full:
                    return
        except (zlib.error, ValueError, EOFError) as error:
            raise _broken_body_error(str(error)) from None


class _Layer(Protocol):
    @property
    def complete(self) -> bool: ...

    def unpack(self, chunk: bytes) -> Iterator[bytes]: ...


def read_encodings(value: str) -> list[str]:
    """Returns the layers that a Content-Encoding header names, in the order of their application."""
    found = [name for part in value.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if len(found) > MOST_LAYERS:
        raise _encoding_error(f"compressed {len(found)} times over")
    return found


def _make_layer(encoding: str) -> _Layer:
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    if encoding == "deflate":
        return _Deflate()
    raise _encoding_error(f"compressed with {encoding[:30]!r}")


class _Gzip:
    """Unpacks one gzip member after another; bytes after the last member are padding."""

    def __init__(self) -> None:
        self._member: Any = None
        self._any = False
        self._padding = False
        self._held = b""  # the first byte of what may be another member

    @property
    def complete(self) -> bool:
        return self._member is None

    def unpack(self, chunk: bytes) -> Iterator[bytes]:
        chunk, self._held = self._held + chunk, b""
        while chunk and not self._padding:
            if self._member is None:
                if self._any and len(chunk) == 1 and chunk == b"\x1f":
                    self._held = chunk
                    return
                if self._any and chunk[:2] != b"\x1f\x8b":
                    self._padding = True
                    return
                self._member, self._any = zlib.decompressobj(31), True
            yield from _inflate(self._member, chunk)
            if not self._member.eof:
                return
            chunk, self._member = self._member.unused_data, None


class _Deflate:
    """Unpacks zlib's format, as the standard says, or raw deflate, as some servers send it."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._held = b""

    @property
    def complete(self) -> bool:
        return self._stream.eof if self._stream is not None else not self._held

    def unpack(self, chunk: bytes) -> Iterator[bytes]:
        if self._stream is None:
            chunk = self._held + chunk
            if len(chunk) < 2:
                self._held = chunk
                return
            wrapped = chunk[0] & 0x0F == 8 and int.from_bytes(chunk[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(15 if wrapped else -15)
        if not self._stream.eof:
            yield from _inflate(self._stream, chunk)


def _inflate(stream: Any, chunk: bytes) -> Iterator[bytes]:
    while True:
        piece = stream.decompress(chunk, _PIECE)
        chunk = stream.unconsumed_tail
        if piece:
            yield piece
        if stream.eof or (not chunk and len(piece) < _PIECE):
            return


def _encoding_error(how: str) -> ToolError:
    return ToolError(
        f"the response is {how}, which is not supported",
        ErrorKind.SYSTEM,
        f"The server was asked for {ACCEPTED} and ignored it; look for the same content elsewhere.",
    )


def _broken_body_error(why: str) -> ToolError:
    return ToolError(
        f"the response cannot be decompressed: {why}",
        ErrorKind.SYSTEM,
        "Try again, or look for the same content elsewhere.",
    )


# Decodes the bytes of a page in their real charset, and notes every guess and every lost character.


_MARKS = (  # longest first: one of UTF-32 begins like one of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_KNOWN_CODECS = frozenset(  # Python's names; its other codecs are no charsets (zip, rot13) or no longer safe (UTF-7)
    [
        "ascii",
        "utf-8",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "utf-32",
        "utf-32-le",
        "utf-32-be",
        "iso8859-1",
        "iso8859-2",
        "iso8859-3",
        "iso8859-4",
        "iso8859-5",
        "iso8859-6",
        "iso8859-7",
        "iso8859-8",
        "iso8859-9",
        "iso8859-10",
        "iso8859-13",
        "iso8859-14",
        "iso8859-15",
        "iso8859-16",
        "cp1250",
        "cp1251",
        "cp1252",
        "cp1253",
        "cp1254",
        "cp1255",
        "cp1256",
        "cp1257",
        "cp1258",
        "cp437",
        "cp850",
        "cp852",
        "cp866",
        "cp874",
        "koi8-r",
        "koi8-u",
        "mac-roman",
        "mac-cyrillic",
        "tis-620",
        "gb2312",
        "gbk",
        "gb18030",
        "big5",
        "big5hkscs",
        "shift_jis",
        "cp932",
        "euc_jp",
        "euc_kr",
        "cp949",
        "iso2022_jp",
    ]
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
class DecodedBody:
    """A body as text. `note` describes guesses and replacements; empty if there were none."""

    text: str
    charset: str
    note: str = ""
    binary: bool = False  # no text at all: an image, an archive


def read_text(body: bytes, content_type: str = "", *, cut: bool = False) -> DecodedBody:
    """Decodes a body. Never raises. `cut`: the body was cut off, so an incomplete last character is dropped."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return _decode_declared(body[len(mark) :], charset, cut, "")
    declared, unknown = _find_declared(body, content_type)
    if declared.startswith(("utf-16", "utf-32")):
        if (text := _decode_strictly(body, declared, cut)) is not None and "\x00" not in text[:_HEAD]:
            return DecodedBody(text, declared)
        return _guess_text(body, cut, f"declared as {declared}, but it is not")
    if _is_binary(body):
        return DecodedBody(
            body.decode("latin-1"), "binary", "not text: every byte is shown as one character", binary=True
        )
    if not declared:
        return _guess_text(body, cut, f"declared as {unknown!r}, which is not a known charset" if unknown else "")
    text = _decode_strictly(body, declared, cut)
    if declared != "utf-8" and (text is None or declared in _WESTERN) and not body.isascii():
        if (real := _decode_strictly(body, "utf-8", cut)) is not None:
            return DecodedBody(real, "utf-8", f"declared as {declared}, but it is UTF-8")
        if declared == "ascii":
            return _guess_text(body, cut, "declared as ascii, but it is not")
    if text is not None:
        return DecodedBody(text, declared)
    if declared == "utf-8" and _count_replaced(body, "utf-8", cut) > len(body) // 50:
        return _guess_text(body, cut, "declared as utf-8, but it is not")
    return _decode_declared(body, declared, cut, "")


def _guess_text(body: bytes, cut: bool, why: str) -> DecodedBody:
    """Decodes as UTF-8 if possible, otherwise as windows-1252, which most old Western pages use."""
    if _is_binary(body):
        note = "not text: every byte is shown as one character"
        return DecodedBody(body.decode("latin-1"), "binary", f"{why}; {note}" if why else note, binary=True)
    if (text := _decode_strictly(body, "utf-8", cut)) is not None:
        return DecodedBody(text, "utf-8", f"{why}; read as UTF-8" if why else "")
    note = "guessed to be windows-1252: non-ASCII letters may be wrong"
    return DecodedBody(_decode_western(body), "cp1252", f"{why}; {note}" if why else note)


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


def _decode_declared(body: bytes, charset: str, cut: bool, why: str) -> DecodedBody:
    text = codecs.getincrementaldecoder(charset)("replace").decode(body, final=not cut)
    lost = _count_replaced(body, charset, cut)
    note = f"{lost} invalid {'byte sequence' if lost == 1 else 'byte sequences'} shown as \ufffd" if lost else ""
    return DecodedBody(text, charset, "; ".join(filter(None, (why, note))))


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


# Defines the response to a request.


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, whatever its status. `headers` are pairs with lower-case names, in the order received."""

    url: str  # the last one asked
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes  # unpacked
    truncated: bool = False  # there was more than Limits.size
    hops: tuple[str, ...] = ()  # the URLs that redirected here
    location: str = ""  # where a redirect that was not followed leads

    def header(self, name: str, default: str = "") -> str:
        """Returns the first header of that name."""
        name = name.lower()
        return next((value for key, value in self.headers if key == name), default)

    @property
    def content_type(self) -> str:
        """The media type, such as `text/html`: lower case, without parameters."""
        return self.header("content-type").partition(";")[0].strip().lower()

    def text(self) -> DecodedBody:
        """Decodes the body, with a note on guesses and replacements. Never raises."""
        return read_text(self.body, self.header("content-type"), cut=self.truncated)
