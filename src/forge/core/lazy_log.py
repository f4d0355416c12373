"""A logger that loads the package `logging` when something is logged: commands that list things do without it."""

from __future__ import annotations

from typing import Any


class LazyLog:
    """Loads the logger of this name at its first message."""

    def __init__(self, name: str) -> None:
        self._name = name

    def warning(self, words: str, *values: Any) -> None:
        from logging import getLogger

        getLogger(self._name).warning(words, *values, stacklevel=2)
