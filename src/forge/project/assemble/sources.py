"""Other people's tools in a project: its MCP servers, OpenAPI documents, webhooks and scripts, opened and mounted."""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.lazy_log import LazyLog
from forge.core.mounting import mount_source
from forge.core.registry import ToolRegistry, ToolSource, problems_of
from forge.core.tool import Tool
from forge.project.assemble.choose import check_names, configured, tell_unmatched
from forge.project.assemble.egress import project_egress
from forge.project.assemble.workspace import workspace_root
from forge.project.config import NAME, Configuration, load_configuration

if TYPE_CHECKING:  # loaded where a project has them
    from forge.sources.mcp import McpServer
    from forge.sources.openapi import OpenApi

log = LazyLog(__name__)

SCRIPTS = "tools"  # the folder of a project's own
PINS = "pins.json"
MADE_FOR_PROJECTS = frozenset(  # built-in tools that are not in every project
    "mcp_call openapi_call read_skill memory_get memory_search memory_write schedule_delete schedule_history"
    " schedule_list schedule_set task".split()
)
_SCRIPT_ENDINGS = (".py", ".ts", ".js")


class Asked(Protocol):
    """What a person says of the project: the flags."""

    @property
    def workspace(self) -> str | None: ...
    @property
    def config(self) -> str | None: ...


class Sources:
    """What a project mounts, and the tools that stand for it without being mounted. Nothing is opened yet."""

    def __init__(self, configuration: Configuration, workspace: Path, *, watch: bool = True) -> None:
        self.configuration = configuration
        self.is_part = False
        self.servers = _servers(configuration, workspace)
        self.documents = _documents(configuration)
        self.lacking = {place: Lacking(error) for place, error in configuration.unset.items()}
        self.scripts = _scripts(configuration, workspace) if watch or has_scripts(workspace) else {}
        if self.scripts and is_held_back(configuration, workspace):
            self.scripts = {}

    def of(self, name: str) -> Sources:
        """Only those that a tool of this name would come from; all of them, where it could be from none."""
        prefix, found, _ = name.partition("__")
        chosen = copy.copy(self)
        chosen.servers = {key: one for key, one in self.servers.items() if found and one.prefix == prefix}
        chosen.documents = {key: one for key, one in self.documents.items() if found and key == prefix}
        chosen.scripts = {} if found else self.scripts
        chosen.lacking = {
            place: one for place, one in self.lacking.items() if place.partition(".")[2] == (prefix if found else name)
        }
        chosen.is_part = True
        return chosen if chosen.all else self

    @property
    def all(self) -> dict[str, ToolSource]:
        return {**self.servers, **self.documents, **self.scripts, **self.lacking}

    def one_off(self) -> list[Tool]:
        """The tools that reach servers and documents without mounting them."""
        from forge.sources.mcp.call import McpCall
        from forge.sources.openapi.call import OpenapiCall

        return [McpCall(self.servers), OpenapiCall(self.documents)]

    def webhooks(self) -> list[Tool]:
        """They need nothing kept open."""
        return _webhooks(self.configuration)

    @asynccontextmanager
    async def opened(self, registry: ToolRegistry, report: Callable[[str], None] = log.warning) -> AsyncIterator[None]:
        """Mounted while the block runs, side by side; what cannot be opened is reported and left out."""
        import asyncio  # listing tools does without

        sources, configuration = self.all, self.configuration
        async with AsyncExitStack() as stack:
            entering = [
                _entered(stack, mount_source(registry, source, lambda tool: configured(tool, configuration)))
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
                _said(label, problem)
                for label, source in sources.items()
                if label not in failed
                for problem in problems_of(source)
            )
            for problem in dict.fromkeys(problems):
                report(problem)
            if not failed and not self.is_part:
                check_names(configuration, registry, report)
            yield


class Lacking:
    """A source that a variable is missing for: it says so where it is needed."""

    def __init__(self, error: ToolError) -> None:
        self.error = error

    async def __aenter__(self) -> list[Tool]:
        raise self.error

    async def __aexit__(self, *exception: Any) -> None:
        return None


def project_servers(asked: Asked) -> dict[str, McpServer]:
    """The MCP servers that a project configures, by name. Raises `ToolError`."""
    configuration = load_configuration(asked.config)
    configuration.check_set("mcpServers")
    return _servers(configuration, workspace_root(asked.workspace, configuration.root))


