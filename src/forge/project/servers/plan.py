"""Plans a new MCP server of a project: its entry of forge.yaml, its pinned packages, and what it turns on."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.mcp.programs.fetching import is_fetching, pin_command, read_command
from forge.mcp.programs.installed import LockedProgram
from forge.mcp.programs.installer import resolve_program
from forge.project.config import read_configuration
from forge.project.config.reader import VARIABLE, is_secret
from forge.project.trust_summary import TrustItem, server_items

SECTION = "mcpServers"
NAME = re.compile(r"(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,31}")
URL = re.compile(r"https?://", re.IGNORECASE)


class ServerPlan(NamedTuple):
    """A server to add. `notes` are for the person: what was left out, or has to be set."""

    name: str
    entry: dict[str, Any]
    locked: LockedProgram | None = None
    notes: tuple[str, ...] = ()


class ServerSettings(NamedTuple):
    """The settings of a server that a person gave beside its command."""

    environment: tuple[str, ...] = ()  # NAME or NAME=VALUE
    network: bool = False
    workspace: str = ""
    roots: tuple[str, ...] = ()  # PATH or PATH:write
    sandbox: str = ""
    cwd: str = ""


def check_name(name: str) -> str:
    """Returns the name of a server. Raises `ToolError` if it cannot be one."""
    if not NAME.fullmatch(name):
        raise ToolError(
            f"{name[:60]!r} cannot be the name of a server",
            ErrorKind.VALIDATION,
            "A name starts with a letter, followed by up to 31 letters, digits, - or single _.",
        )
    return name


def safe_name(text: str) -> str:
    """Returns a name for a server that another program calls otherwise."""
    plain = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", text.rpartition("/")[2])).strip("-_")
    named = plain if plain[:1].isalpha() else f"server-{plain}".rstrip("-")
    return named[:32].rstrip("-_")


async def plan_command(name: str, command: Sequence[str], settings: ServerSettings) -> ServerPlan:
    """Plans a server that is a command or a URL; a package that the command fetches is pinned. Raises `ToolError`."""
    if URL.match(command[0]):
        if len(command) > 1:
            raise ToolError("a URL takes no arguments", ErrorKind.VALIDATION, "Name only the URL of the server.")
        return ServerPlan(name, {"url": command[0]})
    program, *arguments = command
    _check_program(name, command)
    entry: dict[str, Any] = {"command": program, **({"args": arguments} if arguments else {})}
    return await pin_entry(ServerPlan(name, apply_settings(entry, settings)))


def _check_program(name: str, command: Sequence[str]) -> None:
    """Raises `ToolError` for a program that is not on this machine: the server could never start."""
    program = command[0]
    is_relative = os.sep in program and not os.path.isabs(program)  # counts from the server's working directory
    if is_relative or "${" in program or is_fetching(command) or shutil.which(program) is not None:
        return
    raise ToolError(
        f"cannot add the server {name}: there is no program {program[:200]!r} on this machine",
        ErrorKind.NOT_FOUND,
        "Install the program, or name its path. Nothing was changed.",
    )


def apply_settings(entry: Mapping[str, Any], settings: ServerSettings) -> dict[str, Any]:
    """Returns the entry of a program with the settings of a person. Raises `ToolError`."""
    changed = dict(entry)
    variables = {**entry.get("env", {}), **dict(map(_read_variable, settings.environment))}
    if variables:
        changed["env"] = variables
    if settings.cwd:
        changed["cwd"] = settings.cwd
    if settings.network:
        changed["network"] = True
    for key, value in (("workspace", settings.workspace), ("sandbox", settings.sandbox)):
        if value:
            changed[key] = value
    if settings.roots:
        changed["roots"] = [_read_root(one) for one in settings.roots]
    return changed


async def pin_entry(plan: ServerPlan) -> ServerPlan:
    """Pins the package that a command fetches when it starts; another entry stays as it is."""
    command = [str(plan.entry.get("command", "")), *map(str, plan.entry.get("args", ()))]
    if not is_fetching(command):
        return plan
    fetched = read_command(command)
    locked = await resolve_program(fetched)
    program, *arguments = pin_command(fetched, locked.version, command)
    entry = {**plan.entry, "command": program, "args": arguments, "integrity": locked.integrity}
    return plan._replace(entry=entry, locked=locked)


def check_entry(name: str, entry: Mapping[str, Any]) -> None:
    """Raises `ToolError` if forge.yaml cannot have this entry."""
    read_configuration(json.dumps({SECTION: {check_name(name): entry}}), "forge.yaml")


def list_effects(plan: ServerPlan) -> list[TrustItem]:
    """Lists what the server would turn on, as `forge trust` shows it."""
    said = read_configuration(json.dumps({SECTION: {plan.name: plan.entry}}), "forge.yaml")
    items = [one for name, server in said.servers.items() for one in server_items(name, server, said)]
    if plan.locked is not None:
        one = plan.locked
        message = f"{one.package} {one.version} with {one.size} packages in all, from {one.registry}"
        items.append(TrustItem("installs", message))
    if said.variables:
        items.append(TrustItem("reads variables", ", ".join(said.variables), risky=False))
    return items


def _read_variable(text: str) -> tuple[str, str]:
    name, assigned, value = text.partition("=")
    if not re.fullmatch(VARIABLE, name):
        raise ToolError(
            f"{name[:60]!r} is not the name of a variable", ErrorKind.VALIDATION, "Write NAME or NAME=VALUE."
        )
    if assigned and is_secret(name):
        raise ToolError(
            f"the value of {name} would be written into forge.yaml, and its name says that it is a secret",
            ErrorKind.VALIDATION,
            f"Set the variable in your environment, and pass only its name: --env {name}",
        )
    return name, value if assigned else f"${{{name}}}"


def _read_root(text: str) -> str | dict[str, str]:
    path, _, access = text.rpartition(":")
    if path and access in ("read", "write"):
        return {"path": path, "access": access}
    return text


def folder_of(config: str) -> Path:
    """Returns the folder of a configuration file, in which its lock is."""
    return Path(config).absolute().parent
