"""A project: a directory with settings, tools, rules and skills, and the agent built from them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from forge.agent.agent import Agent, find_override
from forge.agent.context_window import find_window
from forge.agent.shown_results import ContextRules
from forge.agent.subagent import Task
from forge.core.context import LOCAL
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Step
from forge.core.provider import Provider, expects_calls
from forge.core.registry import ToolRegistry
from forge.core.secrets import Secrets, secrets_of
from forge.memory.embedders import MiniLM, is_minilm_installed
from forge.models.vendors import ModelWithoutKey, provider_for
from forge.permissions.gate import PolicyGate
from forge.permissions.questions import Approver, nobody
from forge.pipeline import standard_steps
from forge.pipeline.record import record, replay
from forge.project.assemble.access import project_egress, project_policy, project_scope
from forge.project.assemble.agents import add_task, agent_types, choose_model, limits_of
from forge.project.assemble.choose_tools import apply_settings, defer_tools
from forge.project.assemble.knowledge import active_skills, skills_prompt
from forge.project.assemble.secrets import project_secrets
from forge.project.assemble.sources import Sources
from forge.project.assemble.tools import project_tools
from forge.project.config.access import Trial
from forge.project.config.declaration import Configuration
from forge.project.config.load import load_configuration
from forge.project.config.merging import stricter_trial
from forge.project.system_prompt import read_instructions, system_prompt
from forge.project.trust import find_accepted_config, trust_state
from forge.tools.debug_console import DebugConsole
from forge.tools.tool_search import ToolSearch
from forge.workspace.changes.journal import recover_once
from forge.workspace.history.tracking import SessionState

if TYPE_CHECKING:
    from forge.models.server_tools import ServerTool
    from forge.project.build.built import Built


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a person in addition to the configuration; paths are unchanged."""

    workspace: str | None = None
    config: str | None = None
    policy: str | None = None
    session: str = "cli"
    dev: bool = False
    dry_run: bool = False
    record: str | None = None
    replay: str | None = None
    watch: bool = False  # reload the project's scripts when they change
    built: Built | None = None  # run this instead of the project
    code_mode: bool = False  # as if the configuration said so
    trial: Trial | None = None  # instead of what the configuration says
    copy_of: Path | None = None  # the project that the workspace was copied from, as an evaluation does

    @property
    def configuration(self) -> Configuration:
        """The configuration to use. Raises `ToolError`."""
        return self.built.configuration if self.built is not None else load_configuration(self.config)


