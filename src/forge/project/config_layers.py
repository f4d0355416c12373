"""Finds the layers of a configuration: defaults < user < project < environment < flags, and the organisation's policy.

A project cannot loosen settings of the user or the organisation: rules are kept apart by layer, and the stricter
sandbox and egress apply (`merging`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.state import config_file

if TYPE_CHECKING:  # listing tools does without
    from forge.permissions.policy import Rules

ORGANISATION = "/etc/forge/policy.yaml"
FILE = "config.yaml"


class Layer(NamedTuple):
    """The document of one origin, unchanged."""

    kind: str  # organisation, user, project or environment
    name: str  # of its file
    document: Mapping[str, Any]
    text: str = ""

    @property
    def origin(self) -> str:
        return self.name if self.kind == "environment" else f"{self.kind} file {self.name}"


def user_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns `$XDG_CONFIG_HOME/forge/config.yaml` or `~/.config/forge/config.yaml`; None without a home directory."""
    return config_file(FILE, environment)


def file_exists(path: Path | str, *, surely: bool = False) -> bool:
    """Returns whether the file exists. With `surely`, an inaccessible file counts, so that it is refused."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return surely
    return True


def check_own(path: Path) -> None:
    """Refuses a file that others could have changed. Raises `ToolError`."""
    try:
        status = path.stat()
    except OSError as error:
        message = f"{path}: cannot read the configuration: {error.strerror}"
        advice = "Make it readable for your user, or set XDG_CONFIG_HOME to another directory."
        raise ToolError(message, ErrorKind.CONFIG, advice) from None
    mine = not hasattr(os, "getuid") or status.st_uid in (0, os.getuid())
    if not mine or stat.S_IMODE(status.st_mode) & 0o002:
        why = "anyone can change it" if mine else "it belongs to another user"
        raise ToolError(
            f"{path} cannot be used: {why}", ErrorKind.CONFIG, f"Check its content, then run: chmod go-w {path}"
        )


def rule_layers(layers: Iterable[Layer]) -> dict[str, Rules]:
    """Returns the rules of each layer for `layered`, from the text that was read, not from the current file.

    Raises `PolicyError`, which names the file, the line and the rule.
    """
    return {
        layer.kind: _rules(layer)
        for layer in layers
        if layer.document.get("permissions") and layer.document["permissions"].get("rules")
    }


def _rules(layer: Layer) -> Rules:

    from forge.permissions.policy import Rules, load_rules
    from forge.permissions.rules import PolicyError

    given = "the given text"
    try:
        found = load_rules(f"{layer.text}\n")
    except PolicyError as error:
        raise PolicyError(str(error).replace(given, layer.name, 1)) from None
    return Rules(tuple(replace(rule, where=rule.where.replace(given, layer.name, 1)) for rule in found.rules))
