"""Where an MCP server is: a program to start, or a URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from forge.network.egress import Egress


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One of the two: a `command` or a `url`. What may be secret is not in its `repr`."""

    command: tuple[str, ...] = ()  # program and arguments
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # added to the little that programs see
    directory: Path | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # sent to that origin only
    egress: Egress | None = None  # None: the configured origin alone, private or not: a person named it
