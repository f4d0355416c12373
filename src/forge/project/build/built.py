"""Loads and runs a build: its files are checked against the manifest and read once; nothing else is used."""

from __future__ import annotations

import json
import logging
import shutil
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from forge.core.check_definition import NameFilter
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.registry import LiveSource, ToolRegistry, ToolSource, YieldingSource
from forge.core.secrets import secrets_of
from forge.core.spec import INTERFACE_VERSION, Category, ToolSpec
from forge.core.tool import Tool
from forge.mcp.pins import Pin, Pins, digest
from forge.permissions.questions import Approver, OpeningQuestions, let_ask
from forge.process.run_script import ScriptSettings
from forge.project.assemble.sources import SCRIPTS as FOLDER
from forge.project.assemble.sources import Sources, script_names
from forge.project.build.compile import entry_of, schema_of, schema_path
from forge.project.build.load import project_alone
from forge.project.build.output import read_build, write_files
from forge.project.build.record import AGENT, DOCUMENTS, PINS, PROJECT, SCRIPTS, SKILLS, OutputFile, to_bytes
from forge.project.config import EgressEntry, load_configuration
from forge.project.config.declaration import Configuration
from forge.project.config.knowledge import SkillsEntry
from forge.project.config.merging import stricter_egress, stricter_sandbox
from forge.project.version import version
from forge.scripts.folder import Script, ScriptTool, find_candidates, load, name_script
from forge.tools import built_ins
from forge.workspace.paths import PathValidator

log = logging.getLogger(__name__)

Report = Callable[[str], None]

_MACHINE_FIELDS = ("guardrails", "secrets", "layers", "origins", "files", "notes")
_GUARDED = ("category", "permissions", "optional_permissions", "confirm", "ends_turn")


@dataclass(kw_only=True, eq=False)
class Built:
    """A built agent. `directory` is a temporary copy of the checked files."""

    directory: Path
    sha256: str  # of the manifest
    manifest: Mapping[str, Any]
    agent: Mapping[str, Any]
    configuration: Configuration
    schemas: Mapping[str, bytes]  # by the tool's name
    pins: Mapping[str, Mapping[str, Any]]  # server -> its name for a tool -> definition

    @property
    def dev(self) -> bool | None:
        """True if the development tools were built in; None if only those that the project lists."""
        if not self.manifest["counts"]["dev"]:
            return False
        every = [tool.spec.name for tool in built_ins(ToolRegistry()) if tool.spec.category is Category.DEV]
        return True if all(name in self.schemas for name in every) else None

    def sources(self, workspace: Path) -> BuiltSources:
        return BuiltSources(self, workspace)

    def is_same(self, spec: ToolSpec) -> bool:
        """Returns whether a model sees the same definition of a tool as when it was built."""
        return self.schemas.get(spec.name) == to_bytes(schema_of(spec))

    def keep_only(self, registry: ToolRegistry, report: Report) -> None:
        """Removes tools that were not built, or that differ."""
        entries = {one["name"]: one for one in self.agent["tools"]}
        for name in list(registry):
            spec = registry[name].spec
            now = entry_of(spec)
            if name not in entries or not self.is_same(spec) or any(now[key] != entries[name][key] for key in _GUARDED):
                report(f"{name} is left out: it differs from the build.")
                registry.discard([name])


def load_built(directory: str | Path, expect: str | None = None, *, workspace: str | Path | None = None) -> Built:
    """Loads a build. Raises `ToolError` unless the directory is exactly what a build of this Forge wrote.

    `expect` is the SHA-256 of its manifest. Relative paths of the configuration count from `workspace`, by default
    the current directory.
    """
    path = Path(directory)
    sha256, manifest, files = read_build(path, expect)
    values = manifest.said
    try:
        _check_version(path, values["versions"])
        agent, pins = (_parse_json(files[path]) for path in (AGENT, PINS))
        schemas = {one["name"]: files[schema_path(one["name"])].content for one in agent["tools"]}
        copy = _copy_files(files)
        built = Built(
            directory=copy,
            sha256=sha256,
            manifest=values,
            agent=agent,
            configuration=Configuration(),
            schemas=schemas,
            pins=pins["servers"],
        )
        weakref.finalize(built, shutil.rmtree, copy, ignore_errors=True)
        _ = built.dev
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{path} is not a build that can run: {type(error).__name__} {str(error)[:100]}"
        raise ToolError(problem, ErrorKind.CONFIG, "Build again with forge build.") from None
    built.configuration = _configuration(built, path, Path(workspace) if workspace is not None else Path())
    return built


class BuiltSources(Sources):
    """The sources of a build, without the project: copied scripts and documents, and servers as pinned."""

    def __init__(self, built: Built, workspace: Path) -> None:
        super().__init__(built.configuration, workspace, watch=False)
        self.built = built
        root = built.directory / SCRIPTS
        self.scripts = {"scripts": BuiltScripts(root, built.configuration)} if root.is_dir() else {}
        for name, server in self.servers.items():
            server.pins = BuiltPins(built.pins.get(name, {}), server.target)

    @property
    def all(self) -> dict[str, ToolSource]:
        return {label: BuiltToolsOnly(source, self.built) for label, source in super().all.items()}

    @asynccontextmanager
    async def mount(
        self, registry: ToolRegistry, report: Report = log.warning, approve: Approver | None = None
    ) -> AsyncIterator[None]:
        async with super().mount(registry, report, approve):
            self.built.keep_only(registry, report)
            yield


