"""Examines everything that Forge depends on here, and reports findings. It changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from forge.core.errors import ToolError
from forge.project.assemble.access import project_scope, workspace_root
from forge.project.config import load_configuration
from forge.project.config.declaration import Configuration
from forge.project.doctor.finding import Finding, finding_of_error
from forge.project.doctor.machine import examine_machine, examine_trial
from forge.project.doctor.project import examine_project, examine_tools
from forge.project.doctor.services import examine_durable, examine_work
from forge.project.doctor.sources import examine_sources
from forge.project.doctor.state import examine_state
from forge.workspace import CAP

__all__ = ["Finding", "examine"]


def examine(workspace: str | None, config: str | None, policy: str | None, *, dev: bool = False) -> list[Finding]:
    """Returns the findings. Never raises: a broken part is a finding."""
    findings: list[Finding] = []
    loaded: Finding | None = None
    try:
        configuration = load_configuration(config, _config_directory(workspace))
        read = config or next((layer.name for layer in configuration.layers if layer.kind == "project"), None)
        loaded = Finding("configuration", "ok", read) if read else None
    except ToolError as error:
        configuration = Configuration()
        loaded = finding_of_error("configuration", error)
    root = _find_root(workspace, configuration, findings)
    findings += examine_state(root) if root is not None else ()
    findings += examine_project(configuration, policy, root, loaded)
    if root is not None:
        try:
            scope = project_scope(workspace, configuration)
        except ToolError as error:  # a directory beside the workspace that is gone
            findings.append(finding_of_error("workspace.roots", error))
        else:
            findings.append(examine_trial(configuration, scope))
            findings.append(examine_tools(configuration, scope, dev=dev))
            findings += examine_sources(configuration, scope)
            findings += examine_work(configuration, scope)
            findings += examine_durable(configuration, scope.workspace)
    return [*examine_machine(configuration), *findings]


def _config_directory(workspace: str | None) -> str | None:
    """Returns the directory of an unnamed configuration; None if there is no such directory."""
    try:
        return os.path.realpath(workspace or os.environ.get(CAP) or os.curdir)
    except (OSError, ValueError):  # the current directory is gone
        return None


def _find_root(requested: str | None, configuration: Configuration, findings: list[Finding]) -> Path | None:
    try:
        root = workspace_root(requested, configuration.root)
    except ToolError as error:
        findings.append(finding_of_error("workspace", error))
        return None
    findings.append(Finding("workspace", "ok", str(root)))
    return root
