"""Resolves the packages of a server to exact versions, and installs them into the folder of the user's data."""

from __future__ import annotations

import json
import os
import secrets
import shutil

from forge.core.files import read_regular
from forge.sources.mcp.programs.fetching import FetchedProgram
from forge.sources.mcp.programs.installed import LARGEST_RECORD, installation_folder, is_installed_here, record_path
from forge.sources.mcp.programs.lock import LockedProgram
from forge.sources.mcp.programs.npm import install_npm, resolve_npm
from forge.sources.mcp.programs.pypi import install_pypi, resolve_pypi
from forge.sources.mcp.programs.run_installer import scratch_folder
from forge.workspace.state import replace_file


async def resolve_program(fetched: FetchedProgram) -> LockedProgram:
    """Chooses exact versions of a package and of all that it needs. Raises `ToolError`. Nothing is installed."""
    with scratch_folder() as folder:
        return await (resolve_npm if fetched.registry == "npm" else resolve_pypi)(fetched, folder)


async def install_program(locked: LockedProgram) -> None:
    """Installs exactly the locked packages; does nothing if they are installed. Raises `ToolError`."""
    if is_installed_here(locked.integrity):
        return
    folder = installation_folder() / f"{locked.integrity.removeprefix('sha256:')[:16]}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True, mode=0o700)
    try:
        program, runtime = await (install_npm if locked.registry == "npm" else install_pypi)(locked, folder)
        record = {"integrity": locked.integrity, "folder": folder.name, "program": program, "runtime": runtime}
        replace_file(record_path(locked.integrity), json.dumps(record))  # the last step: it is complete now
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def remove_program(integrity: str) -> bool:
    """Removes an installation. Returns True if there was one."""
    path = record_path(integrity)
    try:
        folder = str(json.loads(read_regular(path, LARGEST_RECORD))["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    path.unlink(missing_ok=True)
    if os.path.basename(folder) == folder and folder not in ("", ".", ".."):
        shutil.rmtree(installation_folder() / folder, ignore_errors=True)
    return True
