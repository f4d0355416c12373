"""Finds a project's tests and their framework."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from stat import S_ISDIR
from typing import Any

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Location, PathValidator, quote_path
from forge.workspace.paths.open import explain_errors, open_directory, read_file, status_of

MAX_TARGET = 4_000  # characters
MAX_READ = 1024 * 1024  # bytes of a file that says what a project is
MAX_LOOKED = 20  # test files that are looked into

_MARKERS = {
    "python": ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini"),
    "javascript": ("package.json",),
    "go": ("go.mod",),
    "cargo": ("Cargo.toml",),
}
_LANGUAGES = {
    **dict.fromkeys(("pytest", "unittest"), "python"),
    **dict.fromkeys(("jest", "vitest", "node"), "javascript"),
    "go": "go",
    "cargo": "cargo",
}
_ENDINGS = {
    ".py": "python",
    ".go": "go",
    ".rs": "cargo",
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), "javascript"),
}
_PYTHON_TEST = re.compile(r"test_.*\.py|.*_test\.py|test\.py|tests\.py")
_NODE_TEST = re.compile(r".*[._-]test\.[cm]?js|test-.*\.[cm]?js|test\.[cm]?js")
_PYTEST_SAID = re.compile(r"\[(?:tool[.:])?pytest|(?:^|[\"'\s])pytest\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundTests:
    """The location and framework of a project's tests."""

    framework: str
    project: Location
    location: Location | None  # what the target names, if it is a path
    target: str  # as the framework takes it: a path below the project with a name in it, a name, or nothing


def find_tests(scope: Scope, framework: str, target: str) -> FoundTests:
    """Finds the tests. Raises `ToolError` if there are none, or more than one framework."""
    target = target.strip()
    _check_target(target)
    paths = PathValidator.of(scope)
    workspace = paths.resolve("", blank=True)
    location = _resolve_target(paths, target)
    language = _LANGUAGES.get(framework) or _ENDINGS.get(os.path.splitext(location.name)[1] if location else "")
    start = (
        location
        if location is not None and is_directory(location)
        else location.parent
        if location is not None
        else workspace
    )
    project = _find_project(start, language)
    if framework == "auto":
        framework = _detect_framework(scope, project, start, language)
    return FoundTests(framework, project, location, _target_below(project, location, target))


def _check_target(target: str) -> None:
    problem = (
        f"it has more than {MAX_TARGET:,} characters"
        if len(target) > MAX_TARGET
        else "it begins with a dash, as an option does"
        if target.startswith("-")
        else "it contains control characters"
        if any(ord(character) < 32 for character in target)
        else ""
    )
    if problem:
        raise ToolError(f"the target cannot be used: {problem}", ErrorKind.VALIDATION, "Name a file, or a test.")


def _resolve_target(paths: PathValidator, target: str) -> Location | None:
    """Returns the file or directory in a target, with or without a test's name; None for a name alone."""
    path, separator, _ = target.partition("::")
    path = path.removesuffix("/...")  # how go names all packages below
    if not path:
        return None
    spelled = path.startswith(("/", "./", "../", "~")) or path in (".", "..")
    named = " " not in path and os.path.splitext(path)[1] in _ENDINGS
    try:
        location = paths.resolve(path)
        below = "/" in path and is_directory(paths.resolve(path.partition("/")[0] or "/"))
    except ToolError:
        if spelled or named:
            raise
        return None
    if status_of(location) is not None:
        return None if separator and is_directory(location) else location  # `tests::adds` is a name in Rust
    if spelled or named or below:
        raise ToolError(f"there is no {quote_path(path)}", ErrorKind.NOT_FOUND, "Look for it with glob_search.")
    return None


def is_directory(location: Location) -> bool:
    status = status_of(location)
    return status is not None and S_ISDIR(status.st_mode)


def _find_project(start: Location, language: str | None) -> Location:
    """Returns the nearest directory above with a project file, or else the root."""
    markers = {name for one, names in _MARKERS.items() if language in (None, one) for name in names}
    location = start
    while True:
        if markers & list_names(location) or location.relative == ".":
            return location
        location = location.parent


def _target_below(project: Location, location: Location | None, target: str) -> str:
    if location is None:
        return target
    path = os.path.relpath(location.relative, project.relative)
    _, separator, inside = target.partition("::")
    return f"{path}{separator}{inside}"


