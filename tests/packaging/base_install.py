"""Runs Forge as a base install does: only the packages that it requires without extras can be imported."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import programs
from tests.cli.conftest import Ended, environment

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

_BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
blocked = set(sys.argv.pop(1).split())
sys.meta_path.insert(0, Blocked())
for name in [name for name in sys.modules if name.partition(".")[0] in blocked]:
    del sys.modules[name]
"""
_COMMANDS = """
import json, os, sys
from forge.cli import perform
ended = []
for number, arguments in enumerate(json.loads(sys.argv[1])):
    for stream in (1, 2):
        os.dup2(os.open(f"{number}.{stream}", os.O_CREAT | os.O_WRONLY, 0o600), stream)
    code = perform(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    ended.append(code)
with open("codes", "w") as file:
    json.dump(ended, file)
"""


@cache
def base_distributions() -> frozenset[str]:
    """Returns the names of Forge and of everything that it requires, directly or not, without extras."""
    found: set[str] = {canonicalize_name(PROJECT["name"])}
    waiting = [Requirement(one) for one in PROJECT["dependencies"]]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in found:
            continue
        found.add(name)
        extras = wanted.extras or {""}
        required = map(Requirement, distribution(name).requires or ())
        waiting += [
            one for one in required if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras)
        ]
    return frozenset(found)


@cache
def other_modules() -> frozenset[str]:
    """Returns the importable names that no distribution of a base install has; pip is there, as in any environment."""
    found = {
        module
        for module, names in packages_distributions().items()
        if not {canonicalize_name(name) for name in names} & base_distributions()
    }
    return frozenset(found - {"pip", "_distutils_hack"})


def run_without_extras(code: str, folder: Path, *arguments: str) -> Ended:
    """Runs code in a process that can import nothing but a base install. Its standard input is empty."""
    return _run(subprocess.run, _BLOCK + code, folder, " ".join(other_modules()), *arguments)


def run_with_extras(code: str, folder: Path, *arguments: str) -> Ended:
    """Runs the same code where everything can be imported."""
    return _run(programs.run, f"import sys\n{code}", folder, *arguments)


def run_commands(run: Any, folder: Path, commands: Mapping[str, Sequence[str]]) -> dict[str, Ended]:
    """Runs commands of `forge` one after the other in one process, because each process takes a second to start."""
    done = run(_COMMANDS, folder, json.dumps(list(commands.values())))
    codes = json.loads((folder / "codes").read_text())
    assert len(codes) == len(commands), done
    return {
        name: Ended(codes[number], *((folder / f"{number}.{stream}").read_text() for stream in (1, 2)))
        for number, name in enumerate(commands)
    }


def _run(run: Callable[..., Any], code: str, folder: Path, *arguments: str) -> Ended:
    variables = environment(AGENT_WORKSPACE_ROOT=None, FORGE_DATABASE=None, FORGE_MODEL=None)
    done = run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
