"""Examines the sources of a project. No server is started, nothing is fetched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from forge.core.context import Scope
from forge.core.errors import DefinitionError, ToolError
from forge.core.extras import install_command, is_installed
from forge.mcp.pins import load_document
from forge.mcp.programs.fetching import how_to_pin, is_fetching
from forge.mcp.programs.installed import is_installed_here
from forge.process.running.run import find_tier
from forge.project.assemble.choose_tools import choose_tools
from forge.project.assemble.knowledge import catalog_of
from forge.project.assemble.sources import PINS, SCRIPTS, has_scripts, is_withheld, script_names, server_sandbox
from forge.project.config.declaration import Configuration
from forge.project.config.sources import McpEntry
from forge.project.doctor.finding import Finding, finding_of_error
from forge.scripts.folder import scripts
from forge.workspace.state import NAME as STATE


def examine_sources(configuration: Configuration, scope: Scope) -> Iterator[Finding]:
    yield from _broken_approvals(scope.workspace)
    approved = _count_approved(scope.workspace)
    if isinstance(approved, Finding):
        yield approved
        approved = {}
    for key_path, error in configuration.unset.items():
        yield Finding(key_path, "warning", f"left out: {error.message}", error.suggestion)
    for name, entry in configuration.servers.items():
        yield _server(name, entry, scope.workspace, approved.get(name, 0))
        yield from _server_sandbox(name, entry, configuration)
    for name, document in configuration.openapi.items():
        yield _document(name, document.spec)
    for name, webhook in configuration.webhooks.items():
        yield Finding(f"webhook {name}", "ok", f"{webhook.method} to {_host(webhook.url)}, not called")
    yield from _scripts(configuration, scope.workspace)
    yield from _skills(configuration, scope)


def _server(name: str, entry: McpEntry, workspace: Path, approved: int) -> Finding:
    check = f"mcp {name}"
    if not is_installed("mcp"):
        return Finding(check, "warning", "the extra mcp is not installed", install_command("mcp"))
    if entry.url:
        location = f"{_host(entry.url)}, not contacted"
    elif entry.integrity:
        if not is_installed_here(entry.integrity):
            return Finding(check, "warning", "it is pinned, and not installed here", f"forge mcp install {name}")
        location = "installed and pinned, not started"
    else:
        program = _program(entry, workspace)
        if is_fetching(entry.command):
            message = f"{' '.join(entry.command)} is fetched when it starts, and not pinned"
            return Finding(check, "warning", message, how_to_pin(name, entry.command))
        if program is None:
            fix = f"Install {entry.command[0]}, or write its whole path at {entry.key_path}.command."
            return Finding(check, "warning", f"the program {entry.command[0]} is not found", fix)
        location = f"{program}, not started"
    if not approved:
        return Finding(check, "note", f"{location}; none of its tools is approved", f"forge mcp approve {name}")
    return Finding(check, "ok", f"{location}; {approved} approved {'tool' if approved == 1 else 'tools'}")


def _server_sandbox(name: str, entry: McpEntry, configuration: Configuration) -> Iterator[Finding]:
    """Yields a finding if the sandbox of a server is off, or cannot be had on this machine."""
    sandbox = server_sandbox(configuration, entry) if entry.command else "auto"
    if sandbox == "off":
        fix = "Remove `sandbox: off`, unless the program needs all your permissions."
        yield Finding(f"mcp {name}", "note", "it runs without a sandbox", fix)
    elif sandbox != "auto":
        try:
            find_tier(sandbox)
        except ToolError as error:
            yield finding_of_error(f"mcp {name}", error, "warning")


def _program(entry: McpEntry, workspace: Path) -> str | None:
    name = entry.command[0]
    if "/" in name:
        path = Path(entry.directory or workspace, name)
        return str(path) if path.is_file() and os.access(path, os.X_OK) else None
    return shutil.which(name, path=entry.environment.get("PATH") or os.environ.get("PATH", os.defpath))


def _count_approved(workspace: Path) -> dict[str, int] | Finding:
    """Counts the approved tools of each server. The usual reader is not used, because it sets a broken file aside."""
    path = workspace / STATE / PINS
    try:
        servers = load_document(path)["servers"]
        return {name: len(one["tools"]) for name, one in servers.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        return Finding("approved tools", "warning", f"{path} cannot be read: {error.strerror}", "Make it readable.")
    except ToolError as error:  # the key of its seal
        return finding_of_error("approved tools", error)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        fix = "Nothing in it counts. `forge mcp approve` writes a new one; the old one is set aside."
        why = f" ({error})" if str(error).startswith("it ") else ""
        return Finding("approved tools", "warning", f"{path} is damaged{why}", fix)


def _broken_approvals(workspace: Path) -> Iterator[Finding]:
    """Yields broken files of approvals: until a person removes the file, no `--yes` approves a tool."""
    for path in sorted((workspace / STATE).glob(f"{PINS}.broken-*")):
        fix = f"Approve the tools again at a terminal with `forge mcp approve`, then remove {path}."
        yield Finding("approved tools", "warning", f"{path.name} was set aside: what was approved is not known", fix)


def _host(url: str) -> str:
    """Returns only the host, because the rest of a URL may be secret."""

    try:
        return urlsplit(url).hostname or "an address without a host"
    except ValueError:
        return "an address that cannot be read"


def _document(name: str, spec: str) -> Finding:
    check = f"openapi {name}"
    if spec.startswith(("http://", "https://")):
        return Finding(check, "ok", f"{_host(spec)}, not fetched")
    if os.access(spec, os.R_OK) and os.path.isfile(spec):
        return Finding(check, "ok", spec)
    return Finding(check, "warning", f"{spec} cannot be read", f"Fix the path at openapi.{name}.spec.")


def _scripts(configuration: Configuration, workspace: Path) -> Iterator[Finding]:
    if not has_scripts(workspace) or is_withheld(configuration, workspace):
        return

    names = script_names(configuration)
    folder = scripts(SCRIPTS, root=workspace, watch=False, sandbox=configuration.sandbox, **names)
    try:
        folder.leave_out(choose_tools(configuration, later=True).names)
        found = folder.load()
    except (ToolError, DefinitionError) as error:
        yield finding_of_error("scripts", error)
        return
    for problem in folder.problems:
        yield Finding(f"script {problem.path}", "warning", f"left out: {problem.why}", "Fix the script, or move it.")
    if found:
        yield Finding("scripts", "ok", f"{len(found)} {'is a tool' if len(found) == 1 else 'are tools'}")


def _skills(configuration: Configuration, scope: Scope) -> Iterator[Finding]:
    catalog = catalog_of(configuration, scope)
    try:
        skills, problems = catalog.skills, catalog.problems
    except (ToolError, OSError) as error:
        yield finding_of_error("skills", error)
        return
    for problem in problems:
        yield Finding(f"skill {problem.path}", "warning", f"left out: {problem.why}", "`forge skill check` says more.")
    active = configuration.skills.active if configuration.skills else ()
    for name in active:
        if name not in skills:
            fix = f"Known are {', '.join(skills)}." if skills else "`forge skill new NAME` writes one."
            yield Finding(f"skill {name}", "broken", "it is to be active, and there is none of this name", fix)
    lacking = {name: skill.missing for name, skill in skills.items() if skill.missing}
    for name, missing in lacking.items():
        is_active = name in active
        yield Finding(
            f"skill {name}",
            "warning" if is_active else "note",
            f"{'; '.join(missing)}{': it brings nothing' if is_active else ''}",
            "Install the program or set the variable, or leave the skill inactive.",
        )
    usable = len(skills) - len(lacking)
    yield Finding("skills", "ok", f"{usable} can be used{f', active: {chr(44).join(active)}' if active else ''}")
