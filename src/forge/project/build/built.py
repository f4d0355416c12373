"""Running what was built: checked against its manifest, read once, and nothing that was not built."""

from __future__ import annotations

import logging
import shutil
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from forge.project.build.checked import read_checked
from forge.project.build.definition import entry_of, schema_of, schema_path
from forge.project.build.load import project_alone
from forge.project.build.output import write_files
from forge.project.build.record import AGENT, DOCUMENTS, PINS, PROJECT, SCRIPTS, SKILLS, File, written
from forge.project.config import Configuration, EgressEntry, load_configuration
from forge.project.config.knowledge import SkillsEntry
from forge.project.assemble.sources import SCRIPTS as FOLDER
from forge.project.assemble.sources import Sources
from forge.project.config.strictness import stricter_egress, stricter_sandbox
from forge.project.version import version
from forge.core.errors import ErrorKind, ToolError
from forge.core.mounting import LiveSource, YieldingSource
from forge.core.registry import ToolRegistry, ToolSource
from forge.core.secrets import secrets_of
from forge.core.spec import INTERFACE_VERSION, ToolSpec
from forge.core.tool import Tool
from forge.sources.pins import Pin, Pins, digest
from forge.workspace.paths import PathValidator

log = logging.getLogger(__name__)

Report = Callable[[str], None]

_OF_THIS_MACHINE = ("guardrails", "secrets", "layers", "origins", "files", "notes")
_GUARDED = ("category", "permissions", "optional_permissions", "confirm", "ends_turn")


@dataclass(kw_only=True, eq=False)
class Built:
    """An agent as it was built. `directory` is a copy of the files that were checked, gone when this is."""

    directory: Path
    sha256: str  # of the manifest
    manifest: Mapping[str, Any]
    agent: Mapping[str, Any]
    configuration: Configuration
    schemas: Mapping[str, bytes]  # by the tool's name
    pins: Mapping[str, Mapping[str, Any]]  # server -> its name for a tool -> definition

    @property
    def dev(self) -> bool:
        """Whether tools for development were built in."""
        return bool(self.manifest["counts"]["dev"])

    def sources(self, workspace: Path) -> BuiltSources:
        return BuiltSources(self, workspace)

    def is_same(self, spec: ToolSpec) -> bool:
        """Whether a model is told the same of a tool as when it was built."""
        return self.schemas.get(spec.name) == written(schema_of(spec))

    def keep_only(self, registry: ToolRegistry, report: Report) -> None:
        """Whatever was not built, or is another, goes."""
        entries = {one["name"]: one for one in self.agent["tools"]}
        for name in list(registry):
            spec = registry[name].spec
            now = entry_of(spec)
            if name not in entries or not self.is_same(spec) or any(now[key] != entries[name][key] for key in _GUARDED):
                report(f"{name} is left out: it is not what was built.")
                registry.discard([name])


def load_built(directory: str | Path, expect: str | None = None, *, workspace: str | Path | None = None) -> Built:
    """Raises `ToolError` unless the directory is exactly what a build of this Forge wrote.

    `expect` is the SHA-256 of its manifest. `workspace` is where relative paths of the configuration count from; by
    default the current directory.
    """
    shown = Path(directory)
    sha256, manifest, files = read_checked(shown, expect)
    said = manifest.said
    try:
        _check_version(shown, said["versions"])
        agent, pins = (_json(files[path]) for path in (AGENT, PINS))
        schemas = {one["name"]: files[schema_path(one["name"])].content for one in agent["tools"]}
        copy = _copied(files)
        built = Built(
            directory=copy,
            sha256=sha256,
            manifest=said,
            agent=agent,
            configuration=Configuration(),
            schemas=schemas,
            pins=pins["servers"],
        )
        weakref.finalize(built, shutil.rmtree, copy, ignore_errors=True)
        _ = built.dev
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{shown} is no build that can be run: {type(error).__name__} {str(error)[:100]}"
        raise ToolError(problem, ErrorKind.CONFIG, "Build it again with forge build.") from None
    built.configuration = _configuration(built, shown, Path(workspace) if workspace is not None else Path())
    return built


class BuiltSources(Sources):
    """A project's sources, without the project: the scripts and documents that were copied, and servers as pinned."""

    def __init__(self, built: Built, workspace: Path) -> None:
        super().__init__(built.configuration, workspace, watch=False)
        self.built = built
        root = built.directory / SCRIPTS
        self.scripts = {"scripts": BuiltScripts(root, built.configuration.sandbox)} if root.is_dir() else {}
        for name, server in self.servers.items():
            server.pins = BuiltPins(built.pins.get(name, {}), server.target)

    @property
    def all(self) -> dict[str, ToolSource]:
        return {label: Exactly(source, self.built) for label, source in super().all.items()}

    @asynccontextmanager
    async def opened(self, registry: ToolRegistry, report: Report = log.warning) -> AsyncIterator[None]:
        async with super().opened(registry, report):
            self.built.keep_only(registry, report)
            yield


