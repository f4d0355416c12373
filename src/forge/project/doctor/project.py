"""Examines a project: its configuration, rules, secrets, egress and tools. No server is started."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.context import Scope
from forge.core.errors import DefinitionError, ToolError
from forge.core.extras import find_missing, install_command
from forge.core.registry import ToolRegistry
from forge.memory.memory import Memory
from forge.memory.tools import memory_tools
from forge.permissions.rules import PolicyError
from forge.process.sandbox import Tier, problem
from forge.process.sandbox.layout import is_inside_any
from forge.project.assemble.access import list_secret_files, project_egress, project_policy, workspace_root
from forge.project.assemble.agents import add_task
from forge.project.assemble.choose_tools import check_names
from forge.project.assemble.knowledge import DIRECTORY, active_skills
from forge.project.assemble.secrets import program_secrets, project_secrets
from forge.project.assemble.sources import Sources, mount_tools
from forge.project.assemble.tools import own_tools, project_tools
from forge.project.config.declaration import Configuration
from forge.project.doctor.finding import Finding, finding_of_error
from forge.project.system_prompt import describe_files, find_instruction_files
from forge.project.trust import WAY, Standing, is_trusted, notice, trust_state
from forge.workspace.state import NAME as STATE

if TYPE_CHECKING:
    from forge.skills.active import ActiveSkills


def examine_project(
    configuration: Configuration, policy: str | None, root: Path | None, loaded: Finding | None
) -> Iterator[Finding]:
    now = trust_state(root) if root is not None else None
    yield loaded or _missing_configuration(now)
    if now is not None and root is not None:
        yield _trust(now, root)
        yield from _instructions(configuration, root)
    yield _policy(configuration, policy)
    if configuration.all_hooks and root is not None:
        yield _hooks(configuration, root)
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


def _hooks(configuration: Configuration, root: Path) -> Finding:
    """Checks whether the hooks' programs exist. A hook that cannot run refuses everything that it is asked about."""
    from forge.project.assemble.hooks import FOLDER, missing_programs, unprotected_scripts

    for key_path, program in missing_programs(configuration, root):
        problem = f"{key_path}: the program {program!r} is not found, so the hook refuses everything"
        return Finding("hooks", "broken", problem, "Install the program, or correct the command.")
    for key_path in unprotected_scripts(configuration, root):
        problem = (
            f"{key_path}: no file of the workspace is found in the command, so a script that it runs is not protected"
        )
        return Finding(
            "hooks", "warning", problem, f"Put the script into {FOLDER}/, and name it: python3 {FOLDER}/check.py"
        )
    kinds = [kind for kind, _ in configuration.all_hooks]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return Finding("hooks", "ok", counted)


def _policy(configuration: Configuration, policy: str | None) -> Finding:
    try:
        project_policy(configuration, policy)
    except PolicyError as error:
        return finding_of_error("policy", error)
    given = [name for name, there in ((configuration.name, configuration.rules), (policy, policy)) if there]
    sources = " and ".join(map(str, given)) or "no rules"
    return Finding("policy", "ok", f"{sources}; where no rule matches, reading is allowed and the rest asks")


def _labels(configuration: Configuration) -> Finding:
    """Returns whether untrusted and private text is followed into later calls."""
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
    elsewhere = {one.name for one in configuration.secret_entries if one.file or one.command or one.keyring}
    missing = [name for name in configuration.secrets if not os.environ.get(name) and name not in elsewhere]
    named = len(configuration.secrets) + len(configuration.secret_files)
    if missing:
        yield Finding("secrets", "warning", f"not set: {', '.join(missing)}", f"export {missing[0]}=…")
    elif named:
        yield Finding("secrets", "ok", f"{named} named, all there")
    try:
        found = program_secrets(configuration)
    except ToolError as error:
        yield finding_of_error("secrets", error)
        return
    for secret in found:  # read as a request of a program would
        try:
            secret.read()
        except ToolError as error:
            yield finding_of_error("secrets", error)
    if any(one.hosts for one in configuration.secret_entries) and find_missing("secrets"):
        missing_extra = "programs cannot use them: the extra `secrets` is not installed"
        yield Finding("secrets", "broken", missing_extra, install_command("secrets"))
    why = _explain_no_proxy(configuration)
    if any(one.hosts for one in configuration.secret_entries) and why:
        fix = "Programs run without these secrets until bubblewrap can be used: `forge doctor --verbose` says how."
        yield Finding("secrets", "broken", f"programs cannot use them: {why}", fix)
    for path in list_secret_files(configuration):
        if is_inside_any(os.path.realpath(path), _shown_folders(configuration)):
            risk = "only bubblewrap hides it" if why else "a program that runs while it is replaced reads the new one"
            moves = f"mkdir -p ~/.secrets && mv {shlex.quote(path)} ~/.secrets/"
            fix = f"Move it to where programs see nothing, and change its `file` in {configuration.name}: {moves}"
            yield Finding("secret file", "warning", f"programs can read {path}: {risk}", fix)


