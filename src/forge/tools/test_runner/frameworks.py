"""Finds a project's tests and their framework, and builds the command line that runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Any, NamedTuple

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.tools.test_runner.reports import (
    ReportReader,
    read_cargo,
    read_go,
    read_jest,
    read_junit,
    read_tap,
    read_unittest,
)
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


# Builds the command line of each framework, and reads its reports.

_ENVIRONMENTS = (".venv", "venv", "env")


class ToolchainFolder(NamedTuple):
    """A toolchain's folder, which a sandbox would hide: its readable parts, never its secrets."""

    variable: str
    default: str  # below the person's own home
    shown: tuple[str, ...] = (".",)

    @property
    def path(self) -> Path:
        return Path(os.environ.get(self.variable) or Path.home() / self.default)

    @property
    def readable(self) -> list[Path]:
        return [path for name in self.shown if (path := self.path / name).is_dir()]


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework's command, report reader and installation advice."""

    command: Callable[[FoundTests], list[str]]
    read: ReportReader
    install: str
    shows: bool = True  # whether a person can read what it writes while it runs
    toolchains: tuple[ToolchainFolder, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned run."""

    framework: str
    how: Framework
    line: str
    program: str
    folder: str  # where, as a path of the workspace
    project: Location


def plan_run(scope: Scope, framework: str, target: str) -> Plan:
    """Plans the run. Raises `ToolError` if no command can be determined."""
    found = find_tests(scope, framework, target)
    how = FRAMEWORKS[found.framework]
    argv = how.command(found)
    is_below = found.framework == "node" and found.location is not None and is_directory(found.location)
    project = found.location if is_below and found.location is not None else found.project
    return Plan(found.framework, how, shlex.join(argv), argv[0], "" if project.shown == "." else project.shown, project)


def _pytest(found: FoundTests) -> list[str]:
    # To a file of its own it could not write where a sandbox hides it. Its report comes when nothing is captured.
    report = ["--tb=short", "--color=no", "-o", "junit_family=xunit1", "--junitxml=/dev/stderr"]
    return [_find_python(found), "-m", "pytest", *report, *_target(found, "-k")]


def _unittest(found: FoundTests) -> list[str]:
    start = [_find_python(found), "-m", "unittest"]
    if found.location is None and found.target:
        return [*start, "-v", found.target]
    if found.location is None or is_directory(found.location):
        folder = (
            found.target if found.location is not None and found.target != "." else _find_test_folder(found.project)
        )
        return [*start, "discover", "-v", *(["-s", folder] if folder else [])]
    path, separator, inside = found.target.partition("::")
    if not separator:
        return [*start, "-v", path]
    return [*start, "-v", ".".join([path.removesuffix(".py").replace("/", "."), *inside.split("::")])]


def _jest(found: FoundTests) -> list[str]:
    is_file = found.location is not None and not is_directory(found.location)
    start = [_find_program(found, "jest"), "--ci", "--json", *(["--runTestsByPath"] if is_file else [])]
    return [*start, *_target(found, "-t", splits=True)]


def _vitest(found: FoundTests) -> list[str]:
    return [_find_program(found, "vitest"), "run", "--reporter=json", *_target(found, "-t", splits=True)]


def _node(found: FoundTests) -> list[str]:
    start = ["node", "--test", "--test-reporter=tap"]
    path, _, inside = found.target.partition("::")
    if found.location is None:
        return [*start, *([f"--test-name-pattern={found.target}"] if found.target else [])]
    if is_directory(found.location):
        return start  # which is run there: only some versions take a directory
    return [*start, *([f"--test-name-pattern={inside}"] if inside else []), path]


def _go(found: FoundTests) -> list[str]:
    start = ["go", "test", "-json"]
    if found.location is None:
        return [*start, *(["-run", found.target] if found.target and found.target != "./..." else []), "./..."]
    path, _, inside = found.target.partition("::")
    if is_directory(found.location):
        return [*start, "./..." if path == "." else f"./{path}/..."]
    folder = os.path.dirname(path)
    return [*start, *(["-run", f"^{inside}$"] if inside else []), f"./{folder}" if folder else "."]


def _cargo(found: FoundTests) -> list[str]:
    start = ["cargo", "test", "--no-fail-fast"]
    if found.location is None:
        return [*start, *([found.target] if found.target else [])]
    path, _, inside = found.target.partition("::")
    folder, name = os.path.split(path)
    tests = ["--test", name.removesuffix(".rs")] if folder == "tests" and name.endswith(".rs") else []
    return [*start, *tests, *([inside] if inside else [])]


def _target(found: FoundTests, option: str, *, splits: bool = False) -> list[str]:
    """Returns the arguments for a target: a path unchanged, a name after the option for names."""
    if not found.target:
        return []
    if found.location is None:
        return [option, found.target]
    path, _, inside = found.target.partition("::")
    return [path, option, inside] if splits and inside else [found.target]


def _find_python(found: FoundTests) -> str:
    """Returns the Python of the project's environment, of the active one, or the system's."""
    for location in _list_parents(found.project):
        for name in _ENVIRONMENTS:
            path = os.path.join(location.path, name, "bin", "python")
            if os.access(path, os.X_OK):
                return os.path.relpath(path, found.project.path)
    active = os.path.join(os.environ.get("VIRTUAL_ENV") or "/nowhere", "bin", "python")
    return active if os.access(active, os.X_OK) else "python3"


def _find_program(found: FoundTests, name: str) -> str:
    for location in _list_parents(found.project):
        path = os.path.join(location.path, "node_modules", ".bin", name)
        if os.path.exists(path):
            return os.path.relpath(path, found.project.path)
    raise missing_error(name)


def _list_parents(location: Location) -> list[Location]:
    found = [location]
    while found[-1].relative != ".":
        found.append(found[-1].parent)
    return found


def _find_test_folder(project: Location) -> str:
    """Returns the folder where discovery must begin: it descends only into packages."""
    names = list_names(project)
    if any(name.startswith("test") and name.endswith(".py") for name in names):
        return ""
    folders = [name for name in ("tests", "test") if name in names]
    return next((name for name in folders if "__init__.py" not in list_names(project.child(name))), "")


def missing_error(framework: str, program: str = "") -> ToolError:
    what = f"{framework} is not installed" + (f" for {program}" if program else "")
    return ToolError(
        what, ErrorKind.CONFIG, f"Install it ({FRAMEWORKS[framework].install}), or name another framework."
    )


FRAMEWORKS = {
    "pytest": Framework(_pytest, read_junit, "pip install pytest"),
    "unittest": Framework(_unittest, read_unittest, "it comes with Python"),
    "jest": Framework(_jest, read_jest, "npm install", shows=False),
    "vitest": Framework(_vitest, read_jest, "npm install", shows=False),
    "node": Framework(_node, read_tap, "it comes with Node.js 18 or later"),
    "go": Framework(
        _go, read_go, "it comes with Go", shows=False, toolchains=(ToolchainFolder("GOMODCACHE", "go/pkg/mod"),)
    ),
    "cargo": Framework(
        _cargo,
        read_cargo,
        "it comes with Rust",
        toolchains=(
            ToolchainFolder("RUSTUP_HOME", ".rustup"),
            ToolchainFolder("CARGO_HOME", ".cargo", ("registry", "git")),
        ),
    ),
}
