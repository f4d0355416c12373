"""Where a configuration comes from: defaults < user < project < environment < flags, and what the organisation fixes.

A project cannot loosen what the user or the organisation said: rules are kept apart by layer, of sandboxes and egresses
the stricter holds (`merging`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError

if TYPE_CHECKING:  # listing tools does without
    from forge.permissions.policy import Rules

ORGANISATION = "/etc/forge/policy.yaml"
FILE = "config.yaml"


class Layer(NamedTuple):
    """What one origin says, as it was written."""

    kind: str  # organisation, user, project or environment
    name: str  # of its file
    document: Mapping[str, Any]
    text: str = ""

    @property
    def origin(self) -> str:
        return self.name if self.kind == "environment" else f"{self.kind} file {self.name}"


def user_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """`$XDG_CONFIG_HOME/forge/config.yaml` or `~/.config/forge/config.yaml`; None without a home."""
    return _below_home(environment, "XDG_CONFIG_HOME", ".config", FILE)


def data_file(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """`$XDG_DATA_HOME/forge/NAME` or `~/.local/share/forge/NAME`; None without a home."""
    return _below_home(environment, "XDG_DATA_HOME", ".local/share", name)


def _below_home(environment: Mapping[str, str], variable: str, folder: str, name: str) -> Path | None:
    if (given := environment.get(variable, "")).startswith("/"):  # relative ones do not count, says the standard
        return Path(given, "forge", name)
    home = environment.get("HOME", "")
    return Path(home, folder, "forge", name) if home.startswith("/") else None


def is_there(path: Path | str, *, surely: bool = False) -> bool:
    """Whether there is such a file. `surely`: one that cannot be looked at counts, so that it is refused."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return surely
    return True


def check_own(path: Path) -> None:
    """A file that somebody else could have changed decides nothing. Raises `ToolError`."""
    try:
        status = path.stat()
    except OSError as error:
        words = f"{path}: cannot read the configuration: {error.strerror}"
        advice = "Make it readable for yourself, or name another directory in XDG_CONFIG_HOME."
        raise ToolError(words, ErrorKind.CONFIG, advice) from None
    mine = not hasattr(os, "getuid") or status.st_uid in (0, os.getuid())
    if not mine or stat.S_IMODE(status.st_mode) & 0o002:
        why = "anyone can change it" if mine else "it belongs to somebody else"
        raise ToolError(f"{path}: not used: {why}", ErrorKind.CONFIG, f"Look at it, then: chmod go-w {path}")


def rule_layers(layers: Iterable[Layer]) -> dict[str, Rules]:
    """The rules of each, as `layered` takes them: of the text that was read, not of the file as it may be by now.

    Raises `PolicyError`, which names the file, the line and the rule.
    """
    return {
        layer.kind: _rules(layer)
        for layer in layers
        if layer.document.get("permissions") and layer.document["permissions"].get("rules")
    }


def _rules(layer: Layer) -> Rules:
    from dataclasses import replace

    from forge.permissions.policy import PolicyError, Rules, load_rules

    given = "the given text"
    try:
        found = load_rules(f"{layer.text}\n")
    except PolicyError as error:
        raise PolicyError(str(error).replace(given, layer.name, 1)) from None
    return Rules(tuple(replace(rule, where=rule.where.replace(given, layer.name, 1)) for rule in found.rules))