class Project:
    """A directory and its setup. `load_project` loads one; `agent` builds the agent that works in it.

    Args:
        options: the workspace, the configuration and the flags.
        report: receives what cannot be opened, such as a server.

    Example:
        >>> load_project(".").agent(Scripted("Hello!")).run_sync("Hi").text
        'Hello!'
    """

    def __init__(self, options: RunOptions, report: Callable[[str], None] = log.warning) -> None:
        """Raises `ToolError` or `PolicyError` if a file, a rule or the workspace cannot be used.

        `report` receives sources that cannot be opened, such as a server that does not answer; they are left out.
        """
        self.options = options
        self.configuration = options.configuration
        self.scope = project_scope(options.workspace, self.configuration, options.session)
        self.secrets: Secrets = project_secrets(self.configuration)
        built = options.built
        self.sources = (
            built.sources(self.scope.workspace)
            if built is not None
            else Sources(self.configuration, self.scope.workspace, watch=options.watch, copy_of=options.copy_of)
        )
        self.skills = active_skills(self.configuration, self.scope, options.copy_of)
        self.policy = project_policy(self.configuration, options.policy)
        self._report = report
        self._reported: set[str] = set()

    @property
    def workspace(self) -> Path:
        return self.scope.workspace

    def agent(
        self,
        model: str | Provider | None = None,
        *,
        with_model: bool = True,
        turns: int | None = None,
        approve: Approver | None = nobody,
    ) -> Agent:
        """Builds the project's agent. `model` replaces the configured one.

        With `with_model=False` it has none: its tools can be called, but it cannot run. Raises `ToolError` if the model
        or another part cannot be used.
        """
        configuration, options = self.configuration, self.options
        is_dev = options.dev or (options.built.dev if options.built is not None else False)
        registry = project_tools(configuration, self.workspace, self.sources, lambda: self.skills, dev=is_dev)
        self._learn_secrets(registry)
        recover_once(self.scope)
        if with_model:
            configuration.check_set()  # an agent needs everything that is configured
            if model is None or isinstance(model, str):
                model = choose_model(configuration, model, self._report)
            self._read_files()  # reports the files that are left out before the first request
        limits = limits_of(configuration.agent.limits)
        agent: Agent = Agent(
            model if with_model else None,
            tools=registry,
            instructions=lambda: self._instructions(registry),
            policy=self.policy,
            approve=approve,
            limits=replace(limits, turns=turns) if turns is not None else limits,
            options=configuration.agent.options,
            server_tools=_server_tools(configuration),
            secrets=self.secrets,
            steps=self._steps,
            context=ContextRules(**configuration.context),
            name=self.scope.agent,
            scope=self.scope,
            guard=self.skills,
            code_mode=configuration.agent.code_mode or options.code_mode,
            labels=configuration.labels.settings,
            trial=_choose_trial(configuration, options.trial),
            trace_content=configuration.agent.trace_content,
        )
        if configuration.all_hooks:
            from forge.project.assemble.hooks import add_hooks  # few projects have them

            add_hooks(agent, configuration)
        if isinstance(agent.provider, ModelWithoutKey):
            raise agent.provider.problem  # a person at a terminal learns it before the first question
        rank_tools_by_meaning(registry, configuration)
        if self.sources.all:
            agent.while_open(lambda: self.sources.mount(registry, self._report, find_override(agent).gate.approve))
        if agent.provider is not None:
            agent.window = find_window(agent.provider)
            defer_tools(registry, configuration, ends_by_call=expects_calls(agent.provider))
            registry.add(apply_settings(Task(lambda: agent, agent_types(configuration)), configuration))
        if options.dev:
            _record_for_console(agent)
        return agent

    def add_task(self, agent: Agent) -> None:
        """Gives an agent without a model the tool `task`, as the project's agent has it."""

        def parent() -> Agent:
            model = self.configuration.agent.model
            return agent.replace(model=provider_for(model)) if model else agent

        add_task(agent.registry, self.configuration, parent)

    def _learn_secrets(self, registry: ToolRegistry) -> None:
        self.secrets.learn(os.environ.get(name, "") for name in self.skills.environment)
        for holder in (*self.sources.all.values(), *registry.values()):
            self.secrets.learn(secrets_of(holder))

    def _instructions(self, registry: ToolRegistry) -> str:
        skills = skills_prompt(self.skills) if "read_skill" in registry.names else ""  # only if the model can read them
        return system_prompt(self.workspace, self.configuration.agent.prompt, self._read_files(), skills)

    def _read_files(self) -> str:
        """Returns the text of AGENTS.md and the like. Reports each file that is left out or cut, once."""
        if self.options.built is not None or not self.configuration.agent.instruction_files:
            return ""
        found = read_instructions(self.workspace)
        for note in found.notes:
            if note not in self._reported:
                self._reported.add(note)
                self._report(note)
        return found.text

    def _steps(self, gate: PolicyGate, secrets: Secrets) -> list[Step]:
        egress = project_egress(self.configuration)
        if egress is not None:
            egress = egress.including(*self.skills.egress_domains)
        files, dry = SessionState(self.workspace), self.options.dry_run
        steps = standard_steps(gate, secrets, files=files, egress=egress, guarded=self.skills, dry=dry)
        return _with_recordings(steps, self.options)

    def __repr__(self) -> str:
        return f"<Project {self.workspace}>"