class BuiltToolsOnly:
    """A source that offers only tools that were built, unchanged."""

    def __init__(self, source: ToolSource, built: Built) -> None:
        self._source = source
        self._built = built

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(secrets_of(self._source))

    def ask_while_opening(self, questions: OpeningQuestions | None) -> None:
        let_ask(self._source, questions)

    async def __aenter__(self) -> Sequence[Tool]:
        return self._same(await self._source.__aenter__())

    async def __aexit__(self, *exception: Any) -> bool | None:
        return await self._source.__aexit__(*exception)

    def follow(self, changed: Callable[[Sequence[Tool]], None]) -> None:
        if isinstance(self._source, LiveSource):
            self._source.follow(lambda tools: changed(self._same(tools)))

    def leave_out(self, names: Collection[str]) -> None:
        if isinstance(self._source, YieldingSource):
            self._source.leave_out(names)

    def _same(self, tools: Sequence[Tool]) -> list[Tool]:
        same = {tool.spec.name: self._built.is_same(tool.spec) for tool in tools}
        if others := [name for name, is_same in same.items() if not is_same]:
            log.warning("left out, because they differ from the build: %s", ", ".join(others))
        return [tool for tool in tools if same[tool.spec.name]]


class BuiltScripts:
    """The copied scripts. They are outside the workspace and do not change."""

    def __init__(self, root: Path, configuration: Configuration) -> None:
        self._root = root
        self._configuration = configuration

    async def __aenter__(self) -> Sequence[Tool]:
        tools: list[Tool] = await in_thread(self._load)
        return tools

    async def __aexit__(self, *exception: Any) -> None:
        return None

    def _load(self) -> list[Tool]:
        paths = PathValidator(self._root, environment={})  # the cap applies to the workspace only
        settings, names = ScriptSettings(sandbox=self._configuration.sandbox), script_names(self._configuration)
        chosen = NameFilter(names["include"], names["exclude"])
        read = [load(one, paths) for one in find_candidates(paths, FOLDER, in_root=True)]
        found = [name_script(one, names["prefix"], chosen) for one in read if isinstance(one, Script)]
        named = {one.name: one for one in reversed(found) if one is not None}  # the first script of a name counts
        return [ScriptTool(one, settings) for one in named.values()]


class BuiltPins(Pins):
    """The approvals of one server at build time; no approval can be added."""

    def __init__(self, definitions: Mapping[str, Any], target: str) -> None:
        super().__init__()
        self._pins = {name: Pin(digest(one), one, target, by="forge build") for name, one in definitions.items()}

    @property
    def trusts_first(self) -> bool:
        return False

    def of(self, server: str) -> dict[str, Pin]:
        return dict(self._pins)

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        raise ToolError(
            "a built agent cannot approve anything",
            ErrorKind.CONFIG,
            "Approve it in the project, then build again.",
        )


def _configuration(built: Built, shown: Path, base: Path) -> Configuration:
    """Returns the project's configuration, tightened by this machine's; relative paths count from `base`."""
    project = built.directory / PROJECT
    try:
        own, here = project_alone(str(project)), load_configuration(str(project))
        own.check_set()
    except ToolError as error:
        error.message = error.message.replace(str(built.directory), str(shown))
        raise

    def rebase(path: Path) -> Path:
        return base / path.relative_to(project.parent) if path.is_relative_to(project.parent) else path

    skills = built.directory / SKILLS
    return own.replace(
        **{name: getattr(here, name) for name in _MACHINE_FIELDS},
        egress=_stricter_egress(own.egress, here.egress),
        sandbox=stricter_sandbox(own.sandbox, here.sandbox),  # no variable loosens a build
        agent=own.agent.replace(model=here.agent.model),
        tools=None if own.tools is None else here.tools,  # only tools that are allowed here
        secret_files=tuple(map(rebase, here.secret_files)),
        workspace=own.workspace.replace(
            root=None if own.root is None else rebase(own.root),
            roots=tuple(root.replace(path=rebase(root.path)) for root in own.roots),
        ),
        servers={
            name: one.replace(directory=rebase(one.directory)) if one.directory is not None else one
            for name, one in own.servers.items()
        },
        channels={
            name: one.replace(path=rebase(one.path)) if one.path is not None else one
            for name, one in own.channels.items()
        },
        skills=SkillsEntry(
            paths=(str(skills),) if skills.is_dir() else (), active=own.skills.active if own.skills else ()
        ),
    )


def _stricter_egress(own: EgressEntry | None, here: EgressEntry | None) -> EgressEntry | None:
    if own is None or here is None:
        return own or here
    both = stricter_egress(asdict(own), asdict(here))
    return EgressEntry(
        mode=both["mode"], domains=tuple(both.get("domains", ())), private=tuple(both.get("private", ()))
    )


def _copy_files(files: Mapping[str, OutputFile]) -> Path:
    """Copies files that are read again while the agent runs, so that later changes of the original have no effect."""
    prefixes = tuple(f"{one}/" for one in (SCRIPTS, SKILLS, DOCUMENTS))
    try:
        copy = Path(mkdtemp(prefix="forge-built-")).resolve()
        write_files(copy, {path: file for path, file in files.items() if path == PROJECT or path.startswith(prefixes)})
    except OSError as error:
        problem = f"cannot copy the build in order to run it: {error.strerror or error}"
        raise ToolError(problem, ErrorKind.SYSTEM, "Free some space in the directory for temporary files.") from None
    return copy


def _check_version(shown: Path, versions: Mapping[str, Any]) -> None:
    """Refuses a build of another Forge, which has other tools under the same names."""
    for what, now in (("forge", version()), ("tool_interface", INTERFACE_VERSION)):
        if versions[what] != now:
            name = "Forge" if what == "forge" else "the tool interface"
            raise ToolError(
                f"{shown} was built with {name} {versions[what]}, but this is {now}",
                ErrorKind.CONFIG,
                f"Run it with {versions[what]}, or build again.",
            )


def _parse_json(file: OutputFile) -> Any:
    return json.loads(file.content)
