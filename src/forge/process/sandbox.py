"""Chooses what confines programs, and turns a command into the one to start instead."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.process import bubblewrap, landlock
from forge.process._confine import landlock_version
from forge.process.layout import Confinement

__all__ = ["Confinement", "Tier", "choose", "confined", "report"]

SETTINGS = ("auto", "required", "bubblewrap", "landlock", "off")

_PROBE_SECONDS = 20.0
_PROBE = 'if (: <"$1") 2>/dev/null; then echo open; else echo >here && echo confined; fi'


class Tier(StrEnum):
    """What confines a program, the strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


_COMMANDS: dict[Tier, Callable[[Sequence[str], Confinement, Mapping[str, str]], list[str]]] = {
    Tier.BUBBLEWRAP: bubblewrap.command,
    Tier.LANDLOCK: landlock.command,
}
_HOW = {Tier.BUBBLEWRAP: bubblewrap.HOW, Tier.LANDLOCK: landlock.HOW}
_lock = threading.Lock()


def choose(setting: str | bool = "auto") -> Tier:
    """The tier for a setting. Each is tried once a process, by really running something in it.

    `auto` takes the best there is, which may be none; the others fail where what they name is not there.
    """
    wanted = _name_of(setting)
    if wanted == "off":
        return Tier.NONE
    tiers = [Tier(wanted)] if wanted in _COMMANDS else list(_COMMANDS)
    for tier in tiers:
        if not problem(tier):
            return tier
    if wanted == "auto":
        return Tier.NONE
    raise ToolError(
        f"sandbox: {wanted} cannot be had: " + "; ".join(f"{tier}: {problem(tier)}" for tier in tiers),
        ErrorKind.CONFIG,
        f"{_HOW[tiers[0]]} Or set sandbox: off, with which programs can do all that you can.",
    )


def confined(argv: Sequence[str], confinement: Confinement, tier: Tier, env: Mapping[str, str]) -> list[str]:
    """The command line to start instead, with `env` as its environment, in a directory below one of the roots."""
    return list(argv) if tier is Tier.NONE else _COMMANDS[tier](argv, confinement, env)


def report() -> list[dict[str, Any]]:
    """Each tier: whether it can be used, why not, and how to get it."""
    facts = {Tier.BUBBLEWRAP: _bubblewrap_facts, Tier.LANDLOCK: _landlock_facts}
    rows = []
    for tier in _COMMANDS:
        why = problem(tier)
        detail = f"{facts[tier]()}; {why}" if why else facts[tier]()
        rows.append({"tier": str(tier), "usable": not why, "detail": detail, "how": _HOW[tier] if why else ""})
    return rows


def problem(tier: Tier) -> str:
    """Why a tier cannot be used here; "" if it can."""
    with _lock:  # whoever comes second waits for the first to have tried
        return _problem(tier)


@cache
def _problem(tier: Tier) -> str:
    if sys.platform != "linux":
        return "it exists on Linux only"
    try:
        return _tried(tier)
    except ToolError as error:
        return error.message
    except (OSError, subprocess.SubprocessError) as error:
        return f"it could not be tried: {error}"


def _tried(tier: Tier) -> str:
    """Run a shell that looks for a secret beside its workspace and writes into it."""
    env = {"PATH": os.defpath}
    with tempfile.TemporaryDirectory(prefix="forge-probe-") as folder:
        secret, workspace = Path(folder, "secret"), Path(folder, "workspace")
        secret.touch()
        workspace.mkdir()
        argv = confined(["/bin/sh", "-c", _PROBE, "sh", str(secret)], Confinement(workspace=workspace), tier, env)
        ended = subprocess.run(
            argv,
            cwd=workspace,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            start_new_session=True,
            check=False,
        )
        with contextlib.suppress(OSError):
            Path(landlock.temporary(os.path.realpath(workspace))).rmdir()
        if ended.stdout == b"confined\n" and ended.returncode == 0 and (workspace / "here").exists():
            return ""
    said = (ended.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    return f"tried, and it does not work here: {said[:300]}{_hint(said)}"


def _hint(said: str) -> str:
    if "namespace" in said or "uid map" in said or "Permission denied" in said or "not permitted" in said:
        return (
            " (user namespaces are forbidden here: by a container, or by kernel.apparmor_restrict_unprivileged_userns)"
        )
    return ""


def _name_of(setting: str | bool) -> str:
    if isinstance(setting, bool):  # YAML reads on and off as truth values
        return "required" if setting else "off"
    if setting in SETTINGS:
        return setting
    raise ToolError(f'sandbox: "{setting}" is unknown', ErrorKind.CONFIG, f"Use one of {', '.join(SETTINGS)}.")


def _bubblewrap_facts() -> str:
    try:
        path = bubblewrap.program()
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (ToolError, OSError, subprocess.SubprocessError):
        return "not installed"
    return f"{said.strip()} at {path}"


def _landlock_facts() -> str:
    version = landlock_version() if sys.platform == "linux" else 0
    if not version:
        return "not in this kernel, or switched off"
    gaps = [words for first, words in ((4, "TCP rules"), (6, "signals kept inside")) if version < first]
    return f"version {version} of its interface" + (f", without {' and '.join(gaps)}" if gaps else "")
