"""Every tool of a project: built-in ones that need its parts, and those that it names as MODULE:ATTRIBUTE."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.plain_values import text_of
from forge.core.registry import ToolRegistry
from forge.core.tool import Tool, toolset
from forge.project.assemble.choose_tools import apply_settings, change_traits, choose_tools
from forge.project.assemble.knowledge import memory_of
from forge.project.assemble.services import ProjectChannels, schedule_store_opener
from forge.project.assemble.sources import Sources
from forge.project.config.agent import ToolEntry
from forge.project.config.declaration import Configuration
from forge.project.config.reader import file_of
from forge.schedules.tools import schedule_tools
from forge.skills.tools import ReadSkill
from forge.tools.conversation import Deliver, SendMessage

if TYPE_CHECKING:
    from forge.skills.active import ActiveSkills


Skills = Callable[[], "ActiveSkills"]


def project_tools(
    configuration: Configuration,
    workspace: Path,
    sources: Sources,
    skills: Skills,
    *,
    dev: bool | None = False,
    own: Sequence[Tool] | None = None,
    later: bool = False,
) -> ToolRegistry:
    """Returns every tool of a project before its sources are mounted. `skills` is called if some are active.

    `own` are the built-in tools that are built for the project, instead of `own_tools`. `later`: sources that are not
    in `sources` may bring more tools.
    """
    is_active = configuration.skills is not None and bool(configuration.skills.active)
    registry = choose_tools(
        configuration,
        dev=dev,
        own=own_tools(configuration, workspace, sources, skills) if own is None else own,
        always=[*sources.webhooks(), *imported_tools(configuration)],
        groups=skills().groups if is_active else (),
        later=later or bool(sources.all) or is_active,
    )
    if is_active:
        from forge.process.run_script import ScriptSettings

        made = skills().tools(ScriptSettings(sandbox=configuration.sandbox), registry.names)
        registry.add(*(apply_settings(tool, configuration) for tool in made))
    return registry


def own_tools(configuration: Configuration, workspace: Path, sources: Sources, skills: Skills) -> list[Tool]:
    """Returns the built-in tools that are built for the project."""

    channels = ProjectChannels(configuration)
    planning = schedule_tools(
        schedule_store_opener(configuration, workspace),
        channels=channels.names,
        skills=lambda: skills().catalog.skills.keys(),
    )
    made = [*sources.direct_tools(), *planning]
    if configuration.channels:
        made.append(SendMessage(_make_deliver(channels)))
    if configuration.memory is not None and configuration.memory.enabled:
        from forge.memory.tools import memory_tools

        made += memory_tools(memory_of(configuration, workspace, writes=configuration.writes))
    return [*made, ReadSkill(skills)]


def _make_deliver(channels: ProjectChannels) -> Deliver:
    """Returns the function with which `send_message` delivers."""

    async def deliver(text: str, channel: str, to: str) -> bool:
        """Returns whether the message was sent; one for the current conversation is shown there."""
        if not channel:
            return False
        await channels.deliver(text, channel, to)
        return True

    return deliver


# Imports the tools that a project names as MODULE:ATTRIBUTE: its own `@tool` functions, in this process.


_LONGEST_REASON = 300  # characters of an exception's text in an error
_import_lock = RLock()


class Reference(NamedTuple):
    """An entry under `tools:` that names Python code, and the file that has the entry."""

    entry: ToolEntry
    file: str

    @property
    def module(self) -> str:
        return self.entry.name.partition(":")[0]

    @property
    def attribute(self) -> str:
        return self.entry.name.partition(":")[2]

    @property
    def directory(self) -> Path:
        return Path(self.file).absolute().parent

    def error(self, problem: str, advice: str) -> ToolError:
        message = f"{self.file}: {self.entry.key_path}: cannot load the tool {self.entry.name!r}: {problem}"
        return ToolError(message, ErrorKind.CONFIG, advice)


def imported_tools(configuration: Configuration) -> list[Tool]:
    """Imports the modules that the configuration names and returns their tools. Raises `ToolError`.

    Only call this with a configuration that a person trusts: importing a module runs its code.
    """
    found: dict[str, Tool] = {}
    for one in list_references(configuration):
        for tool in _choose(one, _find_tools(one, _import_module(one))):
            if tool.spec.name in found and found[tool.spec.name].spec.origin != one.entry.name:
                other = found[tool.spec.name].spec.origin
                raise one.error(f"{other!r} has the same name, {tool.spec.name}", 'Rename one: @tool(name="…").')
            found[tool.spec.name] = change_traits(tool, {"origin": one.entry.name})
    return list(found.values())


def _choose(one: Reference, tools: list[Tool]) -> list[Tool]:
    """Applies the prefix and the filters of an entry."""
    entry = one.entry
    if not entry.prefix and not entry.include and not entry.exclude:
        return tools
    try:
        return toolset(tools, prefix=entry.prefix, include=entry.include, exclude=entry.exclude)
    except DefinitionError as error:
        raise one.error(str(error), "Correct prefix, include or exclude of the entry.") from None


def list_references(configuration: Configuration) -> list[Reference]:
    """Returns the entries under `tools:` that name Python code."""
    return [
        Reference(entry, file_of(entry.key_path, configuration.files, configuration.name))
        for entry in configuration.tools or ()
        if entry.is_reference
    ]


def is_part_of_project(one: Reference) -> bool:
    """Returns whether the module is a file of the project that is not installed as a package."""
    top = one.module.partition(".")[0]
    return not any(find(top, None) for finder in sys.meta_path if (find := getattr(finder, "find_spec", None)))


def _import_module(one: Reference) -> ModuleType:
    with _import_lock, _on_path(str(one.directory)):
        try:
            module = import_module(one.module)
        except ModuleNotFoundError as error:
            if error.name and f"{one.module}.".startswith(f"{error.name}."):
                raise one.error(
                    f"there is no module {error.name!r} in {one.directory} or among the installed packages",
                    "Correct the name, or install the package into Forge's environment.",
                ) from None
            raise one.error(
                f"{one.module} imports {error.name!r}, which is not installed",
                "Install it into Forge's environment.",
            ) from None
        except (Exception, SystemExit) as error:
            message = " ".join(text_of(error).split())[:_LONGEST_REASON]
            raise one.error(f"importing {one.module} raised {message}", "Fix the module, then try again.") from None
        _check_origin(one)
    return module


@contextmanager
def _on_path(directory: str) -> Iterator[None]:
    """Lets modules of a directory be imported, after installed ones, and only now.

    A model may write files there. So they never replace an installed package, nor one that Forge imports later.
    """
    if directory in sys.path:
        yield
        return
    sys.path.append(directory)
    invalidate_caches()  # a module may be newer than the last look at the directory
    try:
        yield
    finally:
        sys.path.remove(directory)


def _check_origin(one: Reference) -> None:
    """Refuses a module of another directory that has the name of one of the project's modules."""
    top = one.module.partition(".")[0]
    own, loaded = PathFinder.find_spec(top, [str(one.directory)]), sys.modules[top].__spec__
    if own is None or own.origin is None or loaded is None or loaded.origin is None:
        return
    if Path(own.origin).resolve() != Path(loaded.origin).resolve():
        raise one.error(
            f"{own.origin} cannot be imported, because the module {top!r} is {loaded.origin} already",
            "Rename the project's module.",
        )


def _find_tools(one: Reference, module: ModuleType) -> list[Tool]:
    """Returns the tools of an attribute: a tool, or a list of tools."""
    value: Any = module
    for name in one.attribute.split("."):
        if not hasattr(value, name):
            known = [known for known, item in vars(value).items() if isinstance(item, Tool)]
            hints = near(name, known) or known[:5]
            advice = f"Did you mean {' or '.join(f'{one.module}:{hint}' for hint in hints)}?" if hints else ""
            raise one.error(
                f"{one.module} has no attribute {one.attribute!r}", advice or "Define it in the module, with @tool."
            )
        value = getattr(value, name)
    listed = list(value) if isinstance(value, list | tuple) else [value]
    for item in listed:
        if not isinstance(item, Tool):
            what = "a function" if callable(item) and not isinstance(item, type) else f"of type {type(item).__name__}"
            raise one.error(f"{one.attribute} is {what}, not a tool", "Decorate the function with @tool.")
    if not listed:
        raise one.error(f"the list {one.attribute} is empty", "Put tools into it, or remove the entry.")
    return listed
