"""Finds the values that variables of a line may have, as far as the line itself assigns them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, product
from typing import NamedTuple

from forge.core.context import Scope
from forge.permissions.shell import parse as shell
from forge.permissions.shell.words import is_known
from forge.permissions.targets import paths

MOST = 16  # ways to fill the variables of one line
_LONGEST = 4_096  # characters of a value
_ROUNDS = 3  # values that name other variables
# They assign in ways that are not looked at here.
_ASSIGNS_OTHERWISE = re.compile(
    r"\b(?:eval|source|read|mapfile|readarray|declare|typeset|local|export|readonly|let|getopts|unset|select|printf|set|shift"
    r"|coproc|trap|wait)\b|(?:^|[\s;&|(])\.\s|\(\(|\$\[|:?="
)
_PLAIN_ASSIGNMENT = re.compile(r"(?:(?<=^)|(?<=[\s;&|({]))\w+=")
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")

Values = tuple[tuple[str, str], ...]


class KnownValues(NamedTuple):
    """Ways to fill the variables, and the names of doubtful ones, which may have other values too."""

    ways: tuple[Values, ...]
    doubtful: frozenset[str]

    def sure(self) -> tuple[Values, ...]:
        """Returns the ways without doubtful variables."""
        sure = (tuple(pair for pair in way if pair[0] not in self.doubtful) for way in self.ways)
        return tuple(dict.fromkeys(sure))


def find_known_values(line: str, scope: Scope) -> KnownValues:
    """Returns the values that `D=…` and `for d in …` assign, with the home directory and the workspace."""
    if "$" not in line:
        return KnownValues(((),), frozenset())
    base = {"HOME": [paths.home_directory()], "PWD": [str(scope.workspace)]}
    options: dict[str, list[str]] = dict(base)
    doubtful: set[str] = set()
    for _ in range(_ROUNDS):
        found: dict[str, list[str]] = {}
        doubtful = {"PWD"} if _MOVES.search(line) else set()
        for way in _ways(options):
            for name, value in _find_assignments(line, way):
                if is_known(value) and len(value) <= _LONGEST:
                    found.setdefault(name, []).append(value)
                else:
                    doubtful.add(name)
        before, options = options, {**base, **{name: list(dict.fromkeys(values)) for name, values in found.items()}}
        if options == before:
            break
    rest = _PLAIN_ASSIGNMENT.sub("", line)
    if _ASSIGNS_OTHERWISE.search(rest) or len([*islice(_all_ways(options), MOST + 1)]) > MOST:
        doubtful |= set(options)
    return KnownValues(tuple(_ways(options)), frozenset(doubtful))


def _find_assignments(line: str, way: Values) -> Iterator[tuple[str, str]]:
    found = shell.read(line, way)
    for command in found.commands:
        yield from command.assignments
    for name, values in found.loops:
        yield from ((name, value) for value in values)


def _all_ways(options: dict[str, list[str]]) -> Iterator[Values]:
    for values in product(*options.values()):
        yield tuple(zip(options, values, strict=True))


def _ways(options: dict[str, list[str]]) -> Iterator[Values]:
    return islice(_all_ways(options), MOST)


# Replaces the variables and braces of a line by the values that are known before it runs.


_ASSIGNED = re.compile(r"(?:^|[\s;&|(])(\w+)=(?:'([^'\n]*)'|\"([^\"$`\n]*)\"|([^\s;&|<>()$`\"'{}]*))(?=[\s;&|)]|$)")
_LOOPED = re.compile(r"\bfor\s+(\w+)\s+in\s+([^;\n$`]*)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^{}$`]*)|[^\w{}][^{}]*)?\})")
_BRACES = re.compile(r"([^\s{}'\"]{0,200})\{([^{}\s]{0,500},[^{}\s]{0,500})\}([^\s{}'\";|&)]*)")
_SAYS = re.compile(r"\$\((?:echo|printf(?: ['\"]?%s['\"]?)?) +([^()$`;|&<>]*)\)|`(?:echo|printf) +([^`$;|&<>]*)`")
_LONGEST_VALUE = 200  # characters
_PWD = re.compile(r"\$\(pwd\)|`pwd`")


def expand_line(line: str, scope: Scope) -> str:
    """Returns the line with braces, and variables with known values, expanded."""
    values = {"HOME": paths.home_directory(), "PWD": str(scope.workspace), "IFS": " "}
    for name, *texts in [*_ASSIGNED.findall(line), *_LOOPED.findall(line)]:
        values[name] = next((text for text in texts if text), "")[:_LONGEST_VALUE]

    def value(variable: re.Match[str]) -> str:
        name = variable[1] or variable[2]
        return values.get(name, variable[3] if variable[3] is not None else variable[0])

    text = _PWD.sub("$PWD", line)
    for _ in range(3):  # values that name other variables
        text = _VARIABLE.sub(value, text)[: shell.LONGEST]
    text = _SAYS.sub(lambda found: (found[1] or found[2] or "").strip("'\" "), text)
    return _BRACES.sub(_expand_braces, text)[: shell.LONGEST]


def _expand_braces(braces: re.Match[str]) -> str:
    return " ".join(f"{braces[1]}{one}{braces[3]}" for one in braces[2].split(",")[:50])
