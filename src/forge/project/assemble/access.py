"""Finds the workspace of a project's tools, within the cap of the environment, and builds the policy and the egress."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from forge.core.context import Root, Scope
from forge.core.errors import ErrorKind, ToolError
from forge.project.config.declaration import Configuration
from forge.project.config_layers import rule_layers
from forge.workspace import CAP

if TYPE_CHECKING:
    from forge.network.egress import Egress
    from forge.permissions.policy import Rules


class ProjectFlags(Protocol):
    """The flags that name a project and its rules."""

    @property
    def workspace(self) -> str | None: ...
    @property
    def config(self) -> str | None: ...
    @property
    def policy(self) -> str | None: ...


def project_scope(requested: str | None, configuration: Configuration, session: str = "local") -> Scope:
    """Returns the scope of a session: the workspace, further directories of the project, and whether it may write.

    Raises `ToolError` for a directory that cannot be used.
    """
    cap = _directory(os.environ[CAP], CAP) if os.environ.get(CAP) else None
    roots = []
    for entry in configuration.roots:
        path = _directory(str(entry.path), f"{configuration.name}: {entry.key_path}.path")
        _check_cap(path, cap)
        roots.append(Root(path, entry.writable))
    workspace = workspace_root(requested, configuration.root)
    protected: tuple[str, ...] = ()
    if configuration.all_hooks:
        from forge.project.assemble.hooks import list_protected  # few projects have them

        protected = list_protected(configuration, workspace)
    return Scope(
        session_id=session,
        workspace=workspace,
        protected=protected,
        hidden=list_secret_files(configuration),
        roots=tuple(roots),
        writes=configuration.writes,
        programs=configuration.programs.limits,
        skills=tuple(dict.fromkeys(("skills", *(configuration.skills.paths if configuration.skills else ())))),
    )


def list_secret_files(configuration: Configuration) -> tuple[str, ...]:
    """Returns the files with secrets that stay outside of programs."""
    return tuple(os.path.abspath(one.file) for one in configuration.secret_entries if one.file and one.hosts)


def workspace_root(
    requested: str | None = None, configured: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """Returns the flag's directory, else the configured one, the cap or the current one; always inside the cap."""
    cap = _directory(environment[CAP], CAP) if environment.get(CAP) else None
    if requested is not None:
        root = _directory(requested, "--workspace")
    elif configured is not None:
        root = _directory(str(configured), "workspace.root")
    else:
        root = cap or _current_directory()
    _check_cap(root, cap)
    return root


def _check_cap(root: Path, cap: Path | None) -> None:
    if cap is not None and not root.is_relative_to(cap):
        raise ToolError(
            f"workspace {str(root)!r} is outside {str(cap)!r}, the directory that {CAP} allows",
            ErrorKind.CONFIG,
            f"Choose a directory inside it, or start Forge with another {CAP}.",
        )


def _directory(path: str, named_by: str) -> Path:
    try:
        real = Path(path).resolve(strict=True)
        if real.is_dir():
            return real
        problem = "not a directory"
    except (OSError, ValueError, RuntimeError) as error:  # a NUL byte, a loop of links
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    raise ToolError(
        f"{named_by} {path!r} cannot be the workspace: {problem}", ErrorKind.CONFIG, "Name an existing directory."
    )


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise ToolError(
            f"the current directory cannot be the workspace: {error.strerror}",
            ErrorKind.CONFIG,
            "Change to an existing directory, or name one with --workspace.",
        ) from None


# Builds the policy of a project: the organisation's rules, the user's, the project's, then those for this call.


def project_policy(configuration: Configuration, policy: str | None) -> Rules:
    """A rule file given for this call is the most specific layer: it decides, but denies of other layers stay.

    Raises `PolicyError`.
    """
    from forge.permissions.policy import layered, load_rules

    above = rule_layers(configuration.layers)
    return layered(
        organisation=above.get("organisation"),
        user=above.get("user"),
        project=above.get("project"),
        session=load_rules(Path(policy)) if policy is not None else None,
    )


# Builds the egress of a project: the addresses that its tools may connect to.


def project_egress(configuration: Configuration) -> Egress | None:
    """Returns the configured egress; None if none is configured. Raises `ToolError`."""
    said = configuration.egress
    has_secrets = any(one.hosts for one in configuration.secret_entries)
    if said is None and not has_secrets:
        return None
    from forge.network.egress import Egress
    from forge.project.assemble.secrets import program_secrets

    secrets = program_secrets(configuration)
    if said is None:
        return Egress(secrets=secrets)
    try:
        return Egress(
            mode=said.mode,
            domains=said.domains,
            private=said.private,
            inspect=said.inspect,
            passed=said.passed,
            secrets=secrets,
        )
    except ValueError as error:
        hint = "Write a domain such as api.example.com under domains, a network such as 10.0.0.0/8 under private."
        raise ToolError(f"{configuration.name}: egress: {error}", ErrorKind.CONFIG, hint) from None
