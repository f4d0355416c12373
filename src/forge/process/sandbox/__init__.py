"""Chooses a sandbox for programs and builds the confined command line."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from forge.core.context import ProgramLimits
from forge.core.errors import ErrorKind, ToolError
from forge.process.sandbox import bubblewrap, landlock
from forge.process.sandbox.landlock_program import landlock_version
from forge.process.sandbox.layout import (
    CommandLine,
    Confinement,
    cgroup_limits,
    describe_limits,
    explain_reached_limits,
    find_hidden,
    make_private_folder,
    remove_folder,
)

__all__ = ["Confinement", "SandboxedCommand", "Tier", "choose_tier", "confine_command", "report_tiers"]

SETTINGS = ("auto", "required", "bubblewrap", "landlock", "off")

_PROBE_SECONDS = 20.0
# Opening a setting of the kernel for writing changes nothing.
_PROBE = """
for path in /proc/sys/kernel/core_pattern /proc/sys/kernel/panic /proc/sys/fs/protected_symlinks \\
    /proc/sysrq-trigger /proc/irq/default_smp_affinity /sys/kernel/mm/ksm/run; do
    if (: >>"$path") 2>/dev/null; then echo "programs could write $path" >&2; exit 1; fi
done
if (: <"$1") 2>/dev/null; then echo "programs could read $1" >&2; exit 1; fi
echo >here && echo confined
"""


class Tier(StrEnum):
    """The sandboxes, the strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


_COMMANDS: dict[Tier, Callable[..., CommandLine]] = {
    Tier.BUBBLEWRAP: bubblewrap.build_command,
    Tier.LANDLOCK: landlock.build_command,
}
_WHY_NOT_RUN: dict[Tier, Callable[[Sequence[str], int, bytes, str], tuple[int, str] | None]] = {
    Tier.BUBBLEWRAP: bubblewrap.explain_failed_start,
    Tier.LANDLOCK: landlock.explain_failed_start,
}
_LIMITS_FILES: dict[Tier, Callable[[], bool]] = {
    Tier.BUBBLEWRAP: bubblewrap.limits_temporary_files,
    Tier.LANDLOCK: landlock.limits_temporary_files,
}
_LONGEST_STATUS = 4 * 1024 * 1024  # bytes: a shell may repeat the whole command
_HOW = {Tier.BUBBLEWRAP: bubblewrap.HOW, Tier.LANDLOCK: landlock.HOW}
_HIDDEN = (
    "The sandbox hides it: the person can add its directory to `roots` in forge.yaml (of `workspace`, or of the MCP"
    " server)."
)
_lock = threading.Lock()


