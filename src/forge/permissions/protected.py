"""Protects files that no tool may write unless a rule names them: Git's, Forge's own, and those that start code."""

from __future__ import annotations

from forge.core.context import Scope
from forge.core.spec import Permission
from forge.permissions.request import Decision, Ruling
from forge.permissions.targets import Opaque, paths

ARTEFACTS = ".forge/files"  # what `file_create` makes is no state of Forge's

_HOOK = "a Git hook (core.hooksPath)"
_STATE, _CONFIGURATION, _SKILL = "Forge's own state", "Forge's configuration", "a skill, with its guardrails,"


def protect(ruling: Ruling, permission: Permission | None, target: str, scope: Scope) -> Ruling:
    """Returns the ruling, or a deny where the target is protected and the deciding rule does not name it."""
    if permission is not Permission.WRITE or ruling.decision is Decision.DENY or not target:
        return ruling
    found = find_protection(target, scope)
    if found is None:
        return ruling
    name, what = found
    if ruling.decision is Decision.ALLOW and name in ruling.rule:
        return ruling
    return Ruling(Decision.DENY, f"its protection: {what} may be written only where a rule names it", rule="")


def find_protection(target: str, scope: Scope) -> tuple[str, str] | None:
    """Returns the protected name that a path leads to, and its kind; None if it is not protected."""
    if isinstance(target, Opaque) or len(target) > paths.LONGEST or "\0" in target:
        return None
    around = paths.roots(str(scope.workspace))
    for path in paths.spellings(target, around[0]):
        names = _names_below(paths.fold(path), tuple(map(paths.fold, around)))
        if (
            found := _find_protected(names)
            or _find_skill(paths.fold(path), scope, around)
            or _find_hook(paths.fold(path), scope)
        ):
            return found
    return None


def _find_hook(path: str, scope: Scope) -> tuple[str, str] | None:
    """Finds a hook in a folder that the repository's settings name, such as `.husky`."""
    from forge.process.git_hooks import hook_folders  # a run that writes no file needs none

    for root in (scope.workspace, *(root.path for root in scope.roots)):
        for folder in hook_folders(str(root)):
            for start in paths.roots(str(root)):
                hooks = paths.fold(f"{start.rstrip('/')}/{folder}")
                if path == hooks or path.startswith(f"{hooks}/"):
                    return folder, _HOOK
    return None


def _find_skill(path: str, scope: Scope, around: tuple[str, ...]) -> tuple[str, str] | None:
    """Finds a skill in a folder of any name that the project lists."""
    if not path.endswith(".md"):
        return None
    for folder in scope.skills:
        for root in (one for start in around for one in paths.spellings(folder, start)):
            inner = path.removeprefix(f"{paths.fold(root).rstrip('/')}/")
            if inner != path and ("/" not in inner or inner.endswith("/skill.md")):
                return folder, _SKILL
    return None


def _names_below(path: str, around: tuple[str, ...]) -> list[str]:
    """Returns the names below the workspace, or of the whole path where it lies elsewhere."""
    for root in around:
        if path == root or path.startswith(f"{root.rstrip('/')}/"):
            path = path[len(root) :]
            break
    return [name for name in path.split("/") if name]


def _find_protected(names: list[str]) -> tuple[str, str] | None:
    for position, name in enumerate(names):
        if name == ".git":
            return name, "a file inside .git"
        if name == ".forge" and "/".join(names[position : position + 2]) != ARTEFACTS:
            return name, _STATE
        if name == "skills" and names[-1].endswith(".md") and (names[-1] == "skill.md" or position == len(names) - 2):
            return name, _SKILL
    if names and names[-1] in ("forge.yaml", "forge.yml"):
        return "forge.y", _CONFIGURATION
    return None
