"""`forge.yaml`: read with bounds, checked key by key, refused with the file, the place and a way on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from forge.app.read_yaml import read_yaml
from forge.app.reading import Reader, config_error
from forge.core.errors import ToolError
from forge.core.spec import Permission

if TYPE_CHECKING:  # most projects have none
    from forge.app.knowledge_entries import ChannelEntry, MemoryEntry, SkillsEntry
    from forge.app.source_entries import McpEntry, OpenApiEntry, WebhookEntry

NAME = "forge.yaml"
KEYS = tuple(
    "agent agents channels egress guardrails limits mcpServers memory openapi permissions sandbox schedules secrets"
    " skills tools webhooks workspace".split()
)
SANDBOXES = ("auto", "required", "bubblewrap", "landlock", "off")
MODES = ("open", "allowlist", "deny-all")


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ToolEntry(NamedTuple):
    """One entry under `tools`: a name (or a pattern of names) or a group, and settings for what it names."""

    place: str
    name: str = ""
    group: str = ""
    config: Mapping[str, Any] = _NOTHING


class AgentEntry(NamedTuple):
    """The agent, or a kind of sub-agent: what it is told, which model it is, how far it may go."""

    prompt: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()  # names and groups
    limits: Mapping[str, Any] = _NOTHING


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
    rules: tuple[Any, ...] = ()  # as they were written; `forge.permissions` reads them
    secrets: tuple[str, ...] = ()  # names of environment variables
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
    memory: MemoryEntry | None = None
    skills: SkillsEntry | None = None
    schedules: tuple[Mapping[str, Any], ...] | None = None  # as they were written; `forge.schedules` reads them
    guardrails: Mapping[str, Any] = _NOTHING  # as they were written; `forge.skills` reads them

    def error(self, place: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        return config_error(self.name, place, problem, written, known)


def load_configuration(path: str | None) -> Configuration:
    """Read a file that a person named. Raises `ToolError` of kind `config_error`."""
    if path is None:
        return Configuration()
    return _Reader(path).configuration(read_yaml(path))


class _Reader(Reader):
    """The sections of the document."""

    def configuration(self, document: Any) -> Configuration:
        top = self.mapping(document if document is not None else {}, "", KEYS)
        tools = self.sequence(top["tools"], "tools") if "tools" in top else None
        workspace = self.mapping(top.get("workspace", {}), "workspace", ("root", "roots", "writes"))
        permissions = self.mapping(top.get("permissions", {}), "permissions", ("rules",))
        root = self.text(workspace["root"], "workspace.root") if "root" in workspace else None
        return Configuration(
            name=self.name,
            tools=None if tools is None else tuple(self.entry(one, f"tools[{i}]") for i, one in enumerate(tools)),
            rules=tuple(self.sequence(permissions.get("rules", []), "permissions.rules")),
            secrets=tuple(
                self.variable(one, f"secrets[{i}]")
                for i, one in enumerate(self.sequence(top.get("secrets", []), "secrets"))
            ),
            root=None if root is None else Path(self.name).parent / root,
            roots=tuple(
                self.root(one, f"workspace.roots[{i}]")
                for i, one in enumerate(self.sequence(workspace.get("roots", []), "workspace.roots"))
            ),
            writes=self.flag(workspace.get("writes", True), "workspace.writes"),
            sandbox=self.sandbox(top.get("sandbox", "auto")),
            egress=self.egress(top["egress"]) if "egress" in top else None,
            agent=self.agent(top),
            agents={
                name: self.sub_agent(one, f"agents.{name}")
                for name, one in self.mapping(top.get("agents", {}), "agents").items()
            },
            **self.sources(top),
            **self.knowledge(top),
        )

    def sources(self, top: dict[str, Any]) -> dict[str, Any]:
        """Other people's tools."""
        if not top.keys() & {"mcpServers", "openapi", "webhooks"}:
            return {}
        from forge.app.source_entries import mcp_entry, openapi_entry, webhook_entry  # most projects have none

        servers = self.named(top, "mcpServers", mcp_entry)
        return {
            "servers": {name: one for name, one in servers.items() if one is not None},
            "openapi": self.named(top, "openapi", openapi_entry),
            "webhooks": self.named(top, "webhooks", webhook_entry),
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
            found["guardrails"] = self.mapping(top["guardrails"], "guardrails")
        return found

    def root(self, value: Any, place: str) -> RootEntry:
        said = self.mapping({"path": value} if isinstance(value, str) else value, place, ("access", "path"))
        if "path" not in said:
            raise self.error(place, "path is missing")
        access = said.get("access", "read")
        if access not in ("read", "write"):
            raise self.error(f"{place}.access", f"expected read or write, got {access!r:.60}")
        path = Path(self.name).parent / self.text(said["path"], f"{place}.path")
        return RootEntry(place=place, path=path, writable=access == "write")

    def sandbox(self, value: Any) -> str:
        said = "off" if value is False else value  # YAML takes a bare `off` for false
        if said not in SANDBOXES:
            raise self.error("sandbox", f"expected one of {', '.join(SANDBOXES)}, got {value!r:.60}")
        return str(said)

    def egress(self, value: Any) -> EgressEntry:
        said = self.mapping(value, "egress", ("domains", "mode", "private"))
        mode = said.get("mode", "allowlist" if "domains" in said else "open")
        if mode not in MODES:
            raise self.error("egress.mode", f"expected one of {', '.join(MODES)}, got {mode!r:.60}")
        domains, private = (
            tuple(
                self.text(one, f"egress.{key}[{index}]")
                for index, one in enumerate(self.sequence(said.get(key, []), f"egress.{key}"))
            )
            for key in ("domains", "private")
        )
        return EgressEntry(mode=mode, domains=domains, private=private)

    def agent(self, top: Mapping[str, Any]) -> AgentEntry:
        said = self.mapping(top.get("agent", {}), "agent", ("model", "prompt"), ("description", "id", "version"))
        return AgentEntry(
            prompt=self.text(said["prompt"], "agent.prompt") if "prompt" in said else "",
            model=self.text(said["model"], "agent.model") if "model" in said else "",
            limits=self.limits(top.get("limits", {}), "limits"),
        )

    def sub_agent(self, value: Any, place: str) -> AgentEntry:
        said = self.mapping(value, place, ("limits", "model", "prompt", "tools"))
        tools = self.sequence(said.get("tools", []), f"{place}.tools")
        entries = [self.entry(one, f"{place}.tools[{index}]") for index, one in enumerate(tools)]
        return AgentEntry(
            prompt=self.text(said["prompt"], f"{place}.prompt") if "prompt" in said else "",
            model=self.text(said["model"], f"{place}.model") if "model" in said else "",
            tools=tuple(entry.name or entry.group for entry in entries),
            limits=self.limits(said.get("limits", {}), f"{place}.limits"),
        )

    def limits(self, value: Any, place: str) -> dict[str, Any]:
        """As `forge.agent.limits.Limits` takes them; `price` says what a million tokens cost."""
        said = dict(self.mapping(value, place, ("calls", "cost", "price", "seconds", "tokens", "turns")))
        if "price" in said:
            price = self.mapping(said["price"], f"{place}.price", ("cached", "input", "output"))
            if missing := {"input", "output"} - price.keys():
                raise self.error(f"{place}.price", f"{sorted(missing)[0]} is missing")
            said["price"] = {key: self.number(one, f"{place}.price.{key}", above=0) for key, one in price.items()}
        if said.get("cost") and "price" not in said:
            raise self.error(f"{place}.cost", "without a price nobody knows the cost; say price: {input: …, output: …}")
        for key in said.keys() - {"price"}:
            least = 1 if key == "turns" else 0
            whole = key not in ("cost", "seconds")
            one = said[key]
            if isinstance(one, bool) or not isinstance(one, int if whole else int | float) or not least <= one < 1e15:
                raise self.error(f"{place}.{key}", f"expected a number from {least}, got {one!r:.60}")
        return said

    def entry(self, value: Any, place: str) -> ToolEntry:
        if isinstance(value, str):
            return ToolEntry(place=place, name=self.text(value, place))
        entry = self.mapping(value, place, ("config", "group", "name"))
        if ("name" in entry) == ("group" in entry):
            raise self.error(place, "expected either a name or a group")
        config = self.mapping(entry.get("config", {}), f"{place}.config")
        return ToolEntry(
            place=place,
            name=self.text(entry["name"], f"{place}.name") if "name" in entry else "",
            group=self.text(entry["group"], f"{place}.group") if "group" in entry else "",
            config={key: self.setting(key, one, f"{place}.config.{key}") for key, one in config.items()},
        )

    def setting(self, key: str, value: Any, place: str) -> Any:
        """The settings any tool has; the others are for the tool itself to judge."""
        if key == "timeout":
            return None if value is None else self.number(value, place, above=0)
        if key == "confirm":
            return self.flag(value, place)
        if key == "permissions":
            return [self.permission(one, f"{place}[{i}]") for i, one in enumerate(self.sequence(value, place))]
        if key == "rate":
            rate = self.mapping(value, place, ("calls", "max_calls", "seconds"))
            return {name: self.amount(name, one, f"{place}.{name}") for name, one in rate.items()}
        return value

    def amount(self, name: str, value: Any, place: str) -> Any:
        if name == "seconds":
            return self.number(value, place, above=0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(place, f"expected a whole number from 0, got {value!r:.60}")
        return value

    def permission(self, value: Any, place: str) -> str:
        if value not in list(Permission):
            raise self.error(place, f"there is no permission {value!r:.60}", str(value), Permission)
        return str(value)
