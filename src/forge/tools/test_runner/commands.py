"""Builds the command line of each framework, and reads its reports."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.tools.test_runner.cargo import read_cargo
from forge.tools.test_runner.find_tests import FoundTests, find_tests, is_directory, list_names
from forge.tools.test_runner.go import read_go
from forge.tools.test_runner.jest import read_jest
from forge.tools.test_runner.junit import read_junit
from forge.tools.test_runner.report import ReportReader
from forge.tools.test_runner.tap import read_tap
from forge.tools.test_runner.unittest_output import read_unittest
from forge.workspace.paths import Location

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
