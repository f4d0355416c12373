"""Stage 3: removes development tools from a production build, and refuses settings that are too open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from ipaddress import ip_network
from typing import Any

from forge.core.registry import ToolRegistry
from forge.core.spec import Category, ToolSpec
from forge.project.build.load import missing_values
from forge.project.build.record import Build, Problem, StageRefused
from forge.project.config import SANDBOXES, ToolEntry
from forge.tools import built_ins

_EGRESS = "Write egress: {mode: allowlist, domains: [...]}, or {mode: deny-all}."
_SANDBOX = "Write auto, or required."
_NETWORK = "Remove it, or list the allowed hosts: egress: {mode: allowlist, domains: [...]}."
_PRIVATE = "List the intended hosts or networks, such as 10.0.0.0/8."
_NETWORK_PARTS = re.compile(r"\[?([^\]/]+)\]?/([0-9.]+)")
_WIDEST = {4: 8, 6: 7}  # prefix lengths of the widest private networks: 10.0.0.0/8, fc00::/7


def filter_tools(build: Build) -> str:
    """Filters the tools. Raises `Refused` for the problems of a production build."""
    if not build.order.prod:
        build.notes += map(str, build.source_problems)
        return _count_by_category(build)
    dropped = [name for name, spec in build.tools.items() if spec.category is Category.DEV]
    for name in dropped:
        del build.tools[name]
    if dropped:
        build.notes.append(f"left out, because they are for development only: {', '.join(dropped)}")
    problems = [
        *_open_settings(build),
        *missing_values(build),
        *_agents_without_tools(build),
        *_unapproved_tools(build),
        *_unusable_skills(build),
    ]
    if problems := [*problems, *build.source_problems]:
        raise StageRefused(problems)
    return _count_by_category(build)


def _open_settings(build: Build) -> Iterator[Problem]:
    """Yields settings that allow more than a production project should."""
    egress = build.configuration.egress
    if egress is None or egress.mode == "open":
        how = "egress.mode is open" if egress else "egress is not set"
        yield Problem(f"{how}: the agent could reach every public address", _EGRESS)
    if build.configuration.sandbox == "off":
        yield Problem("sandbox is off: programs could change everything that the user can change", _SANDBOX)
    for index, network in enumerate(egress.private if egress is not None else ()):
        if _is_too_wide(network):
            yield Problem(f"egress.private[{index}] is {network}, which is wider than any private network", _PRIVATE)
    for entry in build.configuration.tools or ():
        yield from _open_tool_settings(entry, nowhere=egress is not None and egress.mode == "deny-all")


def _open_tool_settings(entry: ToolEntry, *, nowhere: bool) -> Iterator[Problem]:
    name = entry.name or entry.group
    sandbox = entry.config.get("sandbox", True)
    if sandbox is False or str(sandbox).strip().lower() == "off":
        yield Problem(f"{entry.key_path}.config.sandbox is off for {name}", _SANDBOX)
    elif sandbox not in (None, True, *SANDBOXES):
        yield Problem(
            f"{entry.key_path}.config.sandbox is {sandbox!r:.60} for {name}, which is not a sandbox", _SANDBOX
        )
    if nowhere and entry.config.get("network"):
        problem = f"{entry.key_path}.config.network opens the network to {name}, but egress.mode is deny-all"
        yield Problem(problem, _NETWORK)


def _is_too_wide(entry: str) -> bool:
    """Tells whether a network is wider than any private one; a host, with a port or without, is not."""
    parts = _NETWORK_PARTS.match(entry.strip())
    try:
        network = ip_network(f"{parts[1]}/{parts[2]}", strict=False) if parts else None
    except ValueError:  # the compile stage reports it
        return False
    return network is not None and network.prefixlen < _WIDEST[network.version]


def is_for_developers(entry: Any) -> bool:
    """Tells whether an entry of `tools` names only development tools."""
    name = entry.get("name") if isinstance(entry, dict) else entry
    if not isinstance(name, str):
        return False
    meant = [spec for spec in _built_in() if any(fnmatchcase(one, name) for one in (spec.name, *spec.aliases))]
    return bool(meant) and all(spec.category is Category.DEV for spec in meant)


@cache
def _built_in() -> tuple[ToolSpec, ...]:
    return tuple(tool.spec for tool in built_ins(ToolRegistry()))


def _agents_without_tools(build: Build) -> Iterator[Problem]:
    """Yields sub-agents that would lose all their tools, and so get other tools than intended."""
    for name, agent in build.configuration.agents.items():
        if agent.tools and all(map(is_for_developers, agent.tools)):
            yield Problem(
                f"agents.{name} has only tools for development", "Give it other tools, or remove the sub-agent."
            )


def _unapproved_tools(build: Build) -> Iterator[Problem]:
    """Yields servers with tools that are not approved."""
    states: dict[tuple[str, str], list[str]] = {}
    for name, tool in build.remote.items():
        if tool.state != "pinned" and name in build.tools:
            states.setdefault((tool.server, tool.state), []).append(name)
    for (server, state), names in states.items():
        how = "were never approved" if state == "new" else "changed since they were approved"
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        yield Problem(
            f"mcpServers.{server}: {shown} {how}", f"Review and approve them with forge mcp approve {server}."
        )


def _unusable_skills(build: Build) -> Iterator[Problem]:
    """Yields active skills that lack something other than variables, which are reported separately."""
    for name, lacks in (build.active.inactive if build.active else {}).items():
        for one in lacks:
            if not any(f"the variable {variable} is" in one for variable in build.required):
                yield Problem(f"the skill {name} cannot be active: {one}", "Install it, or deactivate the skill.")


def _count_by_category(build: Build) -> str:
    counts = build.counts
    return ", ".join(f"{number} {category}" for category, number in counts.items() if number and category != "total")