def mounted_tools(registry: ToolRegistry, sources: Sources, report: Callable[[str], None]) -> ToolRegistry:
    """The registry with what the sources offer now; for looking at, since they are closed again."""

    async def look() -> ToolRegistry:
        async with sources.opened(registry, report):
            return registry.select(lambda spec: True)

    if not sources.all:
        if not sources.is_part:
            tell_unmatched(sources.configuration, registry, report)
        return registry
    import asyncio  # listing the built-in tools does without

    return asyncio.run(look())


def _said(label: str, problem: Any) -> str:
    """A script that cannot be a tool, or an operation that cannot be called: the others can."""
    path, why = (problem.path, problem.why) if hasattr(problem, "why") else (label, str(problem))
    return f"{path}: {why}"


async def _entered(stack: AsyncExitStack, manager: Any) -> None:
    await stack.enter_async_context(manager)


def _servers(configuration: Configuration, workspace: Path) -> dict[str, McpServer]:
    if not configuration.servers:
        return {}
    from forge.sources.mcp import mcp
    from forge.sources.pins import Pins
    from forge.workspace.state import state_directory

    pins = Pins(state_directory(workspace) / PINS, doubt=_unused_pins(workspace))
    return {
        name: mcp(
            entry.url or entry.command,
            name=name,
            prefix=entry.prefix or None,
            headers=entry.headers,
            environment=entry.environment,
            directory=entry.directory or workspace,
            include=entry.include,
            exclude=entry.exclude,
            rename=entry.rename,
            timeout=entry.timeout,
            hidden=entry.hidden,
            pins=pins,
        )
        for name, entry in configuration.servers.items()
    }


def _unused_pins(workspace: Path) -> str:
    """Why approvals that lie in the workspace are not used: those were made by somebody, for tools of these names."""
    from forge.workspace.state import NAME as STATE
    from forge.workspace.state.ownership import is_foreign

    folder = workspace / STATE
    if not os.path.lexists(folder / PINS) or not is_foreign(folder):
        return ""
    return f"{folder / PINS} was not made by Forge on this machine, and is not used. `forge trust` shows and accepts it"


def _documents(configuration: Configuration) -> dict[str, OpenApi]:
    if not configuration.openapi:
        return {}
    from forge.sources.openapi import openapi

    return {
        name: openapi(
            entry.spec,
            name=name,
            server=entry.server,
            auth=entry.auth or None,
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


def _webhooks(configuration: Configuration) -> list[Tool]:
    if not configuration.webhooks:
        return []
    from forge.sources.webhook import webhook

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
                f"{configuration.name}: {entry.place}: {error}", ErrorKind.CONFIG, "Fix this entry."
            ) from None
    return made


def _scripts(configuration: Configuration, workspace: Path) -> Mapping[str, ToolSource]:
    from forge.sources.scripts import scripts

    return {"scripts": scripts(SCRIPTS, root=workspace, sandbox=configuration.sandbox, taken=_taken())}


def _taken() -> frozenset[str]:
    """What built-in tools are called, also those that a project did not choose: no script may pass for one of them."""
    from forge.tools import built_ins

    known = (tool.spec for tool in built_ins(ToolRegistry()))
    return frozenset(name for spec in known for name in (spec.name, *spec.aliases)) | MADE_FOR_PROJECTS


def is_held_back(configuration: Configuration, workspace: Path) -> bool:
    """A project whose configuration is there and was not accepted: its scripts and skills reach no model either.

    Neither do they where a file from elsewhere was named: that says nothing about this one.
    """
    own = workspace / NAME
    if not os.path.lexists(own):
        return False
    used = [layer.name for layer in configuration.layers if layer.kind == "project"]
    if any(os.path.realpath(name) == os.path.realpath(own) for name in used):
        return False
    from forge.project.trust import is_trusted  # only where another file was named

    return not used or not is_trusted(workspace)


def has_scripts(workspace: Path) -> bool:
    """Whether it is worth looking: a folder `tools`, or files in the root that could be tools."""
    try:
        with os.scandir(workspace) as entries:
            return any(entry.name == SCRIPTS or entry.name.endswith(_SCRIPT_ENDINGS) for entry in entries)
    except OSError:
        return False
