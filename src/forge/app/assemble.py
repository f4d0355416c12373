"""From a configuration and a person's wishes to an executor: the same steps and policy that guard an agent's calls."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forge.app.config import Configuration, load_configuration
from forge.app.egress import project_egress
from forge.app.own_tools import project_tools
from forge.app.policy import project_policy
from forge.app.secrets import project_secrets
from forge.app.skills import active_skills
from forge.app.sources import Sources
from forge.app.workspace import project_scope
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Step, ToolExecutor
from forge.core.registry import ToolRegistry
from forge.core.secrets import secrets_of
from forge.permissions.gate import Approver, PolicyGate, nobody
from forge.pipeline import standard_steps
from forge.pipeline.record import record, replay
from forge.skills.active import ActiveSkills
from forge.workspace.journal import recover_once
from forge.workspace.tracking import SessionState

if TYPE_CHECKING:  # only with --from
    from forge.app.built import Built

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person may ask for beside the configuration; paths as they were given."""

    workspace: str | None = None
    config: str | None = None
    policy: str | None = None
    session: str = "cli"
    dev: bool = False
    dry_run: bool = False
    record: str | None = None
    replay: str | None = None
    watch: bool = False  # look for the project's scripts again and again
    built: Built | None = None  # run this, and not the project

    @property
    def configuration(self) -> Configuration:
        """Raises `ToolError`."""
        return self.built.configuration if self.built is not None else load_configuration(self.config)


@dataclass(frozen=True, slots=True)
class Assembly:
    registry: ToolRegistry
    executor: ToolExecutor
    scope: Scope
    sources: Sources
    skills: ActiveSkills
    configuration: Configuration

    def opened(self, report: Callable[[str], None] = log.warning) -> AbstractAsyncContextManager[None]:
        """The project's sources are mounted while the block runs; what cannot be opened is reported and left out."""
        return self.sources.opened(self.registry, report)


def assemble(wishes: Wishes, approve: Approver = nobody) -> Assembly:
    """Raises `ToolError` or `PolicyError` where a file, a rule or the workspace cannot be used."""
    configuration, built = wishes.configuration, wishes.built
    secrets = project_secrets(configuration)
    scope = project_scope(wishes.workspace, configuration, wishes.session)
    sources = built.sources(scope.workspace) if built is not None else _sources(configuration, scope, wishes)
    skills = active_skills(configuration, scope)
    secrets.learn(os.environ.get(name, "") for name in skills.environment)
    registry = project_tools(
        configuration, scope.workspace, sources, lambda: skills, dev=wishes.dev or bool(built and built.dev)
    )
    for holder in (*sources.all.values(), *registry.values()):
        secrets.learn(secrets_of(holder))
    recover_once(scope)
    gate = PolicyGate(project_policy(configuration, wishes.policy), approve)
    state, egress = SessionState(scope.workspace), project_egress(configuration)
    if egress is not None:
        egress = egress.including(*skills.egress_domains)
    steps = standard_steps(gate, secrets, files=state, egress=egress, guarded=skills, dry=wishes.dry_run)
    steps = _with_wishes(steps, wishes)
    executor = ToolExecutor(registry, steps, secrets=secrets)
    if wishes.dev:
        _watch(executor)
    return Assembly(registry, executor, scope, sources, skills, configuration)


def _sources(configuration: Configuration, scope: Scope, wishes: Wishes) -> Sources:
    return Sources(configuration, scope.workspace, watch=wishes.watch)


def _watch(executor: ToolExecutor) -> None:
    """What happens is recorded from the beginning, for the console of developers."""
    from forge.tools.debug_console import DebugConsole  # only with --dev

    console = executor.registry.get("debug_console")
    if isinstance(console, DebugConsole):
        console.watch(executor)


def _with_wishes(steps: list[Step], wishes: Wishes) -> list[Step]:
    outer = [record(_writable(wishes.record))] if wishes.record is not None else []
    if wishes.replay is not None:
        outer.append(_replayed(wishes.replay))
    return [*steps[:1], *outer, *steps[1:]]  # inside trace, outside everything else


def _writable(path: str) -> Path:
    """Found out before the first call runs, not after it. A new file is readable by its owner alone."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return Path(path)
    except (OSError, ValueError) as error:
        raise _unusable("record to", path, error) from None


def _replayed(path: str) -> Step:
    try:
        return replay(path)
    except (OSError, ValueError) as error:
        raise _unusable("replay", path, error) from None


def _unusable(doing: str, path: str, error: Exception) -> ToolError:
    problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ToolError(f"cannot {doing} {path!r}: {problem}", ErrorKind.CONFIG, "Name another file.")
