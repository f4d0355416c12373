"""Loggers and regular expressions that are made at their first use: a start pays only for those it needs."""

from __future__ import annotations

import re
from typing import Any, cast


class LazyLog:
    """Loads the package `logging`, and the logger of this name, at the first message."""

    def __init__(self, name: str) -> None:
        self._name = name

    def warning(self, words: str, *values: Any) -> None:
        from logging import getLogger

        getLogger(self._name).warning(words, *values, stacklevel=2)


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Returns `re.compile(text, flags)`, compiled when it is first used. Later uses cost what they cost there."""
    return cast("re.Pattern[str]", _LazyPattern(text, flags))


class _LazyPattern:
    def __init__(self, text: str, flags: int) -> None:
        self._arguments = (text, flags)

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._arguments), name)
        setattr(self, name, method)
        return method
