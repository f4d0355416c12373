"""Holds the state of a build: its order, and the results of its stages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.spec import Category, ToolSpec
from forge.project.config.declaration import Configuration

if TYPE_CHECKING:  # loaded where a project has skills
    from forge.skills.active import ActiveSkills
    from forge.skills.skill import Skill

MANIFEST = "build-manifest.json"
AGENT = "agent.json"
PROJECT = "compiled/project.json"
POLICY = "compiled/policy.json"
EGRESS = "compiled/egress.json"
GUARDRAILS = "compiled/guardrails.json"
PINS = "compiled/pins.json"
SCHEMAS = "tools"
SCRIPTS = "scripts"
SKILLS = "skills"
DOCUMENTS = "openapi"
FORMAT = 1  # version of the manifest

_UNSAFE = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufff0-\uffff]")  # YAML reads them as other characters

_MARK = "\ue0f0"  # around a number that is written without quotes
_NUMBER = re.compile(f'"{_MARK}([-0-9.]+){_MARK}"')


class BuildOrder(NamedTuple):
    """The order of a person for a build."""

    config: str  # the project's forge.yaml; a `Found` is read only if it is trusted
    workspace: Path
    output: Path
    named: bool = False  # the workspace was named, so that of forge.yaml does not count
    prod: bool = False
    dev: bool = False

    @property
    def mode(self) -> str:
        return "prod" if self.prod else "dev" if self.dev else "plain"


class StageProblem(NamedTuple):
    """The reason why a stage cannot continue, and the advice."""

    text: str
    advice: str = ""

    def __str__(self) -> str:
        said = self.text if self.text.endswith((".", "!", "?")) or not self.advice else f"{self.text}."
        return f"{said} {self.advice}".rstrip()


class StageRefused(Exception):
    """Raised by a stage with all problems that it found."""

    def __init__(self, problems: Iterable[StageProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class OutputFile(NamedTuple):
    """A file of the output."""

    content: bytes
    executable: bool = False


class RemoteTool(NamedTuple):
    """A tool of an MCP server: its name there, its approval state, and its definition."""

    server: str
    remote: str
    state: str
    definition: dict[str, Any]


@dataclass(slots=True)
class Build:
    """The state that goes from stage to stage. Nothing is on disk before the last one."""

    order: BuildOrder
    document: dict[str, Any] = field(default_factory=dict)  # forge.yaml as it was written
    configuration: Configuration = field(default_factory=Configuration)  # the project's alone
    effective: Configuration = field(default_factory=Configuration)  # with this machine's layers
    required: dict[str, list[str]] = field(default_factory=dict)  # variable -> key paths that name it
    optional: set[str] = field(default_factory=set)  # variables
    key: str = ""  # the variable of the model's provider
    tools: dict[str, ToolSpec] = field(default_factory=dict)
    remote: dict[str, RemoteTool] = field(default_factory=dict)  # the tools of MCP servers, by their name here
    sources: list[dict[str, Any]] = field(default_factory=list)
    skills: list[Skill] = field(default_factory=list)  # the project's own
    active: ActiveSkills | None = None
    source_problems: list[StageProblem] = field(default_factory=list)
    project: dict[str, Any] = field(default_factory=dict)  # the document as a run reads it
    files: dict[str, OutputFile] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sha256: str = ""  # of the manifest

    @property
    def counts(self) -> dict[str, int]:

        found = {str(category): 0 for category in Category}
        for spec in self.tools.values():
            found[str(spec.category)] += 1
        return {**found, "total": len(self.tools)}


Stage = Callable[[Build], str]
"""Works on the build, and returns a few words about its result. Raises `Refused`, or errors of the parts it uses."""


def to_bytes(value: Any) -> bytes:
    """Returns the same bytes for the same value on every machine; they are JSON and also YAML."""
    text = json.dumps(_without_exponents(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (_UNSAFE.sub(_escape, _NUMBER.sub(r"\1", text)) + "\n").encode()


def _without_exponents(value: Any) -> Any:
    """Writes numbers without an exponent, which YAML would read as a text."""
    if isinstance(value, float) and "e" in repr(value):
        plain = format(Decimal(repr(value)), "f")
        return f"{_MARK}{plain if '.' in plain else f'{plain}.0'}{_MARK}"
    if isinstance(value, Mapping):
        return {key: _without_exponents(one) for key, one in value.items()}
    return [_without_exponents(one) for one in value] if isinstance(value, list | tuple) else value


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()
