"""Runs installers, such as npm and pip, in a folder of their own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.process.running.output import Capture
from forge.process.running.run import run
from forge.sources.mcp.programs.installed import installation_folder
from forge.sources.untrusted import one_line

PATIENCE = 600.0  # seconds that one step of an installation may take
_OUTPUT = Capture(2 * 1024 * 1024, 2 * 1024 * 1024)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yields an empty folder beside the installations, and removes it."""
    folder = installation_folder() / f"new-{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise ToolError(
            f"{folder.parent} cannot be used: {error.strerror}", ErrorKind.CONFIG, "Make it writable for you."
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def run_installer(argv: Sequence[str], folder: Path, **variables: str) -> str:
    """Runs a step of an installer with the person's environment and returns its output. Raises `ToolError`."""
    ended = await run(argv, cwd=folder, env={**os.environ, **variables}, timeout=PATIENCE, capture=_OUTPUT, stdin=b"")
    if ended.timed_out or ended.exit_code != 0:
        how = f"no end after {PATIENCE:g} s" if ended.timed_out else f"exit code {ended.exit_code}"
        said = " ".join(one_line(line, 300) for line in (ended.errors or ended.output).strip().splitlines()[-6:])
        raise ToolError(
            f"the package cannot be installed: {os.path.basename(argv[0])} failed ({how}): {said[-1200:]}",
            ErrorKind.USER,
            "Check the name and the version of the package, and the network.",
        )
    return ended.output


def find_installer(name: str, purpose: str) -> str:
    """Returns the path of an installer. Raises `ToolError` if it is missing."""
    if found := shutil.which(name):
        return found
    raise ToolError(
        f"{purpose} need {name}, which is not installed", ErrorKind.CONFIG, f"Install {name}, or add it to PATH."
    )


def read_json(path: Path) -> Mapping[str, Any]:
    """Reads a file that an installer wrote. Raises `ToolError`."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ToolError(
            f"the package cannot be installed: the installer wrote no usable {path.name}",
            ErrorKind.SYSTEM,
            "Update the installer, and try again.",
        )
    return found
