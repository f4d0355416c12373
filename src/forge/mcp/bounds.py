"""Bounds for untrusted servers: sizes, counts and rates, and what the program of a server may reach and use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from forge.core.context import Root
from forge.core.errors import DefinitionError

MIB = 1024 * 1024
MOST_MESSAGE = 64 * MIB  # bytes of one message; a longer one is dropped, and its call fails
MOST_LINE = 4 * MOST_MESSAGE  # bytes without a line break; then the server is stopped
MOST_VALUES = 1_000_000  # values of one message: an empty list takes forty times as much memory as its text
MOST_TOOLS = 5_000
MOST_PAGES = 100
MOST_LISTED = 32 * MIB  # bytes of all definitions together
LISTING = 30.0  # seconds for all pages
MOST_ASKING = 8  # questions of a server (elicitation, sampling) that are open at once
MOST_ROUNDS = 10  # requests for more input before a server answers one call
WORDS = 2_000  # characters of the last error output
LINE = 1_000  # characters of one log line or message
INSTRUCTIONS = 4_000  # characters

_BURST = 400
_A_SECOND = 200.0
_PAUSE = 0.05  # seconds without reading from a server that sends too much


class RateLimit:
    """Limits the rate of a server's notifications: excess ones are dropped, and the server is slowed down."""

    def __init__(self) -> None:
        self._left = float(_BURST)
        self._looked = time.monotonic()
        self.dropped = 0

    def admits(self) -> bool:
        now = time.monotonic()
        self._left = min(float(_BURST), self._left + (now - self._looked) * _A_SECOND)
        self._looked = now
        if self._left < 1:
            self.dropped += 1
            return False
        self._left -= 1
        return True

    async def pause(self) -> None:
        """Pauses reading: the server's pipe or connection fills up, and the server has to wait."""
        if self.dropped % 100 == 1:
            await asyncio.sleep(_PAUSE)


# --- Defines what the program of a server may reach and use.


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
