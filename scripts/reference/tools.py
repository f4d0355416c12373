"""The page of the built-in tools: their schemas, permissions and settings."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from forge.agent.subagent import Task
from forge.core.arguments.example import example_arguments
from forge.core.registry import ToolRegistry
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool
from forge.mcp.client.mcp_call import McpCall
from forge.memory.tools import MemoryGet, MemorySearch, MemoryWrite
from forge.openapi.openapi_call import OpenapiCall
from forge.schedules.tools import ScheduleDelete, ScheduleHistory, ScheduleList, ScheduleSet
from forge.skills.tools import ReadSkill
from forge.tools import GROUPS, built_ins
from scripts.reference.markdown import table, type_of, yaml


def tools_page() -> str:
    made = _every_tool()
    groups = {name: sorted(spec.name for spec, _ in made if name in spec.groups) for name in GROUPS}
    rows = [(f"`{name}`", ", ".join(f"`{one}`" for one in names)) for name, names in groups.items()]
    parts = [
        "# Built-in tools",
        "The definitions that a model gets, and the permissions of each tool. A permission with a question mark is only"
        " asked for while the tool runs, if it needs it. `config` lists the settings of the tool for"
        " `tools: [{name: …, config: {…}}]` in `forge.yaml`. Every tool also has `timeout`, `rate`, `confirm` and"
        " `permissions`.",
        "## Groups",
        table(("group", "tools"), rows),
        "`bash` includes the tools for its background jobs. Tools marked *dev* need `--dev`. The tools of the memory"
        " need `memory` to be enabled. `task` exists in `forge run` and in an `Agent(…, agents={…})`.",
    ]
    for title, dev in (("Tools", False), ("Tools for development", True)):
        parts.append(f"## {title}")
        parts += [_tool(spec, settings) for spec, settings in made if (spec.category is Category.DEV) is dev]
    return "\n\n".join(parts)


def _every_tool() -> list[tuple[ToolSpec, dict[str, Any]]]:
    registry = ToolRegistry()
    tools = [*built_ins(registry), McpCall(), OpenapiCall()]
    found = {tool.spec.name: (tool.spec, _settings(type(tool))) for tool in tools}
    of_project: tuple[type[Tool], ...] = (
        MemorySearch,
        MemoryGet,
        MemoryWrite,
        ScheduleSet,
        ScheduleList,
        ScheduleDelete,
        ScheduleHistory,
        ReadSkill,
    )
    found |= {made.spec.name: (made.spec, _settings(made)) for made in of_project}
    found["task"] = (Task.spec, {})
    return [found[name] for name in sorted(found)]


def _settings(made: type[Tool]) -> dict[str, Any]:
    """What `config` can set: the parameters of the constructor that have a default that YAML can say."""
    if made.__module__ == Tool.__module__:  # a decorated function
        return {}
    parameters = inspect.signature(made).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty and _is_plain(one)}


def _is_plain(parameter: inspect.Parameter) -> bool:
    words = set(re.findall(r"\w+", str(parameter.annotation)))
    return words <= {"Mapping", "None", "Sequence", "bool", "dict", "float", "int", "list", "str", "tuple"}


def _tool(spec: ToolSpec, settings: Mapping[str, Any]) -> str:
    optional = [f"{one}?" for one in sorted(spec.optional_permissions)]
    facts = {
        "needs": ", ".join([*sorted(spec.permissions), *optional]) or "nothing",
        "category": str(spec.category),
        "groups": ", ".join(sorted(spec.groups & GROUPS.keys())),
        "target": ", ".join(f"`{one}`" for one in spec.targets),
        "time limit": "none" if spec.timeout is None else f"{spec.timeout:g} s",
        "also called": ", ".join(f"`{one}`" for one in spec.aliases),
        "ends the turn": "yes" if spec.ends_turn else "",
    }
    schema = spec.parameters
    arguments = json.dumps(example_arguments(schema), ensure_ascii=False)
    parts = [
        f"### `{spec.name}`",
        spec.description,
        " · ".join(f"**{label}** {value}" for label, value in facts.items() if value),
        _parameters(schema),
    ]
    if settings:
        shown = (name if value is None else f"{name}: {yaml(value)}" for name, value in settings.items())
        parts.append("**config** " + ", ".join(f"`{one}`" for one in shown))
    parts.append(f"```sh\nforge tool call {spec.name} {shlex.quote(arguments)}\n```")
    if spec.category is Category.DEV:
        parts[-1] = parts[-1].replace("forge tool call", "forge tool call --dev")
    whole = json.dumps(schema, ensure_ascii=False, indent=2)
    parts.append(f"<details markdown>\n<summary>JSON Schema</summary>\n\n```json\n{whole}\n```\n\n</details>")
    return "\n\n".join(part for part in parts if part)


def _parameters(schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = []
    for name, one in schema.get("properties", {}).items():
        given = "needed" if name in needed else f"`{json.dumps(one['default'])}`" if "default" in one else "optional"
        rows.append((f"`{name}`", type_of(one, schema), given, one.get("description", "")))
    return table(("parameter", "type", "default", ""), rows) if rows else "No parameters."