def choose_tier(setting: str | bool = "auto") -> Tier:
    """Returns the tier for a setting. Each tier is tried once a process, by running a program in it.

    `auto` takes the best one available, which may be none; the other settings fail if theirs is not available.
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
        f"sandbox: {wanted} is not available: " + "; ".join(f"{tier}: {problem(tier)}" for tier in tiers),
        ErrorKind.CONFIG,
        f"{_advise(tiers[0])} Or set sandbox: off; programs then have all your permissions.",
    )


def confine_command(argv: Sequence[str], confinement: Confinement, tier: Tier, env: Mapping[str, str]) -> list[str]:
    """Returns the confined command line, to be started with `env` in a directory below one of the roots."""
    return list(argv) if tier is Tier.NONE else _COMMANDS[tier](argv, confinement, env).in_shell()


class SandboxedCommand:
    """A confined command line, with the state to read and clean up when it has ended."""

    def __init__(
        self,
        argv: Sequence[str],
        confinement: Confinement,
        tier: Tier,
        env: Mapping[str, str],
        cgroups: tuple[str, Collection[str]] = ("", ()),
    ) -> None:
        """`cgroups`: the directory for its cgroup, and the controllers there."""
        self.tier = tier
        self._controllers = cgroups[1]
        self._wanted = list(argv)
        self._confinement, self._env = confinement, env
        self._folder = make_private_folder() if tier is Tier.LANDLOCK else ""
        self._status = os.memfd_create("forge-status", os.MFD_CLOEXEC) if tier is not Tier.NONE else -1
        self.command = CommandLine(list(argv))
        if tier is Tier.NONE:
            return
        try:
            status = f"/proc/{os.getpid()}/fd/{self._status}"
            values = cgroup_limits(confinement.limits, self._controllers)
            if "pids.max" in values:  # otherwise the other limit is reached first
                confinement = replace(confinement, limits=confinement.limits._replace(processes=0))
            command = _COMMANDS[tier](argv, confinement, env, folder=self._folder, status=status)
            self.command = replace(command, cgroup=(cgroups[0], tuple(values.items())) if values else None)
        except BaseException:
            self.close()
            raise

    def problem(self, exit_code: int | None, said: str) -> ToolError | None:
        """Returns why the program never ran, though the sandbox ended with an exit code. `said`: all output.

        Messages of the sandbox itself are not output of the program.
        """
        if self._status < 0 or exit_code is None:
            return None
        found = _WHY_NOT_RUN[self.tier](self._wanted, exit_code, self._read_status(), said)
        if found is None:
            return None
        number, words = found
        if number:
            return ToolError(
                f'"{self._wanted[0][:200]}" cannot be started in the sandbox ({self.tier}): {os.strerror(number)}',
                ErrorKind.NOT_FOUND if number == errno.ENOENT else ErrorKind.USER,
                _HIDDEN
                if self._is_program_hidden()
                else "Use an executable program from the system, a folder on PATH or the workspace.",
            )
        return ToolError(
            f"the sandbox ({self.tier}) could not be set up, so nothing was run: {words[:500]}",
            ErrorKind.SYSTEM,
            "Try again; if it happens again, the person can find the cause with `forge doctor`.",
        )

    def _is_program_hidden(self) -> bool:
        """Returns whether the program exists, and the sandbox hides it."""
        program, workspace = self._wanted[0], self._confinement.workspace
        is_there = "/" in program and os.path.exists(os.path.join(workspace, program))
        return is_there and bool(find_hidden([program], self._confinement, self._env, workspace))

    @property
    def limits(self) -> dict[str, str]:
        """Describes the limits of the program; empty without a sandbox."""
        return (
            {}
            if self.tier is Tier.NONE
            else describe_tier_limits(self.tier, self._confinement.limits, self._controllers)
        )

    def explain_reached_limits(self, said: str, *, failed: bool, counted: Mapping[str, int]) -> list[str]:
        """Explains the limits that the program reached, as its cgroup `counted`, or seems to have reached, by the end
        of its output.
        """
        return explain_reached_limits(self._confinement.limits, self.limits, said, failed=failed, counted=counted)

    def signal(self, exit_code: int | None) -> int:
        """Returns the number of the signal that an exit code stands for; 0 if none."""
        if self.tier is not Tier.BUBBLEWRAP or exit_code is None or self._status < 0:
            return 0
        return exit_code - 128 if bubblewrap.is_signal_exit(exit_code, self._read_status()) else 0

    def _read_status(self) -> bytes:
        return os.pread(self._status, _LONGEST_STATUS, 0)

    def close(self, *, still_used: bool = False) -> None:
        """Releases its resources. `still_used`: a process it started lives on and uses its home."""
        if self._status >= 0:
            os.close(self._status)
            self._status = -1
        if self._folder and not still_used:
            remove_folder(self._folder)


def describe_tier_limits(tier: Tier, limits: ProgramLimits, controllers: Collection[str]) -> dict[str, str]:
    """Describes the limits of programs in a tier on this machine. `controllers`: of the cgroup of each program."""
    return describe_limits(limits, str(tier), temporary=_LIMITS_FILES[tier](), controllers=controllers)


def report_tiers() -> list[dict[str, Any]]:
    """Describes each tier: usable or not, why not, and how to get it."""
    facts = {Tier.BUBBLEWRAP: _bubblewrap_facts, Tier.LANDLOCK: _landlock_facts}
    rows = []
    for tier in _COMMANDS:
        why = problem(tier)
        detail = f"{facts[tier]()}; {why}" if why else facts[tier]()
        rows.append({"tier": str(tier), "usable": not why, "detail": detail, "how": _advise(tier) if why else ""})
    return rows


def problem(tier: Tier) -> str:
    """Returns why a tier cannot be used here; "" if it can."""
    with _lock:  # the second caller waits for the first try
        return _problem(tier)


def is_possible() -> bool:
    """Returns whether this system can have a sandbox at all."""
    return sys.platform == "linux"


def _advise(tier: Tier) -> str:
    return _HOW[tier] if is_possible() else "Sandboxes exist on Linux only: docs/install.md says what this means."


@cache
def _problem(tier: Tier) -> str:
    if not is_possible():
        return "it exists on Linux only"
    try:
        return _try_tier(tier)
    except ToolError as error:
        return error.message
    except (OSError, subprocess.SubprocessError) as error:
        return f"it could not be tried: {error}"


def _try_tier(tier: Tier) -> str:
    """Runs a shell that looks for a secret beside its workspace and writes into the workspace."""
    env = {"PATH": os.defpath}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="forge-probe-"))
        secret, workspace = Path(folder, "secret"), Path(folder, "workspace")
        secret.touch()
        workspace.mkdir()
        boxed = SandboxedCommand(
            ["/bin/sh", "-c", _PROBE, "sh", str(secret)], Confinement(workspace=workspace), tier, env
        )
        stack.callback(boxed.close)
        ended = subprocess.run(
            boxed.command.in_shell(),
            cwd=workspace,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            start_new_session=True,
            check=False,
        )
        with contextlib.suppress(OSError):
            Path(landlock.temporary_folder(os.path.realpath(workspace))).rmdir()
        if ended.stdout == b"confined\n" and ended.returncode == 0 and (workspace / "here").exists():
            return ""
    said = (ended.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    return f"it does not work here: {said[:300]}{_hint(said)}"


def _hint(said: str) -> str:
    if "namespace" in said or "uid map" in said or "Permission denied" in said or "not permitted" in said:
        return (
            " (user namespaces are forbidden here: by a container, or by kernel.apparmor_restrict_unprivileged_userns)"
        )
    return ""


def _name_of(setting: str | bool) -> str:
    if isinstance(setting, bool):  # YAML reads on and off as booleans
        return "required" if setting else "off"
    if setting in SETTINGS:
        return setting
    raise ToolError(f'sandbox: "{setting}" is unknown', ErrorKind.CONFIG, f"Use one of {', '.join(SETTINGS)}.")


def _bubblewrap_facts() -> str:
    try:
        path = bubblewrap.find_bubblewrap()
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (ToolError, OSError, subprocess.SubprocessError):
        return "not installed"
    return f"{said.strip()} at {path}"


def _landlock_facts() -> str:
    version = landlock_version() if sys.platform == "linux" else 0
    if not version:
        return "not supported by this kernel, or switched off"
    gaps = [words for first, words in ((4, "TCP rules"), (6, "signals kept inside")) if version < first]
    return f"interface version {version}" + (f", without {' and '.join(gaps)}" if gaps else "")
