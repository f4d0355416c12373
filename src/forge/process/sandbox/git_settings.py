"""Who the person is to Git: programs in a sandbox cannot see their settings, and commit in their name all the same."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import lru_cache

from forge.process.find_program import trusted_program

_WANTED = (
    r"^(user\.(name|email)|init\.defaultbranch|safe\.directory)$"  # nothing here names a program or holds a secret
)
_SECONDS = 5.0


def git_settings(workspace: str) -> bytes:
    """The person's name, address and the like, as a file of settings; b"" where there are none."""
    home, more = os.path.expanduser("~"), os.environ.get("XDG_CONFIG_HOME", "")
    return _read(workspace, home, more) if os.path.isabs(home) else b""


@lru_cache(maxsize=64)
def _read(workspace: str, home: str, more: str) -> bytes:
    git = trusted_program("git", [])
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
    return b"".join(_written(ended.stdout)) if ended.returncode == 0 else b""


def _lies_in(program: str, workspace: str) -> bool:
    return os.path.realpath(program).startswith(f"{workspace.rstrip('/')}/")


def _written(told: bytes) -> Iterator[bytes]:
    for entry in told.split(b"\0"):
        key, _, value = entry.partition(b"\n")
        section, _, name = key.partition(b".")
        if name and value and b"\n" not in value:
            quoted = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            yield b'[%s]\n\t%s = "%s"\n' % (section, name, quoted)
