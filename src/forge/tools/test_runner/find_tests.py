"""Which tests a project has, and the command line that runs them."""

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
class Found:
    """Where the tests of a project are run, and with what."""

    framework: str
    project: Location
    place: Location | None  # what the target names, if it is a path
    target: str  # as the framework takes it: a path below the project with a name in it, a name, or nothing


def find_tests(scope: Scope, framework: str, target: str) -> Found:
    """Raises `ToolError` where nothing is found, or more than one framework."""
    target = target.strip()
    _check(target)
    paths = PathValidator.of(scope)
    workspace = paths.resolve("", blank=True)
    place = _place(paths, target)
    language = _LANGUAGES.get(framework) or _ENDINGS.get(os.path.splitext(place.name)[1] if place else "")
    start = place if place is not None and is_directory(place) else place.parent if place is not None else workspace
    project = _project(start, language)
    if framework == "auto":
        framework = _detected(scope, project, start, language)
    return Found(framework, project, place, _below(project, place, target))


def _check(target: str) -> None:
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


def _place(paths: PathValidator, target: str) -> Location | None:
    """The file or directory that a target names, with or without the name of a test in it; None for a name alone."""
    path, separator, _ = target.partition("::")
    path = path.removesuffix("/...")  # how go names all packages below
    if not path:
        return None
    spelled = path.startswith(("/", "./", "../", "~")) or path in (".", "..")
    named = " " not in path and os.path.splitext(path)[1] in _ENDINGS
    try:
        place = paths.resolve(path)
        below = "/" in path and is_directory(paths.resolve(path.partition("/")[0] or "/"))
    except ToolError:
        if spelled or named:
            raise
        return None
    if status_of(place) is not None:
        return None if separator and is_directory(place) else place  # `tests::adds` is a name in Rust
    if spelled or named or below:
        raise ToolError(f"there is no {quote_path(path)}", ErrorKind.NOT_FOUND, "Look for it with glob_search.")
    return None


def is_directory(place: Location) -> bool:
    status = status_of(place)
    return status is not None and S_ISDIR(status.st_mode)


def _project(start: Location, language: str | None) -> Location:
    """The nearest directory above that says it is a project, or else the root."""
    markers = {name for one, names in _MARKERS.items() if language in (None, one) for name in names}
    place = start
    while True:
        if markers & names_in(place) or place.relative == ".":
            return place
        place = place.parent


def _below(project: Location, place: Location | None, target: str) -> str:
    if place is None:
        return target
    path = os.path.relpath(place.relative, project.relative)
    _, separator, inside = target.partition("::")
    return f"{path}{separator}{inside}"


def names_in(place: Location) -> frozenset[str]:
    if not is_directory(place):
        return frozenset()
    with explain_errors(place.shown):
        directory = open_directory(place)
        try:
            return frozenset(os.listdir(directory))
        finally:
            os.close(directory)


def _detected(scope: Scope, project: Location, start: Location, language: str | None) -> str:
    found = [
        framework
        for one, detect in (("python", _python), ("javascript", _javascript), ("go", _go), ("cargo", _cargo))
        if language in (None, one) and (framework := detect(scope, project, start))
    ]
    if not found:
        where = "the workspace" if project.shown == "." else quote_path(project.shown)
        raise ToolError(
            f"no tests were recognised in {where}",
            ErrorKind.NOT_FOUND,
            "Name the framework, or as the target the directory or file with the tests.",
        )
    if len(found) > 1:
        raise ToolError(
            f"there are tests for several frameworks: {', '.join(found)}",
            ErrorKind.VALIDATION,
            f'Name one of them, such as framework="{found[0]}".',
        )
    return found[0]


def _go(scope: Scope, project: Location, start: Location) -> str:
    return "go" if "go.mod" in names_in(project) else ""


def _cargo(scope: Scope, project: Location, start: Location) -> str:
    return "cargo" if "Cargo.toml" in names_in(project) else ""


def _python(scope: Scope, project: Location, start: Location) -> str:
    """pytest where anything says so; it runs the tests of unittest, but may not be installed."""
    names = names_in(project)
    if names & {"pytest.ini", "conftest.py"}:
        return "pytest"
    said: list[str] = [name for name in ("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile") if name in names]
    said += sorted(name for name in names if name.startswith("requirements") and name.endswith(".txt"))
    if any(_PYTEST_SAID.search(_text(scope, project.child(name))) for name in said):
        return "pytest"
    tests = _tests(project, start, _PYTHON_TEST)
    texts = [_text(scope, place) for place in tests[:MAX_LOOKED]]
    if any(place.name == "conftest.py" for place in tests) or any("pytest" in text for text in texts):
        return "pytest"
    if any("unittest" in text for text in texts):
        return "unittest"
    return "pytest" if tests else ""


def _tests(project: Location, start: Location, pattern: re.Pattern[str]) -> list[Location]:
    """Files that look like tests, where they usually are."""
    usual = [project.child(name) for name in ("tests", "test", "__tests__") if name in names_in(project)]
    folders = dict.fromkeys((start, project, *usual))
    found = [
        folder.child(name)
        for folder in folders
        for name in sorted(names_in(folder))
        if name == "conftest.py" or pattern.fullmatch(name)
    ]
    return [place for place in found if pattern is _PYTHON_TEST or place.name != "conftest.py"]


def _javascript(scope: Scope, project: Location, start: Location) -> str:
    names = names_in(project)
    package = _package(scope, project) if "package.json" in names else {}
    script = str(_mapping(package.get("scripts")).get("test", ""))
    wanted = {*_mapping(package.get("devDependencies")), *_mapping(package.get("dependencies")), *package}
    known = [
        one
        for one in ("vitest", "jest")
        if one in wanted or re.search(rf"\b{one}\b", script) or any(name.startswith(f"{one}.config.") for name in names)
    ]
    if len(known) > 1:  # the one that the project's own script uses
        known = [one for one in known if re.search(rf"\b{one}\b", script)] or known
    if known:
        return known[0]
    if "--test" in script or _tests(project, start, _NODE_TEST):
        return "node"
    return ""


def _package(scope: Scope, project: Location) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(_text(scope, project.child("package.json"))))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(scope: Scope, place: Location) -> str:
    """What a file says, for deciding only; nothing, where it cannot be read."""
    try:
        return read_file(scope, str(place.path), MAX_READ).decode(errors="replace")
    except ToolError:
        return ""
