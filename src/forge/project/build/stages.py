"""From a project to what is run in production: stages in order, the first that finds a problem stops the build.

Nothing is written before the last one, and then all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forge.project.build.compile import compile_guards
from forge.project.build.filter import filter_tools
from forge.project.build.load import load
from forge.project.build.manifest import manifest
from forge.project.build.record import Build, Order, Problem, Refused, Stage
from forge.project.build.resolve import resolve
from forge.project.build.schemas import schemas
from forge.project.build.validate import validate
from forge.core.errors import DefinitionError, ToolError
from forge.permissions.rule import PolicyError

STAGES: tuple[tuple[str, Stage], ...] = (
    ("load", load),  # forge.yaml, and the variables it needs
    ("resolve", resolve),  # the tools of all sources
    ("filter", filter_tools),  # production: no tools of developers', nothing left open
    ("schemas", schemas),  # what each tool takes
    ("compile", compile_guards),  # policy, egress, guardrails
    ("manifest", manifest),  # every file with its hash
    ("validate", validate),  # written, read again, put in place
)


class BuildError(Exception):
    """A build that stopped: at which stage, and why."""

    def __init__(self, stage: str, problems: Iterable[Problem]) -> None:
        self.stage = stage
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{stage}: {problem}" for problem in self.problems))


def build(order: Order, told: Callable[[str, str], None] = lambda stage, words: None) -> Build:
    """`told` hears of each stage when it begins, with no words, and when it is done. Raises `BuildError`."""
    made = Build(order)
    for name, stage in STAGES:
        told(name, "")
        try:
            told(name, stage(made))
        except Refused as error:
            raise BuildError(name, error.problems) from error
        except ToolError as error:
            raise BuildError(name, [Problem(error.message, error.suggestion)]) from error
        except (DefinitionError, PolicyError, OSError) as error:
            raise BuildError(name, [Problem(" ".join(str(error).split()))]) from error
    return made