def _shown_folders(configuration: Configuration) -> tuple[str, ...]:
    """Returns the folders that programs see."""
    found = (workspace_root(None, configuration.root), *(one.path for one in configuration.roots))
    return tuple(map(os.path.realpath, found))


def _explain_no_proxy(configuration: Configuration) -> str:
    """Returns why programs have no proxy here, which puts secrets in; "" if they have one."""
    if (chosen := configuration.sandbox) in ("off", "landlock"):
        return f"the sandbox is set to {chosen}, and only bubblewrap keeps secrets outside of programs"
    why = problem(Tier.BUBBLEWRAP)
    return f"only bubblewrap keeps secrets outside of programs, and it cannot be used here: {why}" if why else ""


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


# Examines the tools of a project: the same ones that `forge tool list` lists. No server is started or contacted.


CHECK = "tools"


def examine_tools(configuration: Configuration, scope: Scope, *, dev: bool) -> Finding:
    """Counts the tools, and checks their names and schemas."""
    unmatched: list[str] = []
    closed = _name_closed(configuration)
    try:
        has_more = bool(closed or configuration.unset)
        registry = _collect_tools(configuration, scope, dev=dev, later=has_more)
        for tool in registry.values():
            tool.spec.parameters  # noqa: B018 - built on first use; a broken one raises
        if not has_more:
            check_names(configuration, registry, unmatched.append)
            unmatched += _unmatched_hooks(configuration, registry)
    except (ToolError, DefinitionError) as error:
        return finding_of_error(CHECK, error)
    unavailable = registry.unavailable if configuration.tools is not None else []
    if unavailable:
        names = ", ".join(spec.name for spec in unavailable)
        return Finding(CHECK, "warning", f"unavailable: {names}", install_command(unavailable[0].extra))
    if unmatched:
        return Finding(CHECK, "warning", "; ".join(unmatched), "Correct the pattern, or remove it.")
    count = len(registry)
    return Finding(
        CHECK, "ok", f"{count}, and those of {closed}, which `forge tool list` opens" if closed else f"{count}"
    )


def _unmatched_hooks(configuration: Configuration, registry: ToolRegistry) -> Iterator[str]:
    """Describes the patterns of hooks that are about no tool: such a hook is never asked."""
    if not configuration.all_hooks:
        return
    from forge.agent.hooks import Hook, read_match
    from forge.agent.result import ANSWER

    specs = [*(tool.spec for tool in registry.values()), *registry.unavailable]
    for _, entry in configuration.all_hooks:
        for pattern in getattr(entry, "match", ()):
            hook = Hook("before_call", print, read_match((pattern,), entry.key_path))
            if pattern != ANSWER and not any(map(hook.concerns, specs)):
                yield f"{entry.key_path}.match: no tool matches {pattern!r}; see `forge tool list`"


def _collect_tools(configuration: Configuration, scope: Scope, *, dev: bool, later: bool) -> ToolRegistry:
    """Returns the tools without those of servers and documents. Writes nothing: not even the state directory."""
    closed = configuration.replace(servers={}, openapi={}, unset={})
    sources = Sources(closed, scope.workspace, watch=False)
    sources.is_part = True  # what has no tool yet may come from a server

    def skills() -> ActiveSkills:
        return active_skills(configuration, scope)

    own = own_tools(closed.replace(memory=None), scope.workspace, sources, skills)
    if configuration.memory is not None and configuration.memory.enabled:
        own += memory_tools(Memory(scope.workspace / STATE / DIRECTORY, writes=False))
    registry = project_tools(closed, scope.workspace, sources, skills, dev=dev, own=own, later=later)
    add_task(registry, closed)
    return mount_tools(registry, sources, lambda note: None)  # examine_sources reports what is left out


def _name_closed(configuration: Configuration) -> str:
    """Names the sources that are not opened here."""
    kinds = {"MCP server": len(configuration.servers), "OpenAPI document": len(configuration.openapi)}
    return " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in kinds.items() if count)
