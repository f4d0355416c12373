"""The parts of a shell line: its commands, and how they are connected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Redirection(NamedTuple):
    """A redirection: `2> errors` is `>` to `errors`; `target` of a here-document or here-string is the text."""

    operator: str
    target: str
    descriptor: str = ""  # the number before it, where there is one


class CommandRange(NamedTuple):
    """Some of a line's commands, by number."""

    start: int
    end: int


NONE = CommandRange(0, 0)


@dataclass(slots=True)
class ShellCommand:
    """The words of one command, and its surroundings."""

    words: tuple[str, ...] = ()
    assignments: list[tuple[str, str]] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)
    inside: CommandRange = NONE  # the commands in its own substitutions
    joint: str = ""  # "&&" where it runs only if the command before it succeeded


@dataclass(slots=True)
class ShellFunction:
    """A function that the line defines."""

    name: str
    body: CommandRange


@dataclass(slots=True)
class ShellLine:
    """The parts of a line."""

    commands: list[ShellCommand] = field(default_factory=list)
    pipes: list[list[CommandRange]] = field(default_factory=list)
    background: list[CommandRange] = field(default_factory=list)
    functions: list[ShellFunction] = field(default_factory=list)
    loops: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # `for x in a b`
    is_broken: bool = False  # the grammar does not know all of it
