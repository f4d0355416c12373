"""Reads tabs at the start of lines in block scalars: YAML 1.2 allows them, and the parser in C refuses them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from forge.core.lazy import lazy_pattern

Read = TypeVar("Read")

PROBLEM = "found a tab character where an indentation space is expected"
STAND_IN = "\ue0f1"  # of a private range: no document has it by accident
MOST = 64 * 1024 * 1024  # characters that are read again in all

_BLANK = lazy_pattern(r"^[ \t]*\t[ \t]*$", re.MULTILINE)


def read_with_tabs(
    text: str, read: Callable[[str], Read], refusal: type[Exception], most: int = MOST
) -> tuple[str, Read]:
    """Returns the value of `read` and the text that it took: where a tab stops it, it reads again with a stand-in."""
    again, first, is_free = 0, True, STAND_IN not in text
    while True:
        try:
            return text, read(text)
        except refusal as error:
            again += len(text)
            if getattr(error, "problem", "") != PROBLEM or again > most or not is_free:
                raise
            changed = _without_blanks(text) if first else text
            if changed == text:
                changed = _with_stand_in(text, error.problem_mark.line) or text  # type: ignore[attr-defined]
            if changed == text:
                raise
            text, first = changed, False


def _without_blanks(text: str) -> str:
    """Empties lines of nothing but white space, which mean the same."""
    return _BLANK.sub("", text)


def _with_stand_in(text: str, line: int) -> str | None:
    """Replaces the first tab of that line, after its spaces; None where there is no such tab."""
    lines = text.split("\n")
    if line >= len(lines):
        return None
    spaces = len(lines[line]) - len(lines[line].lstrip(" "))
    if not spaces or lines[line][spaces : spaces + 1] != "\t":
        return None
    lines[line] = f"{lines[line][:spaces]}{STAND_IN}{lines[line][spaces + 1 :]}"
    return "\n".join(lines)


def restore_tabs(value: str) -> str:
    return value.replace(STAND_IN, "\t") if STAND_IN in value else value


def restore_tabs_in(value: Any) -> Any:
    """Restores the tabs of every text in plain data."""
    if isinstance(value, str):
        return restore_tabs(value)
    if isinstance(value, dict):
        return {key: restore_tabs_in(one) for key, one in value.items()}
    if isinstance(value, list):
        return [restore_tabs_in(one) for one in value]
    if isinstance(value, tuple):
        made = [restore_tabs_in(one) for one in value]
        return type(value)._make(made) if hasattr(value, "_make") else tuple(made)
    return value
