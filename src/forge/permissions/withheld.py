"""Finds the paths that the policy withholds at this moment, to hide them from a program that was not asked about."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from forge.core.context import Scope
from forge.core.spec import Permission, ToolSpec
from forge.permissions.policy import Rules
from forge.permissions.questions import Decision
from forge.permissions.targets import CallJudge, paths
from forge.process.sandbox.layout import SETTINGS, SYSTEM, is_inside, is_inside_any

MOST_ENTRIES = 20_000  # entries of the workspace and the roots, in search of a name that is withheld at any depth
MOST_MATCHING = 1_000  # paths that a pattern may mean; each is judged
MOST_HIDDEN = 100  # each costs a mount

_WILD = re.compile(r"[*?\[]")


def withholds(spec: ToolSpec, scope: Scope, judge: CallJudge) -> bool:
    """Returns whether the policy forbids to read anything, or does not say."""
    policy = judge.policy
    return not isinstance(policy, Rules) or bool(_targets(policy, spec, scope)) or not _reads_by_default(judge)


def find_hidden_paths(
    spec: ToolSpec, scope: Scope, judge: CallJudge, *, searches: bool = False
) -> tuple[Path, ...] | None:
    """Returns the paths to hide so that no withheld path is read; None if they cannot be listed. `searches`: the paths
    that patterns mean are looked for, too.
    """
    policy = judge.policy
    if not isinstance(policy, Rules) or not _reads_by_default(judge):
        return None
    targets = _targets(policy, spec, scope)
    if not targets:
        return ()
    wild = [target for target in targets if _WILD.search(target)]
    if wild and not searches:
        return None
    named = _find_existing([target for target in targets if target not in wild], scope)
    matching = find_matching(wild, scope)
    if named is None or matching is None:
        return None
    found = dict.fromkeys([*named, *matching])
    hidden = [path for path in found if judge.judge(Permission.READ, path).decision is not Decision.ALLOW]
    if len(hidden) > MOST_HIDDEN:
        return None
    # a rule may allow a directory and still withhold what is in it
    return None if any(map(os.path.isdir, set(found) - set(hidden))) else tuple(map(Path, hidden))


def find_matching(patterns: Sequence[str], scope: Scope) -> list[str] | None:
    """Returns the existing paths whose last name fits that of a pattern, in the folders where the pattern may match:
    each has to be judged. None if there may be too many, or some of the system.
    """
    workspace = paths.roots(str(scope.workspace))[-1]
    found: dict[str, None] = {}
    left = MOST_ENTRIES
    for pattern in patterns:
        start, last = _split_pattern(pattern)
        if pattern.startswith(("/", "~")) and _may_be_of_system(start):
            return None
        folders = list(_match_path(os.path.join(workspace, start)))
        folders += [] if start else [str(root.path) for root in scope.roots]
        fits = re.compile(fnmatch.translate(paths.fold(last))).match
        found |= {one: None for one in SETTINGS if not start and fits(paths.fold(os.path.basename(one)))}
        while folders:
            folder = folders.pop()
            for entry in _list_names(folder):
                left -= 1
                path = os.path.join(folder, entry)
                if fits(paths.fold(entry)):
                    found[path] = None
                elif os.path.isdir(path) and not os.path.islink(path):
                    folders.append(path)
            if left < 0 or len(found) > MOST_MATCHING:
                return None
    return list(found)


def _split_pattern(pattern: str) -> tuple[str, str]:
    """Returns the folder before the first wildcard, and the last name."""
    names = os.path.expanduser(pattern).rstrip("/").split("/")
    first = next(number for number, name in enumerate(names) if _WILD.search(name))
    return "/".join(names[:first]) or ("/" if first else ""), names[-1]


def _may_be_of_system(start: str) -> bool:
    shown = (*SYSTEM, *SETTINGS)
    return is_inside_any(start, shown) or any(is_inside(one, start) for one in shown)


def _targets(policy: Rules, spec: ToolSpec, scope: Scope) -> list[str]:
    return policy.restricted_targets(spec, Permission.READ, scope)


def _reads_by_default(judge: CallJudge) -> bool:
    return bool(judge.judge(Permission.READ, "").decision is Decision.ALLOW)


def _find_existing(targets: Sequence[str], scope: Scope) -> list[str] | None:
    """Returns the existing paths that forbidding rules name; None if there are too many."""
    workspace = paths.roots(str(scope.workspace))[-1]
    anywhere = {paths.fold(target.rstrip("/")) for target in targets if "/" not in target.rstrip("/")}
    floating = {name for name in anywhere if name not in ("", ".", "..") and not name.startswith("~")}
    found: dict[str, None] = {}
    for target in targets:
        if paths.fold(target.rstrip("/")) not in floating:
            found |= dict.fromkeys(_match_path(os.path.join(workspace, os.path.expanduser(target))))
    if floating:
        named = _find_named(floating, [workspace, *(str(root.path) for root in scope.roots)])
        if named is None:
            return None
        found |= dict.fromkeys(named)
        found |= dict.fromkeys(one for one in SETTINGS if floating & set(paths.fold(one).split("/")))
    return list(found) if len(found) <= MOST_HIDDEN else None


def _match_path(path: str) -> Iterator[str]:
    """Yields the entries that a path may mean, ignoring case."""
    candidates = ["/"]
    for name in (paths.fold(one) for one in paths.normalise(path).split("/") if one):
        candidates = [
            os.path.join(candidate, entry)
            for candidate in candidates
            for entry in _list_names(candidate)
            if paths.fold(entry) == name
        ]
    yield from candidates


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # no directory, or one that the program cannot read either
        return []


def _find_named(names: set[str], folders: list[str]) -> list[str] | None:
    found, looked_at = [], 0
    while folders:
        folder = folders.pop()
        for entry in _list_names(folder):
            looked_at += 1
            if looked_at > MOST_ENTRIES:
                return None
            path = os.path.join(folder, entry)
            if paths.fold(entry) in names:
                found.append(path)
            elif os.path.isdir(path) and not os.path.islink(path):
                folders.append(path)
    return found
