"""Writes planned servers into forge.yaml and its lock, and removes servers from them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.project.read_yaml import parse_yaml, read_text
from forge.project.servers.edit_yaml import put_entry, remove_entry
from forge.project.servers.plan import SECTION, ServerPlan, folder_of
from forge.project.trust import accept, trust_state
from forge.sources.mcp.programs.installed import is_installed_here
from forge.sources.mcp.programs.installer import install_program, remove_program
from forge.sources.mcp.programs.lock import LockedProgram, read_lock, write_lock
from forge.workspace.state.replace_file import replace_file


class Changed(NamedTuple):
    """A changed file. `needs_trust`: it is not in force before `forge trust`."""

    file: str
    needs_trust: bool


def read_servers(config: str) -> dict[str, Any]:
    """Returns the entries of the servers as they are written; {} without a file. Raises `ToolError`."""
    document = parse_yaml(_read(config), config) or {}
    found = document.get(SECTION) if isinstance(document, dict) else None
    return dict(found) if isinstance(found, dict) else {}


def check_free(config: str, names: Sequence[str], *, replace: bool) -> None:
    """Raises `ToolError` if a server of that name exists and must not be replaced."""
    there = [name for name in names if name in read_servers(config)]
    if there and not replace:
        raise ToolError(
            f"{config} has a server {', '.join(there)} already",
            ErrorKind.CONFIG,
            "Choose another name, or replace it with --replace.",
        )


async def add_servers(
    config: str, plans: Sequence[ServerPlan], try_servers: Callable[[str], Awaitable[None]]
) -> Changed:
    """Installs the pinned packages, tries the servers, then writes all entries.

    `try_servers` gets the text that would be written. Raises `ToolError`, also its own; then the file is unchanged.
    """
    text = _read(config)
    for plan in plans:
        text = put_entry(text, SECTION, plan.name, plan.entry, config)
    locks = read_lock(folder_of(config))
    installed = []
    try:
        for plan in plans:
            locks.pop(plan.name, None)
            if plan.locked is not None:
                if not is_installed_here(plan.locked.integrity):
                    installed.append(plan.locked.integrity)
                await install_program(plan.locked)
                locks[plan.name] = plan.locked
        await try_servers(text)
    except BaseException:
        for integrity in installed:
            remove_program(integrity)
        raise
    return _write(config, text, locks)


def remove_server(config: str, name: str) -> Changed:
    """Removes a server, its lock and its installation, unless another server uses it. Raises `ToolError`."""
    servers = read_servers(config)
    if name not in servers:
        known = ", ".join(servers) or "none"
        raise ToolError(f"{config} has no server {name[:60]!r}", ErrorKind.NOT_FOUND, f"Its servers: {known}.")
    text = remove_entry(_read(config), SECTION, name, config)
    locks = read_lock(folder_of(config))
    gone = locks.pop(name, None)
    changed = _write(config, text, locks)
    if gone is not None and gone.integrity not in {one.integrity for one in locks.values()}:
        remove_program(gone.integrity)
    return changed


async def install_servers(config: str, names: Sequence[str] = ()) -> list[str]:
    """Installs pinned servers of a project on this machine, all or some. Returns their names. Raises `ToolError`."""
    servers, locks = read_servers(config), read_lock(folder_of(config))
    pinned = {name: one["integrity"] for name, one in servers.items() if isinstance(one, dict) and "integrity" in one}
    for name in names:
        if name not in pinned:
            known = ", ".join(pinned) or "none"
            raise ToolError(
                f"{config} has no pinned server {name[:60]!r}", ErrorKind.NOT_FOUND, f"Its pinned servers: {known}."
            )
    for name in names or pinned:
        locked = locks.get(name)
        if locked is None or locked.integrity != pinned[name]:
            raise ToolError(
                f"the packages of the server {name} are not known: the lock does not fit {config}",
                ErrorKind.CONFIG,
                f"Restore forge.mcp.lock, or pin the server again: forge mcp add {name} --replace -- COMMAND",
            )
        await install_program(locked)
    return list(names or pinned)


def _read(config: str) -> str:
    return read_text(config) if os.path.lexists(config) else ""


def _write(config: str, text: str, locks: dict[str, LockedProgram]) -> Changed:
    """Writes the lock, then the file. A file that was trusted as it was is trusted with this change."""
    path = Path(os.path.realpath(config))
    is_projects = path.name == "forge.yaml"
    before = trust_state(path.parent).status if is_projects else "none"
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    write_lock(folder_of(config), locks)
    try:
        replace_file(path, text, mode)
    except OSError as error:
        raise ToolError(
            f"{config} cannot be written: {error.strerror}", ErrorKind.CONFIG, "Make the file writable."
        ) from None
    if is_projects and before in ("trusted", "none"):
        accept(path.parent, text)
    return Changed(config, is_projects and before not in ("trusted", "none"))
