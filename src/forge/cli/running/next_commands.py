"""Commands for a person to type next: they have the flags that this one was given, so that they work as they stand."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from forge.cli.options import Options
from forge.core.errors import ToolError
from forge.project.config.durable import passwords, without_password
from forge.project.trust import Found

_NAMED = re.compile(r"forge (?:runs [a-z]+|run --durable|worker(?: status)?)")


class Commands:
    """What this command was told about where things are, for those that come after it."""

    def __init__(self, options: Options, database: str | None = None, app_version: str | None = None) -> None:
        given = {"--workspace": options.workspace, "--config": _named(options.config), "--database": _shown(database)}
        self._flags = [word for flag, value in given.items() if value for word in (flag, value)]
        self._version = ["--app-version", app_version] if app_version else []

    def line(self, *words: str) -> str:
        """`line("runs", "show", id)`: with all flags that it needs."""
        return shlex.join(["forge", *words, *self._flags_of(" ".join(words))])

    @contextmanager
    def suggested(self) -> Iterator[None]:
        """The same for what errors say to do next; only for that: what went wrong may hold words of others."""
        try:
            yield
        except ToolError as error:
            error.suggestion = _NAMED.sub(self._completed, error.suggestion)
            raise

    def _completed(self, named: re.Match[str]) -> str:
        flags = self._flags_of(named[0].removeprefix("forge "))
        return f"{named[0]} {shlex.join(flags)}" if flags else named[0]

    def _flags_of(self, words: str) -> list[str]:
        works = words.startswith(("runs resume", "run --durable", "worker")) and not words.startswith("worker status")
        return [*self._flags, *(self._version if works else ())]


def _named(config: str | None) -> str | None:
    """The file, unless the next command finds it by itself."""
    return None if isinstance(config, Found) or config == os.environ.get("FORGE_CONFIG") else config


def _shown(database: str | None) -> str | None:
    """Without its password: that has to be typed again, and is on no screen."""
    if database is None:
        return None
    clean = without_password(database)
    return clean if any(passwords(database)) or ":***@" in clean else database