def list_names(location: Location) -> frozenset[str]:
    if not is_directory(location):
        return frozenset()
    with explain_errors(location.shown):
        directory = open_directory(location)
        try:
            return frozenset(os.listdir(directory))
        finally:
            os.close(directory)


def _detect_framework(scope: Scope, project: Location, start: Location, language: str | None) -> str:
    found = [
        framework
        for one, detect in (
            ("python", _detect_python),
            ("javascript", _detect_javascript),
            ("go", _detect_go),
            ("cargo", _detect_cargo),
        )
        if language in (None, one) and (framework := detect(scope, project, start))
    ]
    if not found:
        where = "the workspace" if project.shown == "." else quote_path(project.shown)
        raise ToolError(
            f"no tests were recognised in {where}",
            ErrorKind.NOT_FOUND,
            "Name the framework, or give the directory or file with the tests as the target.",
        )
    if len(found) > 1:
        raise ToolError(
            f"there are tests for several frameworks: {', '.join(found)}",
            ErrorKind.VALIDATION,
            f'Name one of them, such as framework="{found[0]}".',
        )
    return found[0]


def _detect_go(scope: Scope, project: Location, start: Location) -> str:
    return "go" if "go.mod" in list_names(project) else ""


def _detect_cargo(scope: Scope, project: Location, start: Location) -> str:
    return "cargo" if "Cargo.toml" in list_names(project) else ""


def _detect_python(scope: Scope, project: Location, start: Location) -> str:
    """Chooses pytest if a file mentions it; pytest also runs unittest's tests, but may not be installed."""
    names = list_names(project)
    if names & {"pytest.ini", "conftest.py"}:
        return "pytest"
    said: list[str] = [name for name in ("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile") if name in names]
    said += sorted(name for name in names if name.startswith("requirements") and name.endswith(".txt"))
    if any(_PYTEST_SAID.search(_read_text(scope, project.child(name))) for name in said):
        return "pytest"
    tests = _find_test_files(project, start, _PYTHON_TEST)
    texts = [_read_text(scope, location) for location in tests[:MAX_LOOKED]]
    if any(location.name == "conftest.py" for location in tests) or any("pytest" in text for text in texts):
        return "pytest"
    if any("unittest" in text for text in texts):
        return "unittest"
    return "pytest" if tests else ""


def _find_test_files(project: Location, start: Location, pattern: re.Pattern[str]) -> list[Location]:
    """Returns files that look like tests, in the usual directories."""
    usual = [project.child(name) for name in ("tests", "test", "__tests__") if name in list_names(project)]
    folders = dict.fromkeys((start, project, *usual))
    found = [
        folder.child(name)
        for folder in folders
        for name in sorted(list_names(folder))
        if name == "conftest.py" or pattern.fullmatch(name)
    ]
    return [location for location in found if pattern is _PYTHON_TEST or location.name != "conftest.py"]


def _detect_javascript(scope: Scope, project: Location, start: Location) -> str:
    names = list_names(project)
    package = _read_package(scope, project) if "package.json" in names else {}
    script = str(_as_mapping(package.get("scripts")).get("test", ""))
    wanted = {*_as_mapping(package.get("devDependencies")), *_as_mapping(package.get("dependencies")), *package}
    known = [
        one
        for one in ("vitest", "jest")
        if one in wanted or re.search(rf"\b{one}\b", script) or any(name.startswith(f"{one}.config.") for name in names)
    ]
    if len(known) > 1:  # the one that the project's own script uses
        known = [one for one in known if re.search(rf"\b{one}\b", script)] or known
    if known:
        return known[0]
    if "--test" in script or _find_test_files(project, start, _NODE_TEST):
        return "node"
    return ""


def _read_package(scope: Scope, project: Location) -> Mapping[str, Any]:
    try:
        return _as_mapping(json.loads(_read_text(scope, project.child("package.json"))))
    except (ValueError, RecursionError):
        return {}


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _read_text(scope: Scope, location: Location) -> str:
    """Reads a file, for detection only; returns an empty text if it cannot be read."""
    try:
        return read_file(scope, str(location.path), MAX_READ).decode(errors="replace")
    except ToolError:
        return ""
