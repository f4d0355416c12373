"""Finds, suggests and completes tools by the name that a person typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forge.cli.options import Options
from forge.cli.refusal import Refusal, refusals
from forge.core.arguments.names import near
from forge.core.errors import ToolError
from forge.core.registry import ToolRegistry
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool, UnavailableTool
from forge.project.assemble.access import project_scope, workspace_root
from forge.project.assemble.agents import add_task
from forge.project.assemble.choose_tools import MADE_FOR_PROJECTS, MEMORY, choose_tools
from forge.project.assemble.knowledge import active_skills
from forge.project.assemble.sources import Sources, mount_tools
from forge.project.assemble.tools import project_tools as tools_of
from forge.project.config import load_configuration
from forge.tools import built_ins
from forge.tools.run_code import RunCode

if TYPE_CHECKING:  # imported only if skills are active
    from forge.skills.active import ActiveSkills

NO_PERMISSION = "none"


def project_tools(options: Options, name: str | None = None) -> ToolRegistry:
    """Returns the tools of the project from every source without building schemas; with `name`, of the sources that may
    have it.
    """
    with refusals():
        configuration = load_configuration(options.config)
        workspace = workspace_root(options.workspace, configuration.root)
        sources = Sources(configuration, workspace, watch=False)

        def skills() -> ActiveSkills:
            return active_skills(configuration, project_scope(options.workspace, configuration))

        registry = tools_of(configuration, workspace, sources, skills, dev=options.dev)
        add_task(registry, configuration)
        if configuration.agent.code_mode:
            registry.add(RunCode(registry))  # without the extra it is listed as unavailable
        if name is not None and name in registry.names:
            return registry
        return mount_tools(registry, sources if name is None else sources.of(name), print_note)


def describe_permissions(spec: ToolSpec) -> str:
    """Lists permissions as `read, network?`; one with a question mark is asked for only if a call needs it."""
    optional = [f"{one}?" for one in sorted(spec.optional_permissions - spec.permissions)]
    return ", ".join([*sorted(spec.permissions), *optional]) or NO_PERMISSION


def print_note(text: str) -> None:
    """Prints a note for the person, apart from the output for programs."""
    click.echo(f"forge: {text}", err=True)


def find_tool(name: str, registry: ToolRegistry) -> Tool:
    """Returns the tool of that name or alias. Otherwise the command ends and suggests similar names."""
    found = registry.find(name)
    if found.spec.name in registry or isinstance(found, UnavailableTool):
        return found
    if (why := why_left_out(name)) is not None:
        raise Refusal(f"the tool {name!r} exists, but this project does not {why}")
    known = [known for tool in registry.values() for known in (tool.spec.name, *tool.spec.aliases)]
    hints = " or ".join(repr(hint) for hint in near(name, known))
    advice = f"Did you mean {hints}?" if hints else "`forge tool list` shows all of them."
    raise Refusal(f"there is no tool {name!r}\n{advice}")


def why_left_out(name: str) -> str | None:
    """Ends a sentence on why the project lacks a built-in tool and how to add it; None for other names."""
    for tool in built_ins(ToolRegistry()):
        if name in (tool.spec.name, *tool.spec.aliases):
            if tool.spec.category is Category.DEV:
                return "offer it: it is for development\nUse --dev."
            return f"list it\nAdd `- name: {tool.spec.name}` under tools: in forge.yaml, then run `forge trust`."
    if name in MEMORY:
        return "turn on memory\nWrite memory: {enabled: true} in forge.yaml, then run `forge trust`."
    if name in MADE_FOR_PROJECTS:
        return f"list it\nAdd `- name: {name}` under tools: in forge.yaml, then run `forge trust`."
    return None


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names that a shell offers after `forge tool call`."""
    try:
        names = choose_tools(load_configuration(None), dev=bool(ctx.params.get("dev")))
    except ToolError:  # a shell shows no errors
        return []
    return [name for name in sorted(names) if name.startswith(incomplete)]
