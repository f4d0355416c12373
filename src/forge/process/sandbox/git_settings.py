"""Reads the person's Git identity for programs in a sandbox, which cannot read it themselves but commit in that
name.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import lru_cache

from forge.process.find_program import find_trusted_program

_WANTED = (
    r"^(user\.(name|email)|init\.defaultbranch|safe\.directory)$"  # nothing here names a program or holds a secret
)
_SECONDS = 5.0


def git_settings(workspace: str) -> bytes:
    """Returns the person's name, address and similar settings as a settings file; b"" if there are none."""
    home, more = os.path.expanduser("~"), os.environ.get("XDG_CONFIG_HOME", "")
    return _read_settings(workspace, home, more) if os.path.isabs(home) else b""


@lru_cache(maxsize=64)
def _read_settings(workspace: str, home: str, more: str) -> bytes:
    git = find_trusted_program("git", [])
    if git is None or _lies_in(git, workspace):
        return b""
    env = {"PATH": os.defpath, "HOME": home, **({"XDG_CONFIG_HOME": more} if more else {})}
    argv = [git, "config", "--global", "--includes", "--null", "--get-regexp", _WANTED]
    try:
        ended = subprocess.run(
            argv,
            cwd=workspace,  # some settings are for certain directories only
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return b"".join(_format_settings(ended.stdout)) if ended.returncode == 0 else b""


def _lies_in(program: str, workspace: str) -> bool:
    return os.path.realpath(program).startswith(f"{workspace.rstrip('/')}/")


def _format_settings(output: bytes) -> Iterator[bytes]:
    for entry in output.split(b"\0"):
        key, _, value = entry.partition(b"\n")
        section, _, name = key.partition(b".")
        if name and value and b"\n" not in value:
            quoted = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            yield b'[%s]\n\t%s = "%s"\n' % (section, name, quoted)
