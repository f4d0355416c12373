"""Starts the program of a server in its sandbox, with its limits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.process.environment import shell_environment
from forge.process.running.limits import Resources
from forge.process.running.pipes import Piped
from forge.process.sandbox.layout import Confinement, find_hidden, make_private_folder, remove_folder
from forge.sources.mcp.programs.fetching import how_to_pin, is_fetching
from forge.sources.mcp.programs.installed import find_installed
from forge.sources.mcp.programs.settings import MIB, ProgramSettings
from forge.workspace.state import make_key


@asynccontextmanager
async def start_program(
    name: str, command: Sequence[str], directory: Path, variables: Mapping[str, str], settings: ProgramSettings
) -> AsyncIterator[Piped]:
    """Starts the program of a server and removes its private folder at the end; the caller stops the program.

    `variables` are added to the minimal environment. Raises `ToolError` if the program cannot be started, or if there
    is no sandbox and one is wanted.
    """
    with contextlib.ExitStack() as stack:
        if settings.is_confined and settings.workspace == "none":
            directory = Path(make_private_folder())
            stack.callback(remove_folder, str(directory))
        yield await _start(name, command, directory, variables, settings)


async def _start(
    name: str, command: Sequence[str], directory: Path, variables: Mapping[str, str], settings: ProgramSettings
) -> Piped:
    make_key()  # the program may make a state directory of its own
    environment = {**shell_environment(), **variables}
    folders: tuple[Path, ...] = ()
    if settings.integrity:
        installed = await in_thread(lambda: find_installed(name, settings.integrity, command, environment))
        command, folders = installed
    elif settings.is_confined and is_fetching(command):
        raise _unpinned(name, command)
    limits = Resources(data=settings.memory * MIB)
    if not settings.is_confined:
        return await Piped.start(command, cwd=directory, env=environment, limits=limits)
    confinement = _confine(directory, folders, variables.get("HOME"), settings)
    try:
        return await Piped.start(
            command, cwd=directory, env=environment, limits=limits, confinement=confinement, sandbox=settings.sandbox
        )
    except ToolError as error:
        raise _explain(name, error) from None


def _confine(directory: Path, installed: tuple[Path, ...], home: str | None, settings: ProgramSettings) -> Confinement:
    """Returns the confinement: the working directory, the declared roots and the installation."""
    only_read = [root.path for root in settings.roots if not root.writable]
    return Confinement(
        workspace=directory,
        writable=tuple(root.path for root in settings.roots if root.writable),
        readable=(*only_read, *installed, *([directory] if settings.workspace == "read" else [])),
        network=settings.network,
        home=Path(home) if home else None,
    )


def find_hidden_files(
    command: Sequence[str], directory: Path, variables: Mapping[str, str], settings: ProgramSettings, said: str
) -> list[str]:
    """Returns existing files that the command, or the program's last output, names and its sandbox hides."""
    if not settings.is_confined or settings.integrity:
        return []
    environment = {**shell_environment(), **variables}
    shown = directory if settings.workspace != "none" else Path(os.devnull)
    confinement = _confine(shown, (), variables.get("HOME"), settings)
    texts = [*command, said]
    found = (os.path.join(directory, one) for one in find_hidden(texts, confinement, environment, directory))
    return [path for path in found if os.path.exists(path)]


def _explain(name: str, error: ToolError) -> ToolError:
    if not error.message.startswith("sandbox: "):
        return error
    return ToolError(
        f"the server {name} cannot be started in a sandbox: {error.message.removeprefix('sandbox: ')}",
        ErrorKind.CONFIG,
        f"{error.suggestion.partition(' Or set ')[0]} Or set `sandbox: off` for this server in forge.yaml; then it has"
        " all your permissions.",
    )


def _unpinned(name: str, command: Sequence[str]) -> ToolError:
    return ToolError(
        f"the server {name} is fetched when it starts ({' '.join(command)[:200]}): its code may be another each time,"
        " and the sandbox keeps no download",
        ErrorKind.CONFIG,
        how_to_pin(name, command),
    )
