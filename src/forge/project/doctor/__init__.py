"""Looks at everything Forge depends on here, and says what it found. Nothing is started, made or changed."""

from __future__ import annotations

import os
from pathlib import Path

from forge.core.errors import ToolError
from forge.project.assemble.workspace import project_scope, workspace_root
from forge.project.config import Configuration, load_configuration
from forge.project.doctor.durable import examine_durable
from forge.project.doctor.finding import Finding, broken
from forge.project.doctor.machine import examine_machine
from forge.project.doctor.project import examine_project
from forge.project.doctor.sources import examine_sources
from forge.project.doctor.state import examine_state
from forge.project.doctor.work import examine_work
from forge.workspace import CAP

__all__ = ["Finding", "examine"]


def examine(workspace: str | None, config: str | None, policy: str | None, *, dev: bool = False) -> list[Finding]:
    """Never raises: what is broken is a finding."""
    findings: list[Finding] = []
    loaded: Finding | None = None
    try:
        configuration = load_configuration(config, _place(workspace))
        read = config or next((layer.name for layer in configuration.layers if layer.kind == "project"), None)
        loaded = Finding("configuration", "ok", read) if read else None
    except ToolError as error:
        configuration = Configuration()
        loaded = broken("configuration", error)
    root = _root(workspace, configuration, findings)
    findings += examine_state(root) if root is not None else ()
    findings += examine_project(configuration, policy, root, loaded, dev=dev)
    if root is not None:
        try:
            scope = project_scope(workspace, configuration)
        except ToolError as error:  # a directory beside the workspace that is gone
            findings.append(broken("workspace.roots", error))
        else:
            findings += examine_sources(configuration, scope)
            findings += examine_work(configuration, scope)
            findings += examine_durable(configuration, scope.workspace)
    return [*examine_machine(configuration), *findings]


def _place(workspace: str | None) -> str | None:
    """Where a configuration may be that nobody named; None where there is no such place."""
    try:
        return os.path.realpath(workspace or os.environ.get(CAP) or os.curdir)
    except (OSError, ValueError):  # the current directory is gone
        return None


def _root(asked: str | None, configuration: Configuration, findings: list[Finding]) -> Path | None:
    try:
        root = workspace_root(asked, configuration.root)
    except ToolError as error:
        findings.append(broken("workspace", error))
        return None
    findings.append(Finding("workspace", "ok", str(root)))
    return root
