"""The target of a connection: a program to start, or a URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from forge.network.egress import Egress
from forge.sources.mcp.oauth.login import Login
from forge.sources.mcp.programs.settings import ProgramSettings

_UNCONFINED = ProgramSettings(sandbox="off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A `command` or a `url`. Its `repr` omits possible secrets."""

    command: tuple[str, ...] = ()  # program and arguments
    environment: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # added to the minimal environment of programs
    directory: Path | None = None
    settings: ProgramSettings = _UNCONFINED  # of the program: its sandbox and its limits
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # sent to that origin only
    login: Login | None = None  # OAuth, unless a header says otherwise
    egress: Egress | None = None  # None: the configured origin only, private or not, since a person named it
