"""`forge.yaml`: read with bounds, checked key by key, refused with the file, the place and a way on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from forge.app.agent_entries import AgentEntry, ToolEntry, agent_entry, sub_agent_entry, tool_entries
from forge.app.layers import FIXED, ORGANISATION, PROJECT_ONLY, Layer, check_own, is_there, spoken, user_file
from forge.app.reading import Reader, config_error, file_of
from forge.core.errors import ToolError

if TYPE_CHECKING:  # most projects have none
    from forge.app.durable_entries import DurableEntry
    from forge.app.knowledge_entries import ChannelEntry, MemoryEntry, SkillsEntry
    from forge.app.source_entries import McpEntry, OpenApiEntry, WebhookEntry

__all__ = [
    "KEYS",
    "MODES",
    "NAME",
    "SANDBOXES",
    "AgentEntry",
    "Configuration",
    "EgressEntry",
    "RootEntry",
    "ToolEntry",
    "load_configuration",
    "read_configuration",
]

NAME = "forge.yaml"
KEYS = tuple(
    "agent agents channels durable egress guardrails limits mcpServers memory openapi permissions sandbox schedules"
    " secrets skills tools webhooks workspace".split()
)
SANDBOXES = ("auto", "required", "bubblewrap", "landlock", "off")
MODES = ("open", "allowlist", "deny-all")


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class RootEntry(NamedTuple):
    """A directory beside the workspace that tools may read, or read and write."""

    place: str
    path: Path
    writable: bool = False


class EgressEntry(NamedTuple):
    """Where tools may connect to: `domains` in the mode `allowlist`; what is not public only if `private` says so."""

    mode: Literal["open", "allowlist", "deny-all"] = "open"
    domains: tuple[str, ...] = ()
    private: tuple[str, ...] = ()


class Configuration(NamedTuple):
    """What a project says. Without a file: nothing, which means every built-in tool and the default policy."""

    name: str = NAME
    tools: tuple[ToolEntry, ...] | None = None
    rules: tuple[Any, ...] = ()  # the project's, as they were written; `forge.permissions` reads them
    secrets: tuple[str, ...] = ()  # names of environment variables
    secret_files: tuple[Path, ...] = ()
    root: Path | None = None
    roots: tuple[RootEntry, ...] = ()
    writes: bool = True
    sandbox: str = "auto"
    egress: EgressEntry | None = None
    agent: AgentEntry = AgentEntry()
    agents: Mapping[str, AgentEntry] = _NOTHING
    servers: Mapping[str, McpEntry] = _NOTHING  # `mcpServers`
    openapi: Mapping[str, OpenApiEntry] = _NOTHING
    webhooks: Mapping[str, WebhookEntry] = _NOTHING
    channels: Mapping[str, ChannelEntry] = _NOTHING
    durable: DurableEntry | None = None
    memory: MemoryEntry | None = None
    skills: SkillsEntry | None = None
    schedules: tuple[Mapping[str, Any], ...] | None = None  # as they were written; `forge.schedules` reads them
    guardrails: Mapping[str, Any] = _NOTHING  # as they were written; `forge.skills` reads them
    variables: tuple[str, ...] = ()  # of the environment, that must be set
    unset: Mapping[str, ToolError] = _NOTHING  # entries that lack one of them, by place: left out above
    layers: tuple[Layer, ...] = ()  # what it was made of
    document: Mapping[str, Any] = _NOTHING  # all of them together, as they were written
    origins: Mapping[str, str] = _NOTHING  # of a place in the document, who said it
    files: Mapping[str, str] = _NOTHING  # of a place, the file; `name` where nothing is said
    notes: tuple[str, ...] = ()  # where somebody's word did not count

    def check_set(self, *sections: str) -> None:
        """For whoever needs all that is configured, or all of some sections. Raises `ToolError`."""
        for place, error in self.unset.items():
            if not sections or place.startswith(tuple(f"{section}." for section in sections)):
                raise error

    def error(self, place: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        return config_error(file_of(place, self.files, self.name), place, problem, written, known)


def load_configuration(
    config: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    *,
    resolve: bool = True,
    environment: Mapping[str, str] = os.environ,
    organisation: str = "",
) -> Configuration:
    """What holds: a file that a person named, under what they and their organisation say everywhere.

    With no file but a workspace, its `forge.yaml`, if it is trusted. Without `resolve`, variables are not looked up:
    `${NAME}` stays as it is. Servers, documents and webhooks that lack a variable are left out, and noted under
    `unset`. Raises `ToolError` of kind `config_error`.
    """
    layers = {
        layer.kind: layer
        for layer in (
            _of_organisation(organisation or ORGANISATION),
            _of_user(environment),
            _of_project(config, workspace),
        )
        if layer is not None
    }
    values = environment if resolve else None
    said = spoken(environment)
    project = layers.get("project")
    if not said and layers.keys() <= {"project"}:
        return _Reader(project.name, values).configuration(project.document, (project,)) if project else Configuration()
    from forge.app.merging import merge  # most have one layer at most

    if project is not None:
        _Reader(project.name, None).configuration(project.document, ())
    merged = merge(layers, environment)
    name = project.name if project else next((layer.name for layer in layers.values()), "the environment")
    reader = _Reader(name, values, merged.files)
    made = reader.configuration({**merged.document, "permissions": _project_rules(project)}, tuple(layers.values()))
    return made._replace(document=merged.document, origins=merged.origins, files=merged.files, notes=merged.notes)


def read_configuration(text: str, name: str) -> Configuration:
    """What a text says by itself: no other layer, no variable is looked up. Raises `ToolError`."""
    from forge.app.read_yaml import parse_yaml

    return _Reader(name, None).configuration(parse_yaml(text, name), ())


def _of_organisation(path: str) -> Layer | None:
    """One that is there and cannot be read is an error: what it forbids is not known."""
    return _read("organisation", path, FIXED) if is_there(path, surely=True) else None


def _of_user(environment: Mapping[str, str]) -> Layer | None:
    """The same holds for one's own."""
    path = user_file(environment)
    if path is None or not is_there(path, surely=True):
        return None
    check_own(path)
    return _read("user", str(path), [key for key in KEYS if key not in PROJECT_ONLY])


