"""Tabs at the beginning of lines in block scalars: YAML 1.2 has them as text, and the parser in C refuses them."""

from __future__ import annotations

import re

PROBLEM = "found a tab character where an indentation space is expected"
STAND_IN = "\ue0f1"  # of a private range: no document has it by accident
MOST = 64 * 1024 * 1024  # characters that are read again in all

_BLANK = re.compile(r"^[ \t]*\t[ \t]*$", re.MULTILINE)


def without_blanks(text: str) -> str:
    """With lines of nothing but white space empty, as they mean it."""
    return _BLANK.sub("", text)


def with_stand_in(text: str, line: int) -> str | None:
    """With another character for the first tab of that line, after its spaces; None where there is no such tab."""
    lines = text.split("\n")
    if line >= len(lines):
        return None
    spaces = len(lines[line]) - len(lines[line].lstrip(" "))
    if not spaces or lines[line][spaces : spaces + 1] != "\t":
        return None
    lines[line] = f"{lines[line][:spaces]}{STAND_IN}{lines[line][spaces + 1 :]}"
    return "\n".join(lines)


def restored(value: str) -> str:
    return value.replace(STAND_IN, "\t") if STAND_IN in value else value
