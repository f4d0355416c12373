"""Defines what a program that a tool starts may reach in a sandbox."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from forge.core.context import ToolContext
from forge.core.spec import Permission
from forge.permissions.gate import is_opened
from forge.process.sandbox.layout import Confinement, confinement_of
from forge.workspace.paths import PathValidator
from forge.workspace.state import config_file

_NAMES_SETTINGS = re.compile(r"CONFIG|CREDENTIAL|CERT|CA_BUNDLE|CA_FILE|PASSFILE|NETRC|[A-Z]RC\Z")


def confinement(
    ctx: ToolContext, paths: PathValidator, *, network: bool, readable: Sequence[Path] = (), home: Path | None = None
) -> Confinement:
    """Returns the confinement: the workspace, the declared roots, `readable`, and the network if it is open."""
    opened = network or is_opened(ctx, Permission.NETWORK)
    return confinement_of(ctx.scope, paths, also=readable, network=opened, home=home)


def find_settings(env: Mapping[str, str], passthrough: Iterable[str], paths: PathValidator) -> dict[str, list[Path]]:
    """Returns the settings of programs that passed variables name: KUBECONFIG, GH_CONFIG_DIR, SSL_CERT_FILE, …

    The sandbox would hide these files and directories. A directory that holds the home directory or Forge's own
    settings stays hidden.
    """
    found: dict[str, list[Path]] = {}
    for name in passthrough:
        if not _NAMES_SETTINGS.search(name.upper()):
            continue
        named = [one for one in env.get(name, "").split(os.pathsep) if os.path.isabs(one)]
        shown = [Path(one) for one in named if _is_hidden_settings(os.path.realpath(one), paths)]
        if shown:
            found[name] = shown
    return found


def spell_settings(env: Mapping[str, str], settings: Mapping[str, Sequence[Path]]) -> dict[str, str]:
    """Returns these variables with real paths, since a sandbox shows the real files and not the links to them."""
    found = {}
    for name, paths in settings.items():
        real = {str(path): os.path.realpath(path) for path in paths}
        found[name] = os.pathsep.join(real.get(one, one) for one in env[name].split(os.pathsep))
    return found


def _is_hidden_settings(real: str, paths: PathValidator) -> bool:
    if paths.location_of(real) is not None or not (os.path.isfile(real) or os.path.isdir(real)):
        return False
    own = config_file("") or os.path.expanduser("~")
    kept = [os.path.realpath(one) for one in (os.path.expanduser("~"), str(own))]
    return not any(f"{one}/".startswith(f"{real.rstrip('/')}/") for one in kept)
