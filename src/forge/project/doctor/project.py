"""Examines a project: its configuration, rules, secrets and egress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from forge.core.errors import ToolError
from forge.permissions.rules import PolicyError
from forge.project.assemble.egress import project_egress
from forge.project.assemble.policy import project_policy
from forge.project.assemble.secrets import project_secrets
from forge.project.config import Configuration
from forge.project.doctor.finding import Finding, finding_of_error
from forge.project.instruction_files import describe_files, find_instruction_files
from forge.project.trust import WAY, Standing, is_trusted, notice, trust_state


def examine_project(
    configuration: Configuration, policy: str | None, root: Path | None, loaded: Finding | None
) -> Iterator[Finding]:
    now = trust_state(root) if root is not None else None
    yield loaded or _missing_configuration(now)
    if now is not None and root is not None:
        yield _trust(now, root)
        yield from _instructions(configuration, root)
    yield _policy(configuration, policy)
    yield _labels(configuration)
    yield from _secrets(configuration)
    yield _egress(configuration)


def _missing_configuration(now: Standing | None) -> Finding:
    if now is None or now.status == "none":
        detail = "none: every built-in tool, the default policy"
        return Finding("configuration", "note", detail, "`forge init` writes one.")
    return Finding("configuration", "warning", f"{now.path} found, not loaded: {notice(now)}", WAY)


def _trust(now: Standing, root: Path) -> Finding:
    """Checks whether the project is trusted: a clone brings its configuration and scripts that models read."""
    if is_trusted(root):
        return Finding("trust", "ok", "trusted as it is")
    if now.status in ("changed", "gone", "unknown"):
        return Finding("trust", "broken" if now.status == "unknown" else "warning", notice(now), WAY)
    if now.problem and not now.unreadable:
        problem = f"no project can be trusted: {now.problem}"
        return Finding("trust", "note", problem, "Set HOME to a directory of yours.")
    return Finding("trust", "note", notice(now) or "not trusted yet", WAY)


def _instructions(configuration: Configuration, root: Path) -> Iterator[Finding]:
    """Names the files of instructions that the agent reads, or that it would read after `forge trust`."""
    files = find_instruction_files(root)
    if not files:
        return
    used = configuration.agent.instruction_files
    detail = "; ".join(f"{name}: {state}" for name, state in describe_files(files, used=used).items())
    all_fine = not used or all(file.status == "trusted" for file in files)
    yield Finding("instructions", "ok" if all_fine else "note", detail, "" if all_fine else WAY)


def _policy(configuration: Configuration, policy: str | None) -> Finding:
    try:
        project_policy(configuration, policy)
    except PolicyError as error:
        return finding_of_error("policy", error)
    given = [name for name, there in ((configuration.name, configuration.rules), (policy, policy)) if there]
    sources = " and ".join(map(str, given)) or "no rules"
    return Finding("policy", "ok", f"{sources}; where no rule matches, reading is allowed and the rest asks")


def _labels(configuration: Configuration) -> Finding:
    """Says whether untrusted and private text is followed into later calls."""
    said = configuration.labels
    if not said.enabled:
        return Finding(
            "labels", "note", "off: a web page or a mail can steer calls without approval", "Remove labels: off."
        )
    listed = [
        f"{len(getattr(said, name))} {name}" for name in ("untrusted", "trusted", "private") if getattr(said, name)
    ]
    more = f" (configured: {', '.join(listed)})" if listed else ""
    return Finding("labels", "ok", f"on: a call that takes a value from untrusted text needs approval{more}")


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
