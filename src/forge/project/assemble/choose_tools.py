"""Chooses a project's tools: all built-in ones, or those that its configuration names, with their settings."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.registry import ToolRegistry
from forge.core.spec import Category, Permission, Rate, ToolSpec
from forge.core.tool import Tool, check_parameters, explain_unavailable
from forge.project.config.agent import ToolEntry
from forge.project.config.declaration import Configuration
from forge.project.config_layers import rule_layers
from forge.tools import GROUPS, built_ins

MEMORY = ("memory_get", "memory_search", "memory_write")
SKILLS = ("read_skill",)
CODE_MODE = "code-mode"  # the group of `run_code`
TASK = "task"  # every agent has it
MADE_FOR_PROJECTS = frozenset(  # built-in tools that are not in every project
    (
        "mcp_call mcp_resource openapi_call read_skill memory_get memory_search memory_write schedule_delete "
        "schedule_history schedule_list schedule_set task"
    ).split()
)
FAMILIES = frozenset({"bash"})  # useless without the tools for its jobs, such as bash_output
CORE = frozenset({"file_read", "file_write", "file_edit", "bash", "ask_question", "tool_search"})
"""The tools whose definitions are sent where a project lists none; `tool_search` finds the others."""
TRAITS = ("timeout", "rate", "confirm", "permissions", "repairs", "max_concurrency", "concurrency_key")
"""Settings of any tool from any source."""

Report = Callable[[str], None]


def choose_tools(
    configuration: Configuration,
    *,
    dev: bool | None = False,
    own: Iterable[Tool] = (),
    always: Iterable[Tool] = (),
    groups: Iterable[str] = (),
    later: bool = False,
) -> ToolRegistry:
    """Returns every built-in tool but the development ones; or exactly the configured ones and the conversation tools.

    `dev` adds the development tools, whatever is configured; None: those that are configured.

    `own` are built-in tools that were made for this project, such as its memory's; `always` those that it has whatever
    is configured, such as its webhooks; `groups` those whose tools it has, too. `later`: a name that nothing has yet
    may come with a source. A section that turns something on brings the tools that it is used with.
    """
    registry = ToolRegistry()
    by_name = {tool.spec.name: tool for tool in own}
    plain = [tool for tool in built_ins(registry) if tool.spec.name not in by_name]
    everything = [*plain, *by_name.values()]
    added = [tool for tool in everything if dev or tool.spec.category is not Category.DEV]
    known = everything if dev is None else added
    always, wanted_groups, brought = list(always), frozenset(groups), tools_of_sections(configuration)
    registry.add(*(apply_settings(tool, configuration) for tool in always))
    if configuration.tools is None:
        default = [tool for tool in added if CODE_MODE not in tool.spec.groups]  # which describes all the others
        registry.add(*(_apply_entries(tool, [], registry, configuration) for tool in default))
        return registry
    for entry in configuration.tools:
        if entry.group or not later or entry.prefix or entry.include or entry.exclude:
            _check_entry(entry, [tool.spec for tool in (*known, *always)], configuration)
    for tool in known:
        entries = _entries(tool.spec, configuration)
        wanted = tool.spec.only_talks or tool.spec.name in brought or tool.spec.groups & wanted_groups
        if entries or wanted or (dev and tool.spec.category is Category.DEV):
            concerning = [entry for entry in entries if _applies_to(entry, tool.spec)]
            registry.add(_apply_entries(tool, concerning, registry, configuration))
    return registry


def defer_tools(registry: ToolRegistry, configuration: Configuration, *, ends_by_call: bool) -> None:
    """Keeps most built-in tools out of requests, unless the project lists its tools: definitions cost tokens.

    `ends_by_call`: the model must call a tool to finish, so `task_completion` is sent, too.
    """
    if configuration.tools is not None or "tool_search" not in registry:
        return
    sent = CORE | tools_of_sections(configuration) | ({"task_completion"} if ends_by_call else set())
    sent |= {TASK} if configuration.agents else set()
    known = {tool.spec.name for tool in built_ins(ToolRegistry())} | MADE_FOR_PROJECTS
    registry.defer(known - sent)


def report_unmatched(configuration: Configuration, registry: ToolRegistry, report: Report) -> None:
    """Reports patterns under `tools:` that match no tool. This is not an error: a source may add one later."""
    for entry in configuration.tools or ():
        if _is_pattern(entry) and not any(_matches(entry, spec) for spec in _all_specs(registry)):
            report(
                f"{configuration.name}: {entry.key_path}.name: no tool matches {entry.name!r}; see `forge tool list`"
            )


def report_unavailable(configuration: Configuration, registry: ToolRegistry, report: Report) -> None:
    """Reports tools under `tools:` whose extra is not installed. Without that section nobody asked for them."""
    for spec in registry.unavailable if configuration.tools is not None else ():
        error = explain_unavailable(spec)
        report(f"{configuration.name}: {error.message}. {error.suggestion}")


def tools_of_sections(configuration: Configuration) -> frozenset[str]:
    """Returns the names of tools that come with a section that is turned on."""
    memory = configuration.memory is not None and configuration.memory.enabled
    skills = configuration.skills is not None and bool(configuration.skills.paths or configuration.skills.active)
    return frozenset((*(MEMORY if memory else ()), *(SKILLS if skills else ())))


def apply_settings(tool: Tool, configuration: Configuration) -> Tool:
    """Applies the project's settings to a tool that is not built in: only settings of any tool are possible."""
    traits = _traits_of_all(tool, configuration)
    for entry in _entries(tool.spec, configuration):
        for key, value in entry.config.items():
            if key not in TRAITS:
                problem = f"{tool.spec.name} is not a built-in tool and has no setting {key!r}"
                raise configuration.error(f"{entry.key_path}.config.{key}", problem, key, TRAITS)
            traits[key] = _trait(key, value)
    if "permissions" in traits:
        traits["permissions"] = {*traits["permissions"], *_permissions_denied_above(tool.spec, configuration)}
    return _change_checked(tool, traits, _entries(tool.spec, configuration), configuration)