class Exactly:
    """A source of which only the tools that were built are offered, as they were then."""

    def __init__(self, source: ToolSource, built: Built) -> None:
        self._source = source
        self._built = built

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(secrets_of(self._source))

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
            log.warning("left out, since they are not what was built: %s", ", ".join(others))
        return [tool for tool in tools if same[tool.spec.name]]


class BuiltScripts:
    """The scripts that were copied. They lie outside the workspace, and do not change any more."""

    def __init__(self, root: Path, sandbox: str) -> None:
        self._root = root
        self._sandbox = sandbox

    async def __aenter__(self) -> Sequence[Tool]:
        from forge.core.execution.threads import in_thread

        tools: list[Tool] = await in_thread(self._load)
        return tools

    async def __aexit__(self, *exception: Any) -> None:
        return None

    def _load(self) -> list[Tool]:
        from forge.process.scripts.settings import ScriptSettings
        from forge.sources.scripts.finding import candidates
        from forge.sources.scripts.loading import Script, load
        from forge.sources.scripts.tool import ScriptTool

        paths = PathValidator(self._root, environment={})  # a cap is for the workspace
        settings = ScriptSettings(sandbox=self._sandbox)
        found = [load(one, paths) for one in candidates(paths, FOLDER, in_root=True)]
        named = {one.name: one for one in reversed(found) if isinstance(one, Script)}  # the first of a name counts
        return [ScriptTool(one, settings) for one in named.values()]


class BuiltPins(Pins):
    """What was approved when it was built, of one server; from here nothing more can be."""

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
            "nothing can be approved for an agent that was built",
            ErrorKind.CONFIG,
            "Approve it in the project, and build it again.",
        )


def _configuration(built: Built, shown: Path, base: Path) -> Configuration:
    """As the project's, no looser than what holds here; what lies beside the workspace counts from where it runs."""
    project = built.directory / PROJECT
    try:
        own, here = project_alone(str(project)), load_configuration(str(project))
        own.check_set()
    except ToolError as error:
        error.message = error.message.replace(str(built.directory), str(shown))
        raise

    def moved(path: Path) -> Path:
        return base / path.relative_to(project.parent) if path.is_relative_to(project.parent) else path

    skills = built.directory / SKILLS
    return own.replace(
        **{name: getattr(here, name) for name in _OF_THIS_MACHINE},
        egress=_egress(own.egress, here.egress),
        sandbox=stricter_sandbox(own.sandbox, here.sandbox),  # no variable opens what was built
        agent=own.agent.replace(model=here.agent.model),
        tools=None if own.tools is None else here.tools,  # with no more than what is allowed here
        secret_files=tuple(map(moved, here.secret_files)),
        workspace=own.workspace.replace(
            root=None if own.root is None else moved(own.root),
            roots=tuple(root.replace(path=moved(root.path)) for root in own.roots),
        ),
        servers={
            name: one.replace(directory=moved(one.directory)) if one.directory is not None else one
            for name, one in own.servers.items()
        },
        channels={
            name: one.replace(path=moved(one.path)) if one.path is not None else one
            for name, one in own.channels.items()
        },
        skills=SkillsEntry(
            paths=(str(skills),) if skills.is_dir() else (), active=own.skills.active if own.skills else ()
        ),
    )


def _egress(own: EgressEntry | None, here: EgressEntry | None) -> EgressEntry | None:
    if own is None or here is None:
        return own or here
    both = stricter_egress(own.fields(), here.fields())
    return EgressEntry(
        mode=both["mode"], domains=tuple(both.get("domains", ())), private=tuple(both.get("private", ()))
    )


def _copied(files: Mapping[str, File]) -> Path:
    """Of what is read again while it runs: whoever changes the original meanwhile changes nothing."""
    kept = tuple(f"{one}/" for one in (SCRIPTS, SKILLS, DOCUMENTS))
    try:
        copy = Path(mkdtemp(prefix="forge-built-")).resolve()
        write_files(copy, {path: file for path, file in files.items() if path == PROJECT or path.startswith(kept)})
    except OSError as error:
        problem = f"what was built cannot be copied to run it: {error.strerror or error}"
        raise ToolError(problem, ErrorKind.SYSTEM, "Make room in the directory for temporary files.") from None
    return copy


def _check_version(shown: Path, versions: Mapping[str, Any]) -> None:
    """Another Forge has other tools under the same names."""
    for what, now in (("forge", version()), ("tool_interface", INTERFACE_VERSION)):
        if versions[what] != now:
            name = "Forge" if what == "forge" else "the tool interface"
            raise ToolError(
                f"{shown} was built with {name} {versions[what]}, and this is {now}",
                ErrorKind.CONFIG,
                f"Run it with {versions[what]}, or build it again.",
            )


def _json(file: File) -> Any:
    import json

    return json.loads(file.content)
