"""No regular expression of Forge uses what `re` gets wrong before Python 3.11.4: a possessive repeat.

An atomic group is read right by every Python as long as it holds no group that is remembered.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]

import pytest

import forge

SOURCES = Path(forge.__file__).parent


def _text(node: ast.AST) -> str | None:
    """The text of a literal; in an f-string, a letter stands for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "x" for part in node.values)
    return None


def _patterns(source: str) -> Iterator[tuple[int, str]]:
    """Every literal inside a call of `re`, and every raw string: a pattern may be put together elsewhere."""
    if not re.search(r"[*+?}]\+|\(\?>", source):
        return
    lines = source.encode().split(b"\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
            for inner in ast.walk(node):
                if (text := _text(inner)) is not None:
                    yield inner.lineno, text  # type: ignore[attr-defined]
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            text, written = _text(node), lines[node.lineno - 1][node.col_offset :].lower()
            if text is not None and written.startswith((b"r", b"fr")):
                yield node.lineno, text


def _is_broken_before_3_11_4(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = repr(_parser.parse(pattern).data)
    except (re.error, OverflowError):  # a part of a pattern, or none
        without_classes = re.sub(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]", "x", pattern)
        return re.search(r"[*+?}]\+", without_classes) is not None
    return "POSSESSIVE_REPEAT" in parsed or ("ATOMIC_GROUP" in parsed and "(SUBPATTERN, (1," in parsed)


def _found_in(source: str) -> list[int]:
    return sorted({line for line, pattern in _patterns(source) if _is_broken_before_3_11_4(pattern)})


def test_no_pattern_of_forge_is_one_that_older_pythons_misread():
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line in _found_in(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"possessive repeats; write the pattern so that it needs none: {found}"


@pytest.mark.parametrize(
    "source",
    [
        r're.compile(r"a*+b")',
        r're.compile("a++")',
        r're.match(r"(?>(a)b)", text)',
        r'PART = r"[^x]{2,}+"',
        r're.compile(rf"{PART}x?+")',
        r're.compile(r"(unfinished*+" + REST)',
    ],
)
def test_these_would_be_found(source):
    assert _found_in(source) == [1]


@pytest.mark.parametrize(
    "source",
    [
        r're.compile(r"[*+]+\+")',
        r're.compile(r"a*\+")',
        r're.compile(r"(?>ab)")',
        r're.compile(r"a+b*?(?=c)")',
        r'NAME = "C++"',
    ],
)
def test_and_these_are_fine(source):
    assert _found_in(source) == []