def _traits_of_all(tool: Tool, configuration: Configuration) -> dict[str, Any]:
    """Returns the settings that the project has for all its tools."""
    kinds = configuration.repairs
    return {} if kinds is None else {"repairs": tool.spec.repairs & set(kinds)}


def _permissions_denied_above(spec: ToolSpec, configuration: Configuration) -> set[Permission]:
    """Returns the permissions that the tool's source declares and a rule of the user or the organisation may deny.

    A project may declare that a tool needs less, but such rules still apply.
    """
    above = [layer for layer in configuration.layers if layer.kind in ("user", "organisation")]
    rules = rule_layers(above).values() if above else ()
    return {one for one in spec.permissions if any(rule.may_deny(spec, one) for rule in rules)}


def check_names(configuration: Configuration, registry: ToolRegistry, report: Report) -> None:
    """Checks the names once every source is mounted. An unknown name is an error; the rest is reported."""
    for entry in configuration.tools or ():
        _check_entry(entry, _all_specs(registry), configuration)
    report_unmatched(configuration, registry, report)
    report_unavailable(configuration, registry, report)


def _all_specs(registry: ToolRegistry) -> list[ToolSpec]:
    return [*(tool.spec for tool in registry.values()), *registry.unavailable]


def _entries(spec: ToolSpec, configuration: Configuration) -> list[ToolEntry]:
    return [entry for entry in configuration.tools or () if _matches(entry, spec)]


def _matches(entry: ToolEntry, spec: ToolSpec) -> bool:
    if entry.group:
        return entry.group in spec.groups
    if any(fnmatchcase(name, entry.name) for name in (spec.name, *spec.aliases)):
        return True
    if entry.is_reference:
        return spec.origin == entry.name
    return entry.name in FAMILIES and spec.name.startswith(f"{entry.name}_")


def _applies_to(entry: ToolEntry, spec: ToolSpec) -> bool:
    """Returns whether the settings are for this tool, and not only for another of its family."""
    named = any(fnmatchcase(name, entry.name) for name in (spec.name, *spec.aliases))
    return bool(entry.group) or named or entry.is_reference


def _is_pattern(entry: ToolEntry) -> bool:
    return not entry.group and bool(set(entry.name) & set("*?["))


def _check_entry(entry: ToolEntry, known: list[ToolSpec], configuration: Configuration) -> None:
    """Refuses a name that no tool has; a pattern may wait for tools that come later."""
    for key in ("prefix", "include", "exclude"):
        if getattr(entry, key) and not entry.is_reference:
            problem = f"{key} belongs to an entry with name: MODULE:ATTRIBUTE"
            raise configuration.error(f"{entry.key_path}.{key}", problem)
    if entry.group:
        if entry.group not in GROUPS:
            raise configuration.error(
                f"{entry.key_path}.group", f"there is no group {entry.group!r}", entry.group, GROUPS
            )
    elif entry.name == TASK or _is_pattern(entry) or entry.is_reference:  # `imported_tools` checks these
        return
    elif not any(_matches(entry, spec) for spec in known):
        names = [name for spec in known for name in (spec.name, *spec.aliases)]
        raise configuration.error(f"{entry.key_path}.name", f"there is no tool {entry.name!r}", entry.name, names)


