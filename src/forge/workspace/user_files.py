"""Finds Forge's files in the home directory of the user, as the XDG standard places them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_file(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns `$XDG_CONFIG_HOME/forge/NAME` or `~/.config/forge/NAME`; None without a home directory."""
    return _file_in_home(environment, "XDG_CONFIG_HOME", ".config", name)


def data_file(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns `$XDG_DATA_HOME/forge/NAME` or `~/.local/share/forge/NAME`; None without a home directory."""
    return _file_in_home(environment, "XDG_DATA_HOME", ".local/share", name)


def _file_in_home(environment: Mapping[str, str], variable: str, folder: str, name: str) -> Path | None:
    if (given := environment.get(variable, "")).startswith("/"):  # the standard ignores relative paths
        return Path(given, "forge", name)
    home_directory = environment.get("HOME", "")
    return Path(home_directory, folder, "forge", name) if home_directory.startswith("/") else None
