"""`forge.yaml` as a whole: a key for each of its sections, and what the keys say together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge.core.errors import ToolError
from forge.project.config.access import SANDBOXES, EgressEntry, PermissionsEntry, RootEntry, SecretFile, WorkspaceEntry
from forge.project.config.agent import AgentEntry, LimitsEntry, SubAgentEntry, ToolEntry
from forge.project.config.kinds import NOTHING, Choice, Either, ListOf, MappingOf, Variable
from forge.project.config.reader import Reader, config_error, file_of
from forge.project.config.section import DeferredSection, Key, Section, key, section_of
from forge.project.config_layers import Layer

if TYPE_CHECKING:  # most projects have none
    from forge.project.config.durable import DurableEntry
    from forge.project.config.knowledge import ChannelEntry, MemoryEntry, SkillsEntry
    from forge.project.config.sources import McpEntry, OpenApiEntry, WebhookEntry

NAME = "forge.yaml"
_ALL = "organisation, user, project"
_SOURCE = (  # how a source is named
    r"(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,31}",
    "a name is a letter, then up to 31 letters, digits, - or single _",
)


class Configuration(Section, example={"agent": {"model": "anthropic:MODEL"}, "tools": [{"group": "read"}]}):
    """A Forge project: its agent, its tools, and their permissions.

    Without a file, the project has every built-in tool and the default policy.
    """

    agent: AgentEntry = key(AgentEntry, default=AgentEntry())
    agents: Mapping[str, SubAgentEntry] = key(
        MappingOf(SubAgentEntry, "researcher"), "Kinds of sub-agents, by the name that the tool `task` takes."
    )
    channels: Mapping[str, ChannelEntry] = key(
        MappingOf(DeferredSection("knowledge", "ChannelEntry"), "team"),
        "Where messages and the results of schedules are delivered.",
    )
    durable: DurableEntry | None = key(DeferredSection("durable", "DurableEntry"))
    egress: EgressEntry | None = key(EgressEntry, said_by=_ALL)
    guardrails: Mapping[str, Any] = key(DeferredSection("knowledge", "GuardrailsEntry"), default=NOTHING, said_by=_ALL)
    limits: Mapping[str, Any] = key(LimitsEntry, "How far a run may go; 0 is no limit.", default=NOTHING)
    servers: Mapping[str, McpEntry] = key(
        MappingOf(DeferredSection("sources", "McpEntry"), "git", *_SOURCE),
        "MCP servers, in the shape that other clients use.",
        name="mcpServers",
    )
    memory: MemoryEntry | None = key(DeferredSection("knowledge", "MemoryEntry"))
    openapi: Mapping[str, OpenApiEntry] = key(
        MappingOf(DeferredSection("sources", "OpenApiEntry"), "pets", *_SOURCE), "OpenAPI documents."
    )
    permissions: PermissionsEntry = key(PermissionsEntry, default=PermissionsEntry(), said_by=_ALL)
    sandbox: str = key(
        Choice(*SANDBOXES, also=(False, "off")),  # YAML takes a bare `off` for false
        "What confines programs. `required`, and a tier by name, fail where it cannot be had.",
        "required",
        default="auto",
        unset="auto",
        variable="FORGE_SANDBOX",
        said_by=_ALL,
    )
    schedules: tuple[Mapping[str, Any], ...] | None = key(
        ListOf(DeferredSection("knowledge", "ScheduleEntry")),
        "What the agent does by the clock; `forge schedule run` does it.",
        default=None,
        said_by="project",
    )
    secrets: tuple[str, ...] = key(
        ListOf(Either(Variable(), SecretFile)),
        "Whose values are masked wherever they appear: names of environment variables, or files. Never values.",
        ["GITHUB_TOKEN", {"file": "~/.secrets/github"}],
    )
    skills: SkillsEntry | None = key(DeferredSection("knowledge", "SkillsEntry"))
    tools: tuple[ToolEntry, ...] | None = key(
        ListOf(ToolEntry),
        "The tools of the agent. Absent: every built-in one. Present: these, the conversation tools, and what the"
        " project's servers, documents, webhooks and scripts offer.",
        [{"group": "read"}, {"name": "bash", "config": {"timeout": 30}}, "math_calculate"],
        default=None,
        unset="every built-in one",
    )
    webhooks: Mapping[str, WebhookEntry] = key(
        MappingOf(DeferredSection("sources", "WebhookEntry"), "notify"), "URLs that take JSON, each a tool."
    )
    workspace: WorkspaceEntry = key(WorkspaceEntry, default=WorkspaceEntry(), said_by="project")

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
    def from_keys(cls, reader: Reader, values: dict[str, Any], key_path: str) -> Any:
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


def keys_said_by(layer: str) -> tuple[str, ...]:
    """Returns the keys that the file of a layer may have."""
    return tuple(name for name, one in Configuration.keys.items() if layer in one.said_by)


def known_variables() -> dict[str, str]:
    """Returns the variables of the environment that say something, and the key paths they are about."""
    return {one.variable: key_path for key_path, one in keys_of() if one.variable}


def variables_set(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns those of them that are set."""
    if not any(name.startswith("FORGE_") for name in environment):  # as they all do: the sections need not be loaded
        return {}
    return {name: key_path for name, key_path in known_variables().items() if environment.get(name)}


KEYS = tuple(sorted(Configuration.keys))
