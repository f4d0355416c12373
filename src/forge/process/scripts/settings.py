"""Defines the person's settings for scripts that become tools."""

from __future__ import annotations

from dataclasses import dataclass

TIMEOUT = 120.0  # seconds
MAX_OUTPUT = 1024 * 1024  # bytes of each stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """The person's settings for scripts; a script itself cannot change them."""

    timeout: float | None = TIMEOUT
    python: str = ""  # a program's name or path; by default the Python that runs Forge
    env_passthrough: tuple[str, ...] = ()  # names of variables that scripts see
    network: bool = False  # in a sandbox
    sandbox: str | bool = "auto"
    max_output_bytes: int = MAX_OUTPUT