def _apply_entries(tool: Tool, entries: list[ToolEntry], registry: ToolRegistry, configuration: Configuration) -> Tool:
    traits = _traits_of_all(tool, configuration)
    settings: dict[str, Any] = {}
    if configuration.sandbox != "auto" and "sandbox" in _settings(tool):
        settings["sandbox"] = configuration.sandbox  # the project's, unless the tool has its own
    for entry in entries:
        for key, value in entry.config.items():
            if key in TRAITS:
                # a project cannot declare fewer permissions: others' rules need them
                traits[key] = tool.spec.permissions | set(value) if key == "permissions" else _trait(key, value)
            else:
                _check_setting(tool, f"{entry.key_path}.config.{key}", key, value, configuration)
                settings[key] = value
    _tighten(tool, settings, traits, configuration)
    if settings:
        tool = _rebuild_tool(tool, settings, registry)
    return _change_checked(tool, traits, entries, configuration)


def _tighten(tool: Tool, settings: dict[str, Any], traits: dict[str, Any], configuration: Configuration) -> None:
    """Applies the user's stricter settings of a tool, which the project's list of tools cannot loosen."""
    said: dict[str, Any] = {}
    for layer in configuration.layers:
        for entry in layer.document.get("tools", ()) if layer.kind == "user" else ():
            fields: Mapping[str, Any] = {"name": entry} if isinstance(entry, str) else entry
            named = ToolEntry(name=fields.get("name", ""), group=fields.get("group", ""))
            said |= (fields.get("config") or {}) if _matches(named, tool.spec) and _applies_to(named, tool.spec) else {}
    known = _settings(tool) if said else {}
    if said.get("sandbox") is not None and "sandbox" in known:
        from forge.project.config.merging import stricter_sandbox  # few users say so

        own = settings.get("sandbox")
        settings["sandbox"] = stricter_sandbox(said["sandbox"], configuration.sandbox if own is None else own)
    if said.get("network") is False and "network" in known:
        settings["network"] = False
    if said.get("confirm") is True:
        traits["confirm"] = True


def _trait(key: str, value: Any) -> Any:
    return Rate(**value) if key == "rate" and value is not None else value


def _change_checked(tool: Tool, traits: dict[str, Any], entries: list[ToolEntry], configuration: Configuration) -> Tool:
    """Changes traits. A place that no call could ever have is an error of the entry that asks for it."""
    if not traits.keys() & {"max_concurrency", "concurrency_key"}:
        return change_traits(tool, traits)
    try:
        made = change_traits(tool, traits)
        check_parameters(made.spec)
    except DefinitionError as error:
        key_path = next(entry.key_path for entry in reversed(entries) if entry.config.keys() & traits.keys())
        raise configuration.error(f"{key_path}.config", str(error)) from None
    return made


def change_traits(tool: Tool, traits: dict[str, Any]) -> Tool:
    """Returns a copy of the tool with these fields of its spec; the tool itself if there are none."""
    if not traits:
        return tool
    own = copy.copy(tool)
    own.spec = tool.spec.changed(**traits)
    own.show_settings()  # a time-out may be one
    return own


def _settings(tool: Tool) -> dict[str, inspect.Parameter]:
    """Returns the settings of a tool: the parameters of its constructor that have a default."""
    if type(tool).__module__ == Tool.__module__:  # a decorated function
        return {}
    parameters = inspect.signature(type(tool)).parameters
    return {name: one for name, one in parameters.items() if one.default is not one.empty}


def _check_setting(tool: Tool, key_path: str, key: str, value: Any, configuration: Configuration) -> None:
    settings = _settings(tool)
    if key not in settings:
        problem = f"{tool.spec.name} has no setting {key!r}"
        raise configuration.error(key_path, problem, key, [*TRAITS, *settings])
    default = settings[key].default
    fits = isinstance(value, type(default)) and isinstance(value, bool) == isinstance(default, bool)
    if default is not None and not fits and not (type(default) is float and type(value) is int):
        raise ToolError(
            f"{configuration.name}: {key_path}: expected {type(default).__name__} such as {default!r},"
            f" got {value!r:.60}",
            ErrorKind.CONFIG,
            "Write a value of that type, or remove the setting.",
        )


def _rebuild_tool(tool: Tool, settings: dict[str, Any], registry: ToolRegistry) -> Tool:
    make: Callable[..., Tool] = type(tool)
    parameters = inspect.signature(make).parameters
    if "registry" in parameters:
        return make(registry, **settings)
    if all(one.default is not one.empty for one in parameters.values()):
        return make(**settings)
    rebuilt = copy.copy(tool)  # built for this project; its settings are attributes
    for name, value in settings.items():
        setattr(rebuilt, name, value)
    rebuilt.show_settings()
    return rebuilt
