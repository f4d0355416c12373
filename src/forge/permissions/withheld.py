"""Finds the paths that the policy withholds at this moment, to hide them from a program that was not asked about."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from forge.core.context import Scope
from forge.core.spec import Permission, ToolSpec
from forge.permissions.policy import Rules
from forge.permissions.questions import Decision
from forge.permissions.targets import CallJudge, paths
from forge.process.sandbox.layout import SETTINGS

MOST_ENTRIES = 20_000  # entries of the workspace and the roots, in search of a name that is withheld at any depth
MOST_HIDDEN = 100  # each costs a mount

_WILD = re.compile(r"[*?\[]")


def withholds(spec: ToolSpec, scope: Scope, judge: CallJudge) -> bool:
    """Returns whether the policy forbids to read anything, or does not say."""
    policy = judge.policy
    return not isinstance(policy, Rules) or bool(_targets(policy, spec, scope)) or not _reads_by_default(judge)


def find_hidden_paths(spec: ToolSpec, scope: Scope, judge: CallJudge) -> tuple[Path, ...] | None:
    """Returns the paths to hide so that no withheld path is read; None if they cannot be listed."""
    policy = judge.policy
    if not isinstance(policy, Rules) or not _reads_by_default(judge):
        return None
    targets = _targets(policy, spec, scope)
    if not targets:
        return ()
    if any(_WILD.search(target) for target in targets):
        return None
    found = _find_existing(targets, scope)
    if found is None:
        return None
    hidden = [path for path in found if judge.judge(Permission.READ, path).decision is not Decision.ALLOW]
    # a rule may allow a directory and still withhold what is in it
    return None if any(map(os.path.isdir, set(found) - set(hidden))) else tuple(map(Path, hidden))


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
