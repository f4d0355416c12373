"""Builds commands for a person to type next, with the flags of this command, so that they work when copied."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from forge.cli.options import Options
from forge.core.errors import ToolError
from forge.project.config.durable import passwords, without_password
from forge.project.trust import FoundConfig

_COMMAND = re.compile(r"forge (?:runs [a-z]+|run --durable|worker(?: status)?)")


class Commands:
    """Keeps the flags of this command that further commands need."""

    def __init__(self, options: Options, database: str | None = None, app_version: str | None = None) -> None:
        given = {
            "--workspace": options.workspace,
            "--config": _config_flag(options.config),
            "--database": _database_flag(database),
        }
        self._flags = [word for flag, value in given.items() if value for word in (flag, value)]
        self._version = ["--app-version", app_version] if app_version else []

    def line(self, *words: str) -> str:
        """Returns a command such as `line("runs", "show", id)` with all flags that it needs."""
        return shlex.join(["forge", *words, *self._flags_of(" ".join(words))])

    @contextmanager
    def complete_suggestions(self) -> Iterator[None]:
        """Adds the flags to the commands in an error's suggestion. The message stays as it is: others may have written
        it.
        """
        try:
            yield
        except ToolError as error:
            error.suggestion = _COMMAND.sub(self._add_flags, error.suggestion)
            raise

    def _add_flags(self, named: re.Match[str]) -> str:
        flags = self._flags_of(named[0].removeprefix("forge "))
        return f"{named[0]} {shlex.join(flags)}" if flags else named[0]

    def _flags_of(self, words: str) -> list[str]:
        works = words.startswith(("runs resume", "run --durable", "worker")) and not words.startswith("worker status")
        return [*self._flags, *(self._version if works else ())]


def _config_flag(config: str | None) -> str | None:
    """Returns the file, or None if the next command finds it without a flag."""
    return None if isinstance(config, FoundConfig) or config == os.environ.get("FORGE_CONFIG") else config


def _database_flag(database: str | None) -> str | None:
    """Removes the password, which is never printed and has to be typed again."""
    if database is None:
        return None
    clean = without_password(database)
    return clean if any(passwords(database)) or ":***@" in clean else database
