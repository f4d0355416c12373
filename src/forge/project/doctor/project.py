"""Examines a project: its configuration, rules, tools, secrets and egress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from forge.core.errors import DefinitionError, ToolError
from forge.permissions.rule import PolicyError
from forge.project.assemble.choose import choose_tools, report_unmatched
from forge.project.assemble.egress import project_egress
from forge.project.assemble.policy import project_policy
from forge.project.assemble.secrets import project_secrets
from forge.project.assemble.sources import MADE_FOR_PROJECTS, has_scripts
from forge.project.config import Configuration
from forge.project.doctor.finding import Finding, finding_of_error
from forge.project.trust import WAY, Standing, is_trusted, notice, trust_state


def examine_project(
    configuration: Configuration, policy: str | None, root: Path | None, loaded: Finding | None, *, dev: bool
) -> Iterator[Finding]:
    now = trust_state(root) if root is not None else None
    yield loaded or _missing_configuration(now)
    if now is not None and root is not None:
        yield _trust(now, root)
    yield _policy(configuration, policy)
    yield _tools(configuration, root, dev=dev)
    yield from _secrets(configuration)
    yield _egress(configuration)


def _missing_configuration(now: Standing | None) -> Finding:
    if now is None or now.status == "none":
        detail = "none: every built-in tool, the default policy"
        return Finding("configuration", "note", detail, "`forge init` writes one.")
    return Finding("configuration", "warning", f"{now.path} found, not loaded: {notice(now)}", WAY)


def _trust(now: Standing, root: Path) -> Finding:
    """Checks whether the project was accepted: a clone brings its configuration and scripts that models read."""
    if is_trusted(root):
        return Finding("trust", "ok", "accepted as it is")
    if now.status in ("changed", "gone", "unknown"):
        return Finding("trust", "broken" if now.status == "unknown" else "warning", notice(now), WAY)
    if now.problem and not now.unreadable:
        problem = f"no project can be accepted: {now.problem}"
        return Finding("trust", "note", problem, "Set HOME to a directory of yours.")
    return Finding("trust", "note", notice(now) or "not accepted yet", WAY)


def _policy(configuration: Configuration, policy: str | None) -> Finding:
    try:
        project_policy(configuration, policy)
    except PolicyError as error:
        return finding_of_error("policy", error)
    given = [name for name, there in ((configuration.name, configuration.rules), (policy, policy)) if there]
    sources = " and ".join(map(str, given)) or "no rules"
    return Finding("policy", "ok", f"{sources}; where no rule matches, reading is allowed and the rest asks")


def _tools(configuration: Configuration, root: Path | None, *, dev: bool) -> Finding:
    """Counts the tools. Those of sources are unknown, because nothing is opened here."""
    later = bool(configuration.servers or configuration.openapi) or (root is not None and has_scripts(root))
    named, made = configuration.tools or (), _project_only_tools(configuration)
    plain = tuple(entry for entry in named if entry.name not in made)
    if configuration.tools is not None:
        configuration = configuration.replace(tools=plain)
    try:
        registry = choose_tools(configuration, dev=dev, later=later)
        for tool in registry.values():
            tool.spec.parameters  # noqa: B018 - built on first use; a broken one raises
    except (ToolError, DefinitionError) as error:
        return finding_of_error("tools", error)
    unmatched: list[str] = []
    if not later:
        report_unmatched(configuration, registry, unmatched.append)
    if unmatched:
        return Finding("tools", "warning", "; ".join(unmatched), "Correct the pattern, or remove it.")
    return Finding("tools", "ok", f"{len(registry) + len(named) - len(plain)}")


def _project_only_tools(configuration: Configuration) -> set[str]:
    """Returns the names of tools that only projects have: building them could change something."""
    has_memory = configuration.memory is not None and configuration.memory.enabled
    made = {name for name in MADE_FOR_PROJECTS if has_memory or not name.startswith("memory_")}
    return made | configuration.webhooks.keys()


def _secrets(configuration: Configuration) -> Iterator[Finding]:
    try:
        project_secrets(configuration)
    except ToolError as error:
        yield finding_of_error("secrets", error)
        return
    missing = [name for name in configuration.secrets if not os.environ.get(name)]
    named = len(configuration.secrets) + len(configuration.secret_files)
    if missing:
        yield Finding("secrets", "warning", f"not set: {', '.join(missing)}", f"export {missing[0]}=…")
    elif named:
        yield Finding("secrets", "ok", f"{named} named, all there")


def _egress(configuration: Configuration) -> Finding:
    """Describes the addresses that tools may connect to."""
    fix = "Say where: egress: {mode: allowlist, domains: [api.example.com]} in forge.yaml; a production build needs it."
    try:
        egress = project_egress(configuration)
    except ToolError as error:
        return finding_of_error("network policy", error)
    said = configuration.egress
    if egress is None or said is None or said.mode == "open":
        return Finding("network policy", "note", "open: every public address, after the network permission", fix)
    private = f"; of private addresses {', '.join(said.private)}" if said.private else ""
    if said.mode == "deny-all":
        return Finding("network policy", "ok", f"deny-all: nothing is reached{private}")
    return Finding("network policy", "ok", f"allowlist: {', '.join(said.domains) or 'nothing'}{private}")
