"""Defines what the program of a server may reach and use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from forge.core.context import Root
from forge.core.errors import DefinitionError

MIB = 1024 * 1024
MEMORY = 2048  # MiB that each process of a server may write to
LEAST_MEMORY = 64
SANDBOXES = ("auto", "required", "bubblewrap", "landlock", "off")
ACCESS = ("write", "read", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSettings:
    """The sandbox and the limits of a server's program. `workspace` is its access to its working directory."""

    sandbox: str = "auto"
    network: bool = False
    workspace: str = "write"
    roots: tuple[Root, ...] = ()
    memory: int = MEMORY  # MiB
    integrity: str = ""  # of an installation that `forge mcp add` made

    @property
    def is_confined(self) -> bool:
        return self.sandbox != "off"


def read_program_settings(
    *,
    sandbox: str | bool = "auto",
    network: bool = False,
    workspace: str = "write",
    roots: Iterable[Root | Path | str] = (),
    memory: int = MEMORY,
    integrity: str = "",
) -> ProgramSettings:
    """Checks the settings of a program. Raises `DefinitionError`."""
    wanted = {True: "required", False: "off"}[sandbox] if isinstance(sandbox, bool) else sandbox
    for option, given, known in (("sandbox", wanted, SANDBOXES), ("workspace", workspace, ACCESS)):
        if given not in known:
            raise DefinitionError(f"mcp({option}={given!r}): expected one of {', '.join(known)}")
    if memory < LEAST_MEMORY:
        raise DefinitionError(f"mcp(memory={memory!r}): expected at least {LEAST_MEMORY} MiB")
    found = tuple(one if isinstance(one, Root) else Root(Path(one)) for one in roots)
    return ProgramSettings(
        sandbox=wanted, network=network, workspace=workspace, roots=found, memory=memory, integrity=integrity
    )