def _of_project(config: str | None, workspace: str | os.PathLike[str] | None) -> Layer | None:
    if config is None and workspace is None:
        return None
    from forge.app.read_yaml import parse_yaml, read_text  # only where there is a file
    from forge.app.trust import Found, found_in, trusted_text

    found = found_in(workspace) if config is None and workspace is not None else config
    if found is None:
        return None
    text = trusted_text(found) if isinstance(found, Found) else read_text(found)
    document = parse_yaml(text, str(found))
    return Layer("project", str(found), {} if document is None else document, text)


def _read(kind: str, path: str, keys: Iterable[str]) -> Layer:
    """A file of which only some keys are known. It is checked by itself, so that its mistakes are its own."""
    from forge.app.read_yaml import parse_yaml, read_text

    text = read_text(path)
    document = parse_yaml(text, path)
    reader = _Reader(path, None)
    top = reader.mapping(document if document is not None else {}, "", KEYS)
    for key in top:
        if key not in keys:
            problem = f"the {kind}'s file cannot say this; it belongs into a project's {NAME}"
            raise config_error(path, key, problem, known=keys)
    reader.configuration(top, ())
    return Layer(kind, path, top, text)


def _project_rules(project: Layer | None) -> Any:
    return project.document.get("permissions", {}) if project else {}