def load_project(
    path: str | os.PathLike[str] = ".",
    *,
    config: str | os.PathLike[str] | None = None,
    policy: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = log.warning,
) -> Project:
    """Loads the project in a directory, with the `forge.yaml` that a person trusts (`forge trust`), or with
    none.

    Raises `ToolError` for a `forge.yaml` that no one accepted, and for parts that cannot be used.

    Args:
        path: the directory.
        config: a configuration file to be used as it is.
        policy: a file with further rules.
        report: receives servers and other sources that cannot be opened.

    Example:
        >>> project = load_project(".")
        >>> asyncio.run(project.agent(with_model=False).call("math_calculate", {"expression": "6 * 7"})).for_llm
        '42'
    """
    directory = os.fspath(path)
    options = RunOptions(
        workspace=directory,
        config=os.fspath(config) if config is not None else require_trust(directory),
        policy=os.fspath(policy) if policy is not None else None,
        session=LOCAL,
    )
    return Project(options, report)


def require_trust(directory: str) -> str | None:
    """Returns the trusted `forge.yaml` of a directory; None if it has none. Raises `ToolError` for an untrusted one."""
    accepted = find_accepted_config(directory)
    if accepted is None and (now := trust_state(directory)).status == "new":
        message = f"cannot load the project in {directory!r}: its {now.path.name} is not trusted"
        hint = "Run `forge trust` in that directory to review and trust it, or pass a file with load_project(config=…)."
        raise ToolError(message, ErrorKind.CONFIG, hint)
    return accepted


def _record_for_console(agent: Agent) -> None:
    """Records events from the beginning, for the developers' console."""

    console = agent.registry.get("debug_console")
    if isinstance(console, DebugConsole):
        console.watch(agent.executor)


def _with_recordings(steps: list[Step], options: RunOptions) -> list[Step]:
    outer: list[Any] = [record(_check_writable(options.record))] if options.record is not None else []
    if options.replay is not None:
        outer.append(_replay_file(options.replay))
    return [*steps[:1], *outer, *steps[1:]]  # inside trace, outside everything else


def _check_writable(path: str) -> Path:
    """Checks the file before the first call runs. A new file is readable by its owner only."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return Path(path)
    except (OSError, ValueError) as error:
        raise _unusable_file("record to", path, error) from None


def _replay_file(path: str) -> Step:
    try:
        return replay(path)
    except (OSError, ValueError) as error:
        raise _unusable_file("replay", path, error) from None


def _unusable_file(doing: str, path: str, error: Exception) -> ToolError:
    problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ToolError(f"cannot {doing} {path!r}: {problem}", ErrorKind.CONFIG, "Choose another file.")


def _server_tools(configuration: Configuration) -> Sequence[ServerTool]:
    if not configuration.agent.server_tools:
        return ()
    from forge.models.server_tools import read_server_tools  # few projects use them

    return read_server_tools(configuration.agent.server_tools)


# Lets `tool_search` rank tools by meaning, with the embedder that runs on this machine.


def rank_tools_by_meaning(registry: ToolRegistry, configuration: Configuration) -> None:
    """Gives `tool_search` the local embedder, if it is installed and the project allows it.

    A server that `memory.embedder` names is not used: no one agreed to send it the tools.
    """
    search = registry.get("tool_search")
    if isinstance(search, ToolSearch) and configuration.agent.tool_search == "meaning" and is_minilm_installed():
        search.rank_by_meaning(embed_locally)


def embed_locally(texts: Sequence[str]) -> list[Sequence[float]]:
    """Embeds texts with the local model, which the first call loads."""
    return _model().embed(texts)


@cache
def _model() -> MiniLM:
    return MiniLM()


def _choose_trial(configuration: Configuration, given: Trial | None) -> Trial:
    """Returns how programs are tried: as the person says now, but never less strictly than the organisation says."""
    if given is None:
        return configuration.trial
    above = next((layer for layer in configuration.layers if layer.kind == "organisation"), None)
    if above is None or "trial" not in above.document:
        return given
    return cast(Trial, stricter_trial(above.document["trial"], given))
