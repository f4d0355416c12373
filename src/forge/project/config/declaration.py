"""Declares `forge.yaml` as a whole: a key for each section, the checks across keys, and its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge.core.errors import ToolError
from forge.core.spec import REPAIR_NAMES
from forge.project.config.access import (
    SANDBOXES,
    EgressEntry,
    LabelsEntry,
    PermissionsEntry,
    ProgramsEntry,
    RootEntry,
    Sandbox,
    SecretFile,
    WorkspaceEntry,
)
from forge.project.config.agent import AgentEntry, ContextEntry, LimitsEntry, SubAgentEntry, ToolEntry
from forge.project.config.kinds import NOTHING, Choice, Either, ListOf, MappingOf, Schema, Variable
from forge.project.config.reader import ConfigReader, config_error, file_of
from forge.project.config.section import DeferredSection, Key, Section, key, section_of
from forge.project.config_layers import Layer

if TYPE_CHECKING:
    from forge.project.config.durable import DurableEntry
    from forge.project.config.knowledge import ChannelEntry, MemoryEntry, SkillsEntry
    from forge.project.config.serve import ServeEntry
    from forge.project.config.sources import McpEntry, OpenApiEntry, WebhookEntry


NAME = "forge.yaml"
_ALL = "organisation, user, project"
_SOURCE = (  # how a source is named
    r"(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,31}",
    "a name starts with a letter, followed by up to 31 letters, digits, - or single _",
)


class Configuration(Section, example={"agent": {"model": "anthropic:MODEL"}, "tools": [{"group": "read"}]}):
    """A Forge project: its agent, its tools, and their permissions.

    Without a file, the project has every built-in tool and the default policy.
    """

    agent: AgentEntry = key(AgentEntry, default=AgentEntry())
    agents: Mapping[str, SubAgentEntry] = key(
        MappingOf(SubAgentEntry, "researcher"), "Sub-agents, by the name that the `task` tool uses."
    )
    channels: Mapping[str, ChannelEntry] = key(
        MappingOf(DeferredSection("knowledge", "ChannelEntry"), "team"),
        "Destinations of messages and of the results of schedules.",
    )
    context: Mapping[str, Any] = key(ContextEntry, default=NOTHING)
    durable: DurableEntry | None = key(DeferredSection("durable", "DurableEntry"))
    egress: EgressEntry | None = key(EgressEntry, layers=_ALL)
    guardrails: Mapping[str, Any] = key(DeferredSection("knowledge", "GuardrailsEntry"), default=NOTHING, layers=_ALL)
    labels: LabelsEntry = key(LabelsEntry, default=LabelsEntry(), layers=_ALL)
    limits: Mapping[str, Any] = key(LimitsEntry, "Limits of a run; 0 means no limit.", default=NOTHING)
    servers: Mapping[str, McpEntry] = key(
        MappingOf(DeferredSection("sources", "McpEntry"), "git", *_SOURCE),
        "MCP servers, in the same format as in other MCP clients.",
        name="mcpServers",
    )
    memory: MemoryEntry | None = key(DeferredSection("knowledge", "MemoryEntry"))
    openapi: Mapping[str, OpenApiEntry] = key(
        MappingOf(DeferredSection("sources", "OpenApiEntry"), "pets", *_SOURCE),
        "OpenAPI documents. Each operation is a tool.",
    )
    permissions: PermissionsEntry = key(PermissionsEntry, default=PermissionsEntry(), layers=_ALL)
    programs: ProgramsEntry = key(ProgramsEntry, default=ProgramsEntry())
    repairs: tuple[str, ...] | None = key(
        ListOf(Choice(*REPAIR_NAMES)),
        "The kinds of repair that a call with almost right arguments may get. An empty list: none.",
        ["names", "values"],
        default=None,
        unset="all of them",
    )
    sandbox: Sandbox = key(
        Choice(*SANDBOXES, also=(False, "off")),  # YAML takes a bare `off` for false
        "The sandbox for programs. `auto` uses the best one available. `required` and a named sandbox fail if it is"
        " not available.",
        "required",
        default="auto",
        unset="auto",
        variable="FORGE_SANDBOX",
        layers=_ALL,
    )
    schedules: tuple[Mapping[str, Any], ...] | None = key(
        ListOf(DeferredSection("knowledge", "ScheduleEntry")),
        "Tasks that the agent runs on a schedule. `forge schedule run` starts them when they are due.",
        default=None,
        layers="project",
    )
    secrets: tuple[str, ...] = key(
        ListOf(Either(Variable(), SecretFile)),
        "Environment variables (by name) or files whose values are masked wherever they appear. Never write a value"
        " here.",
        ["GITHUB_TOKEN", {"file": "~/.secrets/github"}],
    )
    serve: ServeEntry | None = key(DeferredSection("serve", "ServeEntry"))
    skills: SkillsEntry | None = key(DeferredSection("knowledge", "SkillsEntry"))
    tools: tuple[ToolEntry, ...] | None = key(
        ListOf(ToolEntry),
        "The agent's tools. Without this key: every built-in tool; few are sent to the model, which finds the others"
        " with `tool_search`. With it: the listed tools, the conversation tools,"
        " and the tools of the project's servers, OpenAPI documents, webhooks and scripts. MODULE:ATTRIBUTE imports a"
        " tool of yours.",
        [{"group": "read"}, {"name": "bash", "config": {"timeout": 30}}, "math_calculate", "shop.tools:refund"],
        default=None,
        unset="every built-in tool",
    )
    webhooks: Mapping[str, WebhookEntry] = key(
        MappingOf(DeferredSection("sources", "WebhookEntry"), "notify"),
        "Webhooks: URLs that accept JSON. Each is a tool.",
    )
    workspace: WorkspaceEntry = key(WorkspaceEntry, default=WorkspaceEntry(), layers="project")

    name: str = NAME  # of the file
    secret_files: tuple[Path, ...] = ()
    variables: tuple[str, ...] = ()  # of the environment, that must be set
    unset: Mapping[str, ToolError] = NOTHING  # entries that lack one of them, by key path: left out above
    layers: tuple[Layer, ...] = ()  # what it was made of
    document: Mapping[str, Any] = NOTHING  # all of them together, as they were written
    origins: Mapping[str, str] = NOTHING  # of a key path in the document, who said it
    files: Mapping[str, str] = NOTHING  # of a key path, the file; `name` where nothing is said
    notes: tuple[str, ...] = ()  # values that a stricter layer overruled

    @property
    def rules(self) -> tuple[Any, ...]:
        """The project's rules as they were written; `forge.permissions` reads them."""
        return self.permissions.rules

    @property
    def root(self) -> Path | None:
        return self.workspace.root

    @property
    def roots(self) -> tuple[RootEntry, ...]:
        return self.workspace.roots

    @property
    def writes(self) -> bool:
        return self.workspace.writes

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        secrets = values.pop("secrets", ())
        agent: AgentEntry = values.pop("agent", cls.agent)
        return cls(
            **values,
            agent=agent.replace(limits=values.get("limits", NOTHING)),
            secrets=tuple(one for one in secrets if isinstance(one, str)),
            secret_files=tuple(one.file for one in secrets if isinstance(one, SecretFile)),
            name=reader.name,
            variables=tuple(reader.variables),
            unset=reader.unset,
        )

    def check_set(self, *sections: str) -> None:
        """Raises `ToolError` where an entry lacks a variable; of these sections only, where some are named."""
        for key_path, error in self.unset.items():
            if not sections or key_path.startswith(tuple(f"{section}." for section in sections)):
                raise error

    def error(self, key_path: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        file = file_of(key_path, self.files, self.name)
        text = next((layer.text for layer in self.layers if layer.name == file), "")
        return config_error(file, key_path, problem, written, known, text, within=type(self))


def keys_of(declaration: type[Section] = Configuration) -> Iterator[tuple[str, Key]]:
    """Yields every key of the document and of its sections, by its key path."""
    for name, one in declaration.keys.items():
        yield name, one
        if (section := section_of(one.kind)) is not None:
            yield from ((f"{name}.{inner}", below) for inner, below in section.keys.items())


def keys_of_layer(layer: str) -> tuple[str, ...]:
    """Returns the keys that the file of a layer may have."""
    return tuple(name for name, one in Configuration.keys.items() if layer in one.layers)


def known_variables() -> dict[str, str]:
    """Returns the environment variables that set a key, and the key paths that they set."""
    return {one.variable: key_path for key_path, one in keys_of() if one.variable}


def variables_set(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables of `known_variables` that are set."""
    if not any(name.startswith("FORGE_") for name in environment):  # as they all do: the sections need not be loaded
        return {}
    return {name: key_path for name, key_path in known_variables().items() if environment.get(name)}


KEYS = tuple(sorted(Configuration.keys))


# The JSON Schema of `forge.yaml`: what editors complete, and where errors and pages take their words from.
#
# It accepts what the reader accepts. Some things need more than the document (whether a tool, a file or a variable
# exists, whether a cron rule or a pattern can be read); the reader alone checks them.


DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MADE: dict[type[Section], Schema] = {}


def config_schema(declaration: type[Section] = Configuration) -> Schema:
    if declaration not in _MADE:
        entry = declaration.schema()
        _MADE[declaration] = {
            "$schema": DIALECT,
            "title": "forge.yaml",
            "description": entry.pop("description"),
            "anyOf": [{"type": "null"}, entry],
            "examples": entry.pop("examples"),
        }
    return _MADE[declaration]


def organisation_schema() -> Schema:
    """Returns the schema of the organisation's file, which nothing loosens."""
    entry = Configuration.schema()
    known = keys_of_layer("organisation")
    return {**entry, "properties": {key: one for key, one in entry["properties"].items() if key in known}}
