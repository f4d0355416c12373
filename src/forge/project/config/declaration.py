"""Declares `forge.yaml` as a whole: a key for each section, the checks across keys, and its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.errors import ToolError
from forge.core.spec import REPAIR_NAMES
from forge.project.config.access import (
    SANDBOXES,
    TRIALS,
    EgressEntry,
    LabelsEntry,
    PermissionsEntry,
    ProgramsEntry,
    RootEntry,
    Sandbox,
    SecretEntry,
    Trial,
    WorkspaceEntry,
)
from forge.project.config.agent import AgentEntry, ContextEntry, LimitsEntry, SubAgentEntry, ToolEntry
from forge.project.config.reader import ConfigReader, config_error, document_schema, file_of
from forge.project.config.section import Schema, Section
from forge.project.config_layers import Layer

if TYPE_CHECKING:  # most documents do not have these sections; annotations are evaluated by `make reference`
    from forge.project.config.durable import DurableEntry
    from forge.project.config.hooks import HooksEntry, TurnHookEntry
    from forge.project.config.kinds import Key, Names, Of, OneOf, Variable
    from forge.project.config.knowledge import GuardrailsEntry, MemoryEntry, SkillsEntry
    from forge.project.config.serve import ServeEntry
    from forge.project.config.services import ChannelEntry, ScheduleEntry
    from forge.project.config.sources import McpEntry, OpenApiEntry, ScriptsEntry, WebhookEntry


NAME = "forge.yaml"
_ALL = "organisation user project"
_SOURCE = (  # how a source is named
    r"(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,31}",
    "a name starts with a letter, followed by up to 31 letters, digits, - or single _",
)


class Configuration(Section, example={"agent": {"model": "anthropic:MODEL"}, "tools": [{"group": "read"}]}):
    """A Forge project: its agent, its tools, and their permissions.

    Without a file, the project has every built-in tool and the default policy.
    """

    agent: Annotated[AgentEntry, Key()] = field(default_factory=AgentEntry)
    agents: Annotated[
        Mapping[str, SubAgentEntry], Key("Sub-agents, by the name that the `task` tool uses.", sample="researcher")
    ] = field(default_factory=dict)
    channels: Annotated[
        Mapping[str, ChannelEntry], Key("Destinations of messages and of the results of schedules.", sample="team")
    ] = field(default_factory=dict)
    context: Annotated[Mapping[str, Any], Of(ContextEntry), Key()] = field(default_factory=dict)
    durable: Annotated[DurableEntry | None, Key()] = None
    egress: Annotated[EgressEntry | None, Key(layers=_ALL)] = None
    guardrails: Annotated[Mapping[str, Any], Of(GuardrailsEntry), Key(layers=_ALL)] = field(default_factory=dict)
    hooks: Annotated[HooksEntry | None, Key(layers=_ALL)] = None
    labels: Annotated[LabelsEntry, Key(layers=_ALL)] = field(default_factory=LabelsEntry)
    limits: Annotated[Mapping[str, Any], Of(LimitsEntry), Key("Limits of a run; 0 means no limit.")] = field(
        default_factory=dict
    )
    servers: Annotated[
        Mapping[str, McpEntry],
        Names(*_SOURCE),
        Key("MCP servers, in the same format as in other MCP clients.", sample="git", name="mcpServers"),
    ] = field(default_factory=dict)
    memory: Annotated[MemoryEntry | None, Key()] = None
    openapi: Annotated[
        Mapping[str, OpenApiEntry], Names(*_SOURCE), Key("OpenAPI documents. Each operation is a tool.", sample="pets")
    ] = field(default_factory=dict)
    permissions: Annotated[PermissionsEntry, Key(layers=_ALL)] = field(default_factory=PermissionsEntry)
    programs: Annotated[ProgramsEntry, Key()] = field(default_factory=ProgramsEntry)
    repairs: Annotated[
        tuple[str, ...] | None,
        Of(tuple[Annotated[str, OneOf(*REPAIR_NAMES)], ...]),
        Key(
            "The kinds of repair that a call with almost right arguments may get. An empty list: none.",
            ["names", "values"],
            unset="all of them",
        ),
    ] = None
    sandbox: Annotated[
        Sandbox,
        OneOf(*SANDBOXES, False),
        Key(
            "The sandbox for programs. `auto` uses the best one available. `required` and a named sandbox fail if it"
            " is not available.",
            "required",
            unset="auto",
            variable="FORGE_SANDBOX",
            layers=_ALL,
        ),
    ] = "auto"
    schedules: Annotated[
        tuple[Mapping[str, Any], ...] | None,
        Of(tuple[ScheduleEntry, ...]),
        Key(
            "Tasks that the agent runs on a schedule. `forge schedule run` starts them when they are due.",
            layers="project",
        ),
    ] = None
    scripts: Annotated[ScriptsEntry | None, Key()] = None
    secrets: Annotated[
        tuple[str, ...],
        Of(tuple[SecretEntry | Variable, ...]),
        Key(
            "Environment variables (by name), or entries that say where a value is. Values are masked wherever they"
            " appear. Never write a value here.",
            ["GITHUB_TOKEN", {"file": "~/.secrets/github"}],
        ),
    ] = ()
    serve: Annotated[ServeEntry | None, Key()] = None
    skills: Annotated[SkillsEntry | None, Key()] = None
    tools: Annotated[
        tuple[ToolEntry, ...] | None,
        Key(
            "The agent's tools. Without this key: every built-in tool; few are sent to the model, which finds the"
            " others with `tool_search`. With it: the listed tools, the conversation tools, and the tools of the"
            " project's servers, OpenAPI documents, webhooks and scripts. MODULE:ATTRIBUTE imports a tool of yours.",
            [{"group": "read"}, {"name": "bash", "config": {"timeout": 30}}, "math_calculate", "shop.tools:refund"],
            unset="every built-in tool",
        ),
    ] = None
    trial: Annotated[
        Trial,
        OneOf(*TRIALS, False),
        Key(
            "Trial runs. `auto`: where only the default asks about a program, it runs on a layer over the files; the"
            " rules judge its effects, which are then applied or shown. `always`: programs that rules allow, too."
            " `off`: never.",
            "always",
            unset="auto",
            variable="FORGE_TRIAL",
            layers=_ALL,
        ),
    ] = "auto"
    webhooks: Annotated[
        Mapping[str, WebhookEntry], Key("Webhooks: URLs that accept JSON. Each is a tool.", sample="notify")
    ] = field(default_factory=dict)
    workspace: Annotated[WorkspaceEntry, Key(layers="project")] = field(default_factory=WorkspaceEntry)

    name: str = NAME  # of the file
    secret_files: tuple[Path, ...] = ()
    secret_entries: tuple[SecretEntry, ...] = ()  # those that say more than a name
    variables: tuple[str, ...] = ()  # of the environment, that must be set
    unset: Mapping[str, ToolError] = field(
        default_factory=dict
    )  # entries that lack one of them, by key path: left out above
    layers: tuple[Layer, ...] = ()  # what it was made of
    document: Mapping[str, Any] = field(default_factory=dict)  # all of them together, as they were written
    origins: Mapping[str, str] = field(default_factory=dict)  # of a key path in the document, who said it
    files: Mapping[str, str] = field(default_factory=dict)  # of a key path, the file; `name` where nothing is said
    notes: tuple[str, ...] = ()  # values that a stricter layer overruled

    @property
    def rules(self) -> tuple[Any, ...]:
        """The project's rules as they were written; `forge.permissions` reads them."""
        return self.permissions.rules

    @property
    def all_hooks(self) -> list[tuple[str, TurnHookEntry]]:
        """Every hook with its kind."""
        return self.hooks.all() if self.hooks is not None else []

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
        agent: AgentEntry = values.pop("agent", None) or cls().agent
        if values.get("sandbox") is False:  # YAML takes a bare `off` for false
            values["sandbox"] = "off"
        if values.get("trial") is False:
            values["trial"] = "off"
        made = {
            "agent": agent.replace(limits=values.get("limits", {})),
            "secrets": tuple(name for one in secrets if (name := one if isinstance(one, str) else one.name)),
            "secret_files": tuple(one.file for one in secrets if isinstance(one, SecretEntry) and one.file),
            "secret_entries": tuple(one for one in secrets if isinstance(one, SecretEntry)),
            "name": reader.name,
            "variables": tuple(reader.variables),
            "unset": reader.unset,
        }
        return super().from_keys(reader, {**values, **made}, key_path)

    def check_set(self, *sections: str) -> None:
        """Raises `ToolError` where an entry lacks a variable; of these sections only, where some are named."""
        for key_path, error in self.unset.items():
            if not sections or key_path.startswith(tuple(f"{section}." for section in sections)):
                raise error

    def error(self, key_path: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        file = file_of(key_path, self.files, self.name)
        text = next((layer.text for layer in self.layers if layer.name == file), "")
        return config_error(file, key_path, problem, written, known, text)


def keys_of(schema: Schema | None = None) -> Iterator[tuple[str, Schema]]:
    """Yields every key of the document and of its sections, by its key path, with its schema."""
    for name, one in (schema or document_schema())["properties"].items():
        yield name, one
        for section in (one, *one.get("anyOf", ())):
            yield from ((f"{name}.{inner}", below) for inner, below in section.get("properties", {}).items())


def keys_of_layer(layer: str) -> tuple[str, ...]:
    """Returns the keys that the file of a layer may have."""
    keys = document_schema()["properties"].items()
    return tuple(name for name, one in keys if layer in one.get("x-layers", ("user", "project")))


def known_variables() -> dict[str, str]:
    """Returns the environment variables that set a key, and the key paths that they set."""
    return {one["x-variable"]: key_path for key_path, one in keys_of() if "x-variable" in one}


def variables_set(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables of `known_variables` that are set."""
    if not any(name.startswith("FORGE_") for name in environment):  # as they all do: the schema need not be loaded
        return {}
    return {name: key_path for name, key_path in known_variables().items() if environment.get(name)}


# The JSON Schema of `forge.yaml`: what editors complete, and where errors and pages take their words from.
#
# It accepts what the reader accepts. Some things need more than the document (whether a tool, a file or a variable
# exists, whether a cron rule or a pattern can be read); the modules that use them check these.


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema(schema: Schema | None = None) -> Schema:
    """Returns the published schema: without what only Forge reads."""
    entry = _publish(schema or document_schema())
    return {
        "$schema": DIALECT,
        "title": NAME,
        "description": entry.pop("description"),
        "anyOf": [{"type": "null"}, entry],
        "examples": entry.pop("examples"),
    }


def organisation_schema() -> Schema:
    """Returns the schema of the organisation's file, which nothing loosens."""
    entry, known = _publish(document_schema()), keys_of_layer("organisation")
    return {**entry, "properties": {key: one for key, one in entry["properties"].items() if key in known}}


def _publish(node: Any) -> Any:
    if isinstance(node, list):
        return [_publish(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {key: _publish(one) for key, one in node.items() if not key.startswith("x-")}
