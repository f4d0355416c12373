"""Builds a project for production in stages; the first stage with a problem stops the build.

Only the last stage writes to the disk, and then everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forge.core.errors import DefinitionError, ToolError
from forge.permissions.rules import PolicyError
from forge.project.build.compile import compile_guards
from forge.project.build.filter import filter_tools
from forge.project.build.load import load
from forge.project.build.manifest import manifest
from forge.project.build.record import Build, BuildOrder, Problem, Stage, StageRefused
from forge.project.build.resolve import resolve
from forge.project.build.schemas import schemas
from forge.project.build.validate import validate

STAGES: tuple[tuple[str, Stage], ...] = (
    ("load", load),  # forge.yaml, and the variables it needs
    ("resolve", resolve),  # the tools of all sources
    ("filter", filter_tools),  # production: no development tools, no open settings
    ("schemas", schemas),  # the arguments of each tool
    ("compile", compile_guards),  # policy, egress, guardrails
    ("manifest", manifest),  # every file with its hash
    ("validate", validate),  # written, read again, put in place
)


class BuildError(Exception):
    """A build that stopped: its stage and its problems."""

    def __init__(self, stage: str, problems: Iterable[Problem]) -> None:
        self.stage = stage
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{stage}: {problem}" for problem in self.problems))


def build(order: BuildOrder, report: Callable[[str, str], None] = lambda stage, words: None) -> Build:
    """Runs all stages. `report` is called when a stage begins (no words) and when it is done. Raises `BuildError`."""
    result = Build(order)
    for name, stage in STAGES:
        report(name, "")
        try:
            report(name, stage(result))
        except StageRefused as error:
            raise BuildError(name, error.problems) from error
        except ToolError as error:
            raise BuildError(name, [Problem(error.message, error.suggestion)]) from error
        except (DefinitionError, PolicyError, OSError) as error:
            raise BuildError(name, [Problem(" ".join(str(error).split()))]) from error
    return result
