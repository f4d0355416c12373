"""Opens and mounts the sources of a project: MCP servers, OpenAPI documents, webhooks and scripts."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from forge.core.context import Root
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.registry import ToolRegistry, ToolSource, mount_source, problems_of
from forge.core.tool import Tool
from forge.mcp.client.mcp_call import McpCall, McpResource
from forge.openapi.openapi_call import OpenapiCall
from forge.project.assemble.access import (
    ProjectFlags,
    list_secret_files,
    project_egress,
    project_policy,
    workspace_root,
)
from forge.project.assemble.choose_tools import (
    MADE_FOR_PROJECTS,
    apply_settings,
    check_names,
    report_unavailable,
    report_unmatched,
)
from forge.project.config import load_configuration
from forge.project.config.declaration import NAME, Configuration
from forge.project.trust import is_trusted
from forge.tools import built_ins
from forge.workspace.state import NAME as STATE
from forge.workspace.state import is_foreign, state_directory

if TYPE_CHECKING:  # loaded where a project has them
    from forge.mcp.client.link import Access, Http, Stdio
    from forge.mcp.client.source import McpSource
    from forge.network.egress import Egress
    from forge.openapi.credentials import Auth
    from forge.openapi.source import OpenApi
    from forge.permissions.policy import Rules
    from forge.permissions.questions import Approver
    from forge.project.config.access import Sandbox
    from forge.project.config.sources import AcpEntry, McpEntry

log = logging.getLogger(__name__)

SCRIPTS = "tools"  # the folder of a project's own scripts
PINS = "pins.json"
_SCRIPT_ENDINGS = (".py", ".ts", ".js")


class Sources:
    """The sources of a project, and the tools that reach them without mounting. Nothing is open yet."""

    def __init__(
        self, configuration: Configuration, workspace: Path, *, watch: bool = True, copy_of: Path | None = None
    ) -> None:
        self.configuration = configuration
        self.is_part = False
        self.servers = _build_servers(configuration, workspace)
        self.documents = _build_documents(configuration)
        self.unset = {key_path: UnsetSource(error) for key_path, error in configuration.unset.items()}
        self.scripts = _build_scripts(configuration, workspace) if watch or has_scripts(workspace) else {}
        if self.scripts and is_withheld(configuration, workspace, copy_of):
            self.scripts = {}

    def of(self, name: str) -> Sources:
        """Returns only the sources that a tool of this name may come from; all of them if there is none."""
        prefix, found, _ = name.partition("__")
        chosen = copy.copy(self)
        chosen.servers = {key: one for key, one in self.servers.items() if found and one.prefix == prefix}
        entries = self.configuration.openapi
        chosen.documents = {
            key: one for key, one in self.documents.items() if found and prefix in (entries[key].prefix or key,)
        }
        chosen.scripts = {} if found else self.scripts
        chosen.unset = {
            key_path: one
            for key_path, one in self.unset.items()
            if key_path.partition(".")[2] == (prefix if found else name)
        }
        chosen.is_part = True
        return chosen if chosen.all else self

    @property
    def all(self) -> dict[str, ToolSource]:
        return {**self.servers, **self.documents, **self.scripts, **self.unset}

    def add_servers(self, entries: Mapping[str, McpEntry], workspace: Path) -> None:
        """Adds MCP servers that a person names beside those of the file, with the same sandbox, rules and pins.

        A name that the file has stays the one of the file. Raises `ToolError` or `DefinitionError`.
        """
        new = {name: entry for name, entry in entries.items() if name not in self.configuration.servers}
        self.servers.update(_build_servers(self.configuration, workspace, new))

    def direct_tools(self) -> list[Tool]:
        """Returns the tools that reach servers and documents without mounting them."""

        found: list[Tool] = [McpCall(self.servers), OpenapiCall(self.documents)]
        if self.servers:
            found.append(McpResource(self.servers))
        return found

    def webhooks(self) -> list[Tool]:
        """Returns the webhook tools, which need no open connection."""
        return _build_webhooks(self.configuration)

    @asynccontextmanager
    async def mount(
        self, registry: ToolRegistry, report: Callable[[str], None] = log.warning, approve: Approver | None = None
    ) -> AsyncIterator[None]:
        """Mounts the sources in parallel for the block. A source that cannot be opened is reported and left out.

        `approve` answers their questions, such as whether a program may start without a sandbox; by default no one.
        """
        import asyncio  # listing tools does without

        from forge.permissions.questions import OpeningQuestions, let_ask

        sources, configuration = self.all, self.configuration
        questions = OpeningQuestions(approve) if approve is not None else None
        for source in sources.values():
            let_ask(source, questions)
        async with AsyncExitStack() as stack:
            entering = [
                _enter(stack, mount_source(registry, source, lambda tool: apply_settings(tool, configuration)))
                for source in sources.values()
            ]
            found = await asyncio.gather(*entering, return_exceptions=True)
            failed = {label: one for label, one in zip(sources, found, strict=True) if isinstance(one, BaseException)}
            for label, error in failed.items():
                if not isinstance(error, ToolError | DefinitionError):
                    raise error
                advice = f" {error.suggestion}" if isinstance(error, ToolError) and error.suggestion else ""
                report(f"{label} is left out: {error}.{advice}")
            problems = (
                _render_problem(label, problem)
                for label, source in sources.items()
                if label not in failed
                for problem in problems_of(source)
            )
            for problem in dict.fromkeys(problems):
                report(problem)
            if not failed and not self.is_part:
                check_names(configuration, registry, report)
            yield


class UnsetSource:
    """A source that lacks a variable. Opening it raises the error."""

    def __init__(self, error: ToolError) -> None:
        self.error = error

    async def __aenter__(self) -> list[Tool]:
        raise self.error

    async def __aexit__(self, *exception: Any) -> None:
        return None


def project_servers(flags: ProjectFlags) -> dict[str, McpSource]:
    """Returns the MCP servers that a project configures, by name. Raises `ToolError`."""
    configuration = load_configuration(flags.config)
    configuration.check_set("mcpServers")
    return _build_servers(configuration, workspace_root(flags.workspace, configuration.root))


def project_server(flags: ProjectFlags, name: str, text: str | None = None) -> McpSource:
    """Returns one MCP server of a project; what other servers lack does not matter. Raises `ToolError`.

    `text`: of the configuration, where its file is not written yet.
    """
    configuration = load_configuration(flags.config, text=text)
    if (unset := configuration.unset.get(f"mcpServers.{name}")) is not None:
        raise unset
    servers = _build_servers(configuration, workspace_root(flags.workspace, configuration.root))
    if name not in servers:
        raise ToolError(f"the server {name} is disabled", ErrorKind.CONFIG, f"Remove mcpServers.{name}.disabled.")
    return servers[name]


def mount_tools(registry: ToolRegistry, sources: Sources, report: Callable[[str], None]) -> ToolRegistry:
    """Returns the registry with the tools of the sources, only to be read: the sources are closed again."""

    async def collect() -> ToolRegistry:
        async with sources.mount(registry, report):
            return registry.select(lambda spec: True)

    if not sources.all:
        if not sources.is_part:
            report_unmatched(sources.configuration, registry, report)
            report_unavailable(sources.configuration, registry, report)
        return registry
    import asyncio  # listing the built-in tools does without

    return asyncio.run(collect())


def _render_problem(label: str, problem: Any) -> str:
    """Renders the problem of one script or operation; the others still work."""
    path, why = (problem.path, problem.why) if hasattr(problem, "why") else (label, str(problem))
    return f"{path}: {why}"


async def _enter(stack: AsyncExitStack, manager: Any) -> None:
    await stack.enter_async_context(manager)


def _build_servers(
    configuration: Configuration, workspace: Path, entries: Mapping[str, McpEntry] | None = None
) -> dict[str, McpSource]:
    entries = configuration.servers if entries is None else entries
    if not entries:
        return {}
    from forge.mcp.client.source import mcp
    from forge.mcp.pins import Pins

    pins = Pins(state_directory(workspace) / PINS, doubt=_unused_pins(workspace))
    servers = {
        name: mcp(
            _transport(configuration, entry, workspace),
            name=name,
            prefix=entry.prefix or None,
            include=entry.include,
            exclude=entry.exclude,
            rename=entry.rename,
            timeout=entry.timeout,
            hidden=entry.hidden,
            pins=pins,
        )
        for name, entry in entries.items()
    }
    for server in servers.values():
        if server.login is not None:
            server.login.use_project(workspace, project_egress(configuration))
    return servers


def _transport(configuration: Configuration, entry: McpEntry, workspace: Path) -> Stdio | Http:
    """Returns how a server is reached. The file may be another's: its program's sandbox and access fail closed."""
    from forge.mcp.client.link import Http, Stdio
    from forge.mcp.oauth.login import OAuth

    if entry.url:
        return Http(entry.url, headers=entry.headers, auth=OAuth(**entry.auth))
    program, *args = entry.command
    return Stdio(
        program,
        args,
        env=entry.environment,
        cwd=entry.directory or workspace,
        integrity=entry.integrity,
        ask_unconfined=not entry.sandbox and configuration.sandbox == "auto",
        **program_access(configuration, entry),
    )


class ProgramAccess(TypedDict):
    """The limits of the program of a server or of another agent."""

    placeholders: Mapping[str, str]
    sandbox: Sandbox
    network: bool
    hosts: Rules
    egress: Egress | None
    workspace: Access
    roots: list[Root]
    hidden: Sequence[str]
    memory: int


def program_access(configuration: Configuration, entry: McpEntry | AcpEntry) -> ProgramAccess:
    """Returns the limits of a program, as its entry and the project say."""
    from forge.project.assemble.secrets import find_placeholders

    egress = project_egress(configuration)
    return ProgramAccess(
        placeholders=find_placeholders(entry.kept_outside, egress),
        sandbox=server_sandbox(configuration, entry),
        network=entry.network,
        hosts=project_policy(configuration, None),
        egress=egress,
        workspace="read" if entry.workspace == "write" and not configuration.writes else entry.workspace,
        roots=[Root(one.path, writable=one.writable and configuration.writes) for one in entry.program_roots],
        hidden=list_secret_files(configuration),
        memory=entry.memory,
    )


def server_sandbox(configuration: Configuration, entry: McpEntry | AcpEntry) -> Sandbox:
    """Returns the sandbox of a server's program: its own setting, or the project's; `auto` means `required` here."""
    return entry.sandbox or ("required" if configuration.sandbox == "auto" else configuration.sandbox)


def _unused_pins(workspace: Path) -> str:
    """Returns why approvals in the workspace are not used: another person may have made them."""

    folder = workspace / STATE
    if not os.path.lexists(folder / PINS) or not is_foreign(folder):
        return ""
    return (
        f"{folder / PINS} was not made by Forge on this machine, so it is ignored. Run `forge trust` to review and"
        " trust it"
    )


def _build_documents(configuration: Configuration) -> dict[str, OpenApi]:
    if not configuration.openapi:
        return {}
    from forge.openapi.source import openapi

    return {
        name: openapi(
            entry.spec,
            name=name,
            prefix=entry.prefix or None,
            server=entry.server,
            auth=cast("Auth", entry.auth) or None,
            headers=entry.headers,
            include=entry.include,
            exclude=entry.exclude,
            tags=entry.tags,
            timeout=entry.timeout,
            hidden=entry.hidden,
            egress=project_egress(configuration),
            idempotency_header=entry.idempotency_header,
        )
        for name, entry in configuration.openapi.items()
    }


def _build_webhooks(configuration: Configuration) -> list[Tool]:
    if not configuration.webhooks:
        return []
    from forge.webhooks import webhook

    made: list[Tool] = []
    for name, entry in configuration.webhooks.items():
        more: dict[str, Any] = {} if entry.timeout is None else {"timeout": entry.timeout}
        try:
            made.append(
                webhook(
                    name,
                    entry.url,
                    entry.description,
                    parameters=entry.parameters,
                    headers=entry.headers,
                    method=entry.method,
                    idempotency_header=entry.idempotency_header,
                    **more,
                )
            )
        except DefinitionError as error:
            raise ToolError(
                f"{configuration.name}: {entry.key_path}: {error}", ErrorKind.CONFIG, "Fix this entry in the file."
            ) from None
    return made


def _build_scripts(configuration: Configuration, workspace: Path) -> Mapping[str, ToolSource]:
    from forge.scripts.folder import scripts

    taken = _reserved_names()
    made = scripts(SCRIPTS, root=workspace, sandbox=configuration.sandbox, taken=taken, **script_names(configuration))
    return {"scripts": made}


def script_names(configuration: Configuration) -> ScriptNames:
    """Returns which scripts are tools, and how they are named."""
    entry = configuration.scripts
    if entry is None:
        return {"prefix": "", "include": (), "exclude": ()}
    return {"prefix": entry.prefix, "include": entry.include, "exclude": entry.exclude}


class ScriptNames(TypedDict):
    prefix: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]


def _reserved_names() -> frozenset[str]:
    """Returns the names of all built-in tools, chosen or not: no script may have one of them."""

    known = (tool.spec for tool in built_ins(ToolRegistry()))
    return frozenset(name for spec in known for name in (spec.name, *spec.aliases)) | MADE_FOR_PROJECTS


def is_withheld(configuration: Configuration, workspace: Path, copy_of: Path | None = None) -> bool:
    """Returns whether scripts and skills are withheld, because the project's configuration is not trusted.

    They are also withheld if another file was named with --config. A workspace that Forge copied from the project
    `copy_of` counts as that project, if it has the same configuration.
    """
    own = workspace / NAME
    if not os.path.lexists(own):
        return False
    if copy_of is not None and _has_same_text(own, copy_of / NAME):
        return is_withheld(configuration, copy_of)
    used = [layer.name for layer in configuration.layers if layer.kind == "project"]
    if any(os.path.realpath(name) == os.path.realpath(own) for name in used):
        return False

    return not used or not is_trusted(workspace)


def _has_same_text(file: Path, other: Path) -> bool:
    try:
        return not file.is_symlink() and file.read_bytes() == other.read_bytes()
    except OSError:
        return False


def has_scripts(workspace: Path) -> bool:
    """Returns whether scripts may exist: a folder `tools`, or files in the root that could be tools."""
    try:
        with os.scandir(workspace) as entries:
            return any(entry.name == SCRIPTS or entry.name.endswith(_SCRIPT_ENDINGS) for entry in entries)
    except OSError:
        return False
