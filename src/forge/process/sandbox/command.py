"""Defines a command line to start, with the files to open for the program."""

from __future__ import annotations

import os
from dataclasses import dataclass

_READING, _APPENDING = os.O_RDONLY, os.O_WRONLY | os.O_APPEND


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command to start. The starter opens its files, makes its cgroup and, if wanted, makes it ignore SIGTERM."""

    argv: list[str]
    reads: tuple[tuple[int, str], ...] = ()  # descriptor and path of each file that it reads from the beginning
    appends: tuple[tuple[int, str], ...] = ()  # of each file that it writes to at the end
    ignores_term: bool = False  # it starts with SIGTERM ignored
    cgroup: tuple[str, tuple[tuple[str, str], ...]] | None = (
        None  # where to make its cgroup, and the values of its files
    )

    @property
    def files(self) -> list[tuple[int, str, int]]:
        """Descriptor, path and open flags of each file."""
        return [(*one, _READING) for one in self.reads] + [(*one, _APPENDING) for one in self.appends]

    def in_shell(self) -> list[str]:
        """Returns one command line for starting it without a keeper: a shell opens the files. It has no cgroup."""
        if not self.files and not self.ignores_term:
            return self.argv
        opened = [f"{number}<{path}" for number, path in self.reads]
        opened += [f"{number}>>{path}" for number, path in self.appends]
        ignored = 'trap "" TERM; ' if self.ignores_term else ""
        return ["/bin/sh", "-c", f'{ignored}exec "$@" {" ".join(opened)}', "sh", *self.argv]
