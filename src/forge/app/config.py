"""`forge.yaml`: read with bounds, checked key by key, refused with the file, the place and a way on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forge.core.arguments import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.spec import Permission

NAME = "forge.yaml"
KEYS = ("tools", "permissions", "workspace", "secrets")
LATER = tuple(
    "agent agents channels egress guardrails limits mcpServers memory openapi sandbox schedules skills webhooks".split()
)
"""Sections of later versions: refused by name, so that nobody believes they have an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEntry:
    """One entry under `tools`: a name (or a pattern of names) or a group, and settings for what it names."""

    place: str
    name: str = ""
    group: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a project says. Without a file: nothing, which means every built-in tool and the default policy."""

    name: str = NAME
    tools: tuple[ToolEntry, ...] | None = None
    rules: tuple[Any, ...] = ()
    secrets: tuple[str, ...] = ()  # names of environment variables
    root: Path | None = None

    def error(self, place: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        """What is wrong, where, and what was probably meant."""
        names = list(known)
        hint = near(written, names, 1) if written else []
        advice = f"Did you mean {hint[0]!r}?" if hint else f"Known are {', '.join(sorted(names))}." if names else ""
        return ToolError(f"{self.name}: {place}: {problem}", ErrorKind.CONFIG, advice or "Mend the file.")


def load_configuration(path: str | os.PathLike[str] | None) -> Configuration:
    """Read a file that a person named. Raises `ToolError` of kind `config_error`."""
    if path is None:
        return Configuration()
    from forge.permissions.load import load_yaml  # PyYAML, which most commands do without

    reading = _Reading(Configuration(name=os.fspath(path)))
    document = load_yaml(path)
    return reading.configuration({} if document is None else document, Path(path).parent)
