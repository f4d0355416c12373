"""Looks at everything Forge depends on here, and says what it found."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from forge.app.choose import choose_tools
from forge.app.config import NAME, Configuration, load_configuration
from forge.app.policy import project_policy
from forge.app.secrets import KEYS
from forge.app.version import version
from forge.app.workspace import workspace_root
from forge.core.errors import DefinitionError, ToolError
from forge.permissions.rule import PolicyError
from forge.process.programs import trusted_program
from forge.process.sandbox import Tier, choose, report
from forge.workspace.state import NAME as STATE

PROGRAMS = ("git", "node", "deno")
EXTRAS = {"otel": "opentelemetry"}


class Finding(NamedTuple):
    """`status` is ok, note, warning or broken."""

    check: str
    status: str
    detail: str


def examine(workspace: str | None, config: str | None, policy: str | None, *, dev: bool = False) -> list[Finding]:
    """Never raises: what is broken is a finding."""
    findings = [Finding("forge", "ok", version()), _python()]
    try:
        configuration = load_configuration(config)
        loaded = Finding("configuration", "ok", config) if config else None
    except ToolError as error:
        configuration = Configuration()
        loaded = _broken("configuration", error)
    findings += _workspace(workspace, configuration, loaded)
    findings += [_policy(configuration, policy), _tools(configuration, dev=dev), *_sandbox(configuration), _search()]
    findings += [
        Finding(name, "ok" if (path := shutil.which(name)) else "note", path or "not found") for name in PROGRAMS
    ]
    findings += [
        Finding(key, "ok" if os.environ.get(key) else "note", "set" if os.environ.get(key) else "not set")
        for key in KEYS
    ]
    return [*findings, *_extras()]


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()}, {sys.executable}, {platform.platform(terse=True)}")


def _workspace(asked: str | None, configuration: Configuration, loaded: Finding | None) -> Iterator[Finding]:
    try:
        root = workspace_root(asked, configuration.root)
    except ToolError as error:
        yield _broken("workspace", error)
        yield loaded or Finding("configuration", "note", "none")
        return
    yield Finding("workspace", "ok", str(root))
    state = root / STATE
    if os.access(state if state.exists() else root, os.W_OK | os.X_OK):
        yield Finding("state", "ok", str(state))
    else:
        yield Finding(
            "state", "warning", f"{state} cannot be written: no audit log; long results go to a temporary file"
        )
    yield loaded or _unnamed(root)


def _unnamed(root: Path) -> Finding:
    if (root / NAME).is_file():
        return Finding("configuration", "warning", f"{root / NAME} found, not loaded: name it with --config to use it")
    return Finding("configuration", "note", "none: every built-in tool, the default policy")


def _policy(configuration: Configuration, policy: str | None) -> Finding:
    try:
        project_policy(configuration, policy)
    except PolicyError as error:
        return _broken("policy", error)
    given = [name for name, there in ((configuration.name, configuration.rules), (policy, policy)) if there]
    sources = " and ".join(map(str, given)) or "no rules"
    return Finding("policy", "ok", f"{sources}; where no rule matches, reading is allowed and the rest asks")


def _tools(configuration: Configuration, *, dev: bool) -> Finding:
    try:
        registry = choose_tools(configuration, dev=dev)
        for tool in registry.values():
            tool.spec.parameters  # noqa: B018 - built on first use; a broken one raises
    except (ToolError, DefinitionError) as error:
        return _broken("tools", error)
    return Finding("tools", "ok", f"{len(registry)}")


def _sandbox(configuration: Configuration) -> Iterator[Finding]:
    """Which tier programs run in, and why not in a better one."""
    tiers = report()
    try:
        tier = choose(configuration.sandbox)
    except ToolError as error:
        yield _broken("sandbox", error)
    else:
        status = "ok" if tier is not Tier.NONE or configuration.sandbox == "off" else "warning"
        how = " ".join(one["how"] for one in tiers if one["how"]) if status == "warning" else ""
        yield Finding("sandbox", status, f"{configuration.sandbox}: programs run in {tier}. {how}".rstrip(". ") + ".")
    for one in tiers:
        yield Finding(f"sandbox {one['tier']}", "ok" if one["usable"] else "note", one["detail"])


def _search() -> Finding:
    found = trusted_program("rg", ())
    if found:
        return Finding("rg", "ok", f"{found}: grep_search uses it")
    return Finding("rg", "note", "not found: grep_search does without it, more slowly; pip install 'forge-tools[rg]'")


def _extras() -> Iterator[Finding]:
    for extra, module in EXTRAS.items():
        there = find_spec(module) is not None
        yield Finding(f"extra {extra}", "ok" if there else "note", "installed" if there else "not installed")


def _broken(check: str, error: Exception) -> Finding:
    advice = f" {error.suggestion}" if isinstance(error, ToolError) and error.suggestion else ""
    return Finding(check, "broken", f"{error}{advice}")