class _Reader(Reader):
    """The sections of the document."""

    def configuration(self, document: Any, layers: tuple[Layer, ...]) -> Configuration:
        top = self.mapping(document if document is not None else {}, "", KEYS)
        workspace = self.mapping(top.get("workspace", {}), "workspace", ("root", "roots", "writes"))
        permissions = self.mapping(top.get("permissions", {}), "permissions", ("rules",))
        root = self.text(workspace["root"], "workspace.root") if "root" in workspace else None
        made = Configuration(
            name=self.name,
            tools=tool_entries(self, top["tools"], "tools") if "tools" in top else None,
            rules=tuple(self.sequence(permissions.get("rules", []), "permissions.rules")),
            root=None if root is None else Path(self.name).parent / root,
            roots=tuple(
                self.root(one, f"workspace.roots[{i}]")
                for i, one in enumerate(self.sequence(workspace.get("roots", []), "workspace.roots"))
            ),
            writes=self.flag(workspace.get("writes", True), "workspace.writes"),
            sandbox=self.sandbox(top.get("sandbox", "auto")),
            egress=self.egress(top["egress"]) if "egress" in top else None,
            agent=agent_entry(self, top.get("agent", {}), top.get("limits", {})),
            agents=self.named(top, "agents", sub_agent_entry),
            **self.secrets(top.get("secrets", [])),
            **self.durable(top),
            **self.sources(top),
            **self.knowledge(top),
        )
        return made._replace(variables=tuple(self.variables), layers=layers, document=top)

    def secrets(self, value: Any) -> dict[str, Any]:
        """Names of variables, and files: never values."""
        names, files = [], []
        for index, one in enumerate(self.sequence(value, "secrets")):
            place = f"secrets[{index}]"
            if not isinstance(one, dict):
                names.append(self.variable(one, place))
                continue
            said = self.mapping(one, place, ("file",))
            if "file" not in said:
                raise self.error(place, "file is missing")
            files.append(Path(self.name).parent / os.path.expanduser(self.text(said["file"], f"{place}.file")))
        return {"secrets": tuple(names), "secret_files": tuple(files)}

    def durable(self, top: dict[str, Any]) -> dict[str, Any]:
        """Where runs that survive are kept."""
        if "durable" not in top:
            return {}
        from forge.app.durable_entries import durable_entry  # most projects have none

        return {"durable": durable_entry(self, top["durable"])}

    def sources(self, top: dict[str, Any]) -> dict[str, Any]:
        """Other people's tools."""
        if not top.keys() & {"mcpServers", "openapi", "webhooks"}:
            return {}
        from forge.app.source_entries import mcp_entry, openapi_entry, webhook_entry  # most projects have none

        return {
            "servers": self.named_and_set(top, "mcpServers", mcp_entry),  # nor those that are disabled
            "openapi": self.named_and_set(top, "openapi", openapi_entry),
            "webhooks": self.named_and_set(top, "webhooks", webhook_entry),
            "unset": self.unset,
        }

    def knowledge(self, top: dict[str, Any]) -> dict[str, Any]:
        """What the agent knows, remembers, does by the clock, and where it delivers."""
        if not top.keys() & {"channels", "guardrails", "memory", "schedules", "skills"}:
            return {}
        from forge.app import knowledge_entries as entries  # many projects have none

        found: dict[str, Any] = {"channels": self.named(top, "channels", entries.channel_entry)}
        if "memory" in top:
            found["memory"] = entries.memory_entry(self, top["memory"])
        if "skills" in top:
            found["skills"] = entries.skills_entry(self, top["skills"])
        if "schedules" in top:
            found["schedules"] = entries.schedule_entries(self, top["schedules"])
        if "guardrails" in top:
            found["guardrails"] = entries.guardrail_entries(self, top["guardrails"])
        return found

    def root(self, value: Any, place: str) -> RootEntry:
        said = self.mapping({"path": value} if isinstance(value, str) else value, place, ("access", "path"))
        if "path" not in said:
            raise self.error(place, "path is missing")
        access = self.choice(said.get("access", "read"), f"{place}.access", ("read", "write"), "read or write")
        path = Path(self.name).parent / self.text(said["path"], f"{place}.path")
        return RootEntry(place=place, path=path, writable=access == "write")

    def sandbox(self, value: Any) -> str:
        return self.choice(
            "off" if value is False else value, "sandbox", SANDBOXES
        )  # YAML takes a bare `off` for false

    def egress(self, value: Any) -> EgressEntry:
        said = self.mapping(value, "egress", ("domains", "mode", "private"))
        mode: Any = self.choice(said.get("mode", "allowlist" if "domains" in said else "open"), "egress.mode", MODES)
        domains, private = (
            tuple(
                self.text(one, f"egress.{key}[{index}]")
                for index, one in enumerate(self.sequence(said.get(key, []), f"egress.{key}"))
            )
            for key in ("domains", "private")
        )
        return EgressEntry(mode=mode, domains=domains, private=private)
