"""Decodes text files so that encoding them again gives the same bytes, line endings included."""

from __future__ import annotations

import io
from dataclasses import dataclass

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.text.common_lines import find_shared_blocks

HEAD = 4096  # bytes that decide whether a file is text
_MARKS = (  # the longer first: a UTF-32 mark begins with a UTF-16 one
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_CONTROL = bytes(byte for byte in [*range(32), 127] if byte not in b"\b\t\n\f\r\x1b")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A decoded file, without its byte order mark and with its own line endings."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    def encode_whole(self, text: str) -> bytes:
        """Encodes another text as this file: with the same encoding and mark."""
        return self.mark + self.encode_part(text) if self.mark else self.encode_part(text)

    def encode_part(self, text: str) -> bytes:
        """Encodes a part of the file, without the mark."""
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            raise ToolError(
                f"line {line} of the new text contains half a surrogate pair ({text[error.start]!a}), "
                f"which {self.encoding.upper()} cannot encode",
                ErrorKind.VALIDATION,
                "Write the whole character.",
            ) from None


def decode(content: bytes) -> DecodedText:
    """Decodes a file. Raises `ToolError` if it is not text, or if encoding it again would change its bytes."""
    if is_binary(content[:HEAD]):
        raise ToolError("it is a binary file, not text", ErrorKind.USER, "Only text files can be used here.")
    encoding, mark = encoding_of(content)
    try:
        # these codecs are strict both ways: no two contents have the same text
        return DecodedText(str(memoryview(content)[len(mark) :], encoding), encoding, mark)
    except UnicodeDecodeError as error:
        raise ToolError(
            f"it is not {encoding[:6].rstrip('-').upper()} text: "
            f"byte {error.start + len(mark):,} cannot be decoded, and writing it back would change it",
            ErrorKind.USER,
            "Convert it to UTF-8 first.",
        ) from None


def encoding_of(content: bytes) -> tuple[str, bytes]:
    """Returns the encoding that the byte order mark names, and the mark; UTF-8 without a mark."""
    return next(((encoding, mark) for mark, encoding in _MARKS if content.startswith(mark)), ("utf-8", b""))


def is_binary(head: bytes) -> bool:
    """Returns True if the first bytes of a file are not text: a NUL byte, or more than 30 % control bytes."""
    head = head[:HEAD]
    if encoding_of(head)[0] != "utf-8":
        return False
    return b"\0" in head or (len(head) - len(head.translate(None, _CONTROL))) * 10 > len(head) * 3


def split_lines(text: str) -> list[str]:
    """Splits text into lines with their ends. Only \\n, \\r\\n and \\r end a line, unlike `splitlines`."""
    return io.StringIO(text, newline="").readlines()


def line_ending_of(text: str) -> str:
    """Returns the most frequent line ending."""
    if "\r" not in text:
        return "\n"
    both = text.count("\r\n")
    counts = {"\n": text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}
    return max(counts, key=lambda ending: counts[ending])


def with_endings_of(old: str, new: str) -> str:
    """Returns `new` with the line endings of `old`: an unchanged line keeps its own, a new line takes its neighbour's.

    A `new` with a carriage return anywhere stays as it is.
    """
    if "\r" in new or "\r" not in old:
        return new
    both = old.count("\r\n")
    if both == old.count("\n") == old.count("\r"):
        return new.replace("\n", "\r\n")
    if "\n" not in old:
        return new.replace("\n", "\r")
    return _restore_endings(split_lines(old), new)


def _restore_endings(old: list[str], new: str) -> str:
    bare = [line.rstrip("\r\n") for line in old]
    endings = [line[len(content) :] for line, content in zip(old, bare, strict=True)]
    lines = new.split("\n")
    chosen: list[str] = []
    here = there = 0
    for start, position, size in find_shared_blocks(bare, lines):
        chosen += _endings_between(endings, here, start, position - there)
        chosen += endings[start : start + size]
        here, there = start + size, position + size
    chosen[-1] = ""  # the text after the last \n has no ending
    for index in range(len(chosen) - 1):  # the former last line, without an ending, may have moved
        chosen[index] = chosen[index] or (chosen[index - 1] if index else next(filter(None, endings)))
        if index and not lines[index] and chosen[index - 1 : index + 1] == ["\r", "\n"]:
            chosen[index] = "\r"  # the two would be one ending
    return "".join([line + ending for line, ending in zip(lines, chosen, strict=True)])


def _endings_between(endings: list[str], start: int, end: int, count: int) -> list[str]:
    """Returns endings for `count` lines that replace the lines of `endings[start:end]`."""
    replaced = [ending for ending in endings[start:end] if ending][:count]
    # of two lines before, one has an ending: only the last line of a file may lack it
    neighbours = [*replaced[-1:], *reversed(endings[max(start - 2, 0) : start]), *endings[end : end + 1]]
    return replaced + [next(filter(None, neighbours), "\n")] * (count - len(replaced))
