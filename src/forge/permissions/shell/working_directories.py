"""Finds the directories in which the commands of a literal line run, with `cd` among them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise

from forge.core.context import Scope
from forge.permissions.shell.literal_line import LiteralCommand
from forge.permissions.targets import paths

_SAME_SHELL = frozenset({"time", "command", "builtin", "!"})
MOST = 16  # directories a command may run in, `cd` by `cd`


def directories(parts: Sequence[LiteralCommand], start: str) -> list[tuple[str, ...]] | None:
    """Returns the directories each command may run in; None if they are not known."""
    found: list[tuple[str, ...]] = [(start,)]
    before: tuple[str, ...] = (start,)  # where the line is if the last `cd` failed
    here = before  # … and if it did not
    for part, following in pairwise(parts):
        if following.joint != "&&":
            here = before = tuple(dict.fromkeys((*before, *here)))
        words = unwrap_builtin(part.words)
        if words[:1] in (("cd",), ("pushd",), ("popd",), ("chdir",)):
            target = destination(words) if words[0] == "cd" else None
            if target is None or len(here) > MOST:
                return None
            there = tuple(dict.fromkeys(os.path.join(path, target) for path in here))
            is_sure = part.joint != "||" and following.joint == "&&"
            before = tuple(dict.fromkeys((*before, *here)))
            here = there if is_sure else tuple(dict.fromkeys((*here, *there)))
            before = before if is_sure else here
        found.append(here)
    return found


def unwrap_builtin(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the words behind those that run a command in the same shell: `time -p cd src` is `cd src`."""
    while words and words[0] in _SAME_SHELL:
        words = words[1:]
        while words and words[0] in ("-p", "--"):
            words = words[1:]
    return tuple(words)


def destination(words: Sequence[str]) -> str | None:
    """Returns the target of a `cd`; None if it is not known."""
    operands = [word for word in words[1:] if word not in ("-P", "-L", "-e", "-@", "--")]
    if not operands:
        return paths.home_directory()
    return operands[0] if len(operands) == 1 and not operands[0].startswith("-") and operands[0] else None


class Area:
    """The workspace and the roots beside it, for comparing paths."""

    def __init__(self, scope: Scope) -> None:
        areas = [paths.roots(str(path)) for path in (scope.workspace, *(root.path for root in scope.roots))]
        self.workspace = areas[0][0]
        self.around = tuple(root for area in areas for root in area)

    def has(self, target: str, start: str = "") -> bool:
        """Says whether every path that a target may mean, seen from a directory, lies inside."""
        if len(target) > paths.LONGEST or "\0" in target:
            return False
        found = paths.spellings(target, os.path.join(self.workspace, start))
        return all(any(_is_below(path, root) for root in self.around) for path in found)

    def has_all(self, targets: Iterable[str], starts: Sequence[str]) -> bool:
        """Says whether all targets lie inside, seen from any of the directories."""
        return all(self.has(target, start) for target in targets for start in starts)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")
