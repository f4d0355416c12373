"""Marks an entry of a note that was written after untrusted or private text was read, and reads the marks again.

A mark is a comment of Markdown, which people can read and remove:

    <!-- labels: untrusted web_fetch shop.example -->
    The shop delivers on Mondays.
    <!-- /labels -->
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import NamedTuple

from forge.core.label import LONGEST_ORIGIN, Label, merge_labels, read_labels

BEGIN, END = "<!-- labels: ", "<!-- /labels -->"
MOST = 10  # labels in a mark

_BEGIN = re.compile(r"\s*<!-- labels: (.*?)\s*(?:-->)?\s*")
_UNSAFE = re.compile(r"[^\w .:/@*-]|--+")  # of an origin: it must not end the comment or the label


class _Span(NamedTuple):
    """The lines of a marked entry, counted from 1, and its labels."""

    first: int
    last: float
    labels: tuple[Label, ...]


def mark_entry(content: str, labels: Iterable[Label]) -> str:
    """Puts the content between marks with its labels. A mark inside the content loses its meaning."""
    listed = [f"{label.kind} {_UNSAFE.sub('_', label.origin)[:LONGEST_ORIGIN]}" for label in dict.fromkeys(labels)]
    if not listed:
        return content
    inner = content.replace("<!-- /labels", "<!-- (/labels")
    return f"{BEGIN}{'; '.join(listed[:MOST])} -->\n{inner}\n{END}"


def find_entry_labels(text: str, first: int = 1, last: float = float("inf")) -> tuple[Label, ...]:
    """Returns the labels of the marked entries in these lines of a note. An entry without an end ends with the note."""
    if BEGIN not in text:
        return ()
    return merge_labels(*(one.labels for one in _find_spans(text) if one.first <= last and one.last >= first))


def _find_spans(text: str) -> list[_Span]:
    spans: list[_Span] = []
    open_spans: list[_Span] = []
    for number, raw in enumerate(io.StringIO(text, newline=""), 1):  # splits lines as the index does
        if (begin := _BEGIN.fullmatch(raw)) is not None:
            pairs = [one.strip().split(" ", 1) for one in begin[1].split(";")]
            open_spans.append(_Span(number, float("inf"), read_labels([[*pair, ""][:2] for pair in pairs])))
        elif raw.strip() == END:
            spans += [one._replace(last=number) for one in open_spans]
            open_spans = []
    return spans + open_spans
