"""Pinned servers: their exact packages in the file beside forge.yaml, and their installation on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.core.yaml import Unreadable, bounded_text
from forge.mcp.programs.fetching import is_fetching, read_command
from forge.workspace.state import data_file, replace_file

FOLDER = "mcp-programs"  # below $XDG_DATA_HOME/forge
LARGEST_RECORD = 1024 * 1024  # bytes
INTEGRITY = r"sha256:[0-9a-f]{64}"


class Installed(NamedTuple):
    """An installed program: the command that starts it, and the folders that it must be able to read."""

    command: tuple[str, ...]
    folders: tuple[Path, ...]


def installation_folder() -> Path:
    """Returns the folder of all installations. Raises `ToolError` if there is no home directory."""
    folder = data_file(FOLDER)
    if folder is None:
        raise ToolError(
            "servers cannot be installed: there is no home directory", ErrorKind.CONFIG, "Set HOME or XDG_DATA_HOME."
        )
    return folder


def record_path(integrity: str) -> Path:
    """Returns the file that describes an installation."""
    if not re.fullmatch(INTEGRITY, integrity):
        raise ToolError(
            f"integrity: {integrity[:100]!r} is not a digest of an installation",
            ErrorKind.CONFIG,
            "`forge mcp add` writes it: sha256: and 64 hexadecimal digits.",
        )
    return installation_folder() / f"{integrity.removeprefix('sha256:')}.json"


def is_installed_here(integrity: str) -> bool:
    """Returns whether this machine has the installation."""
    return _read_record(integrity) is not None


def find_installed(
    name: str, integrity: str, command: Sequence[str], environment: Mapping[str, str] = os.environ
) -> Installed:
    """Returns the program that a pinned command stands for. Raises `ToolError` if it is not installed here."""
    record = _read_record(integrity)
    if record is None:
        raise ToolError(
            f"the server {name} is pinned, and not installed on this machine",
            ErrorKind.CONFIG,
            f"Install it: forge mcp install {name}",
        )
    arguments = read_command(command).arguments if is_fetching(command) else tuple(command[1:])
    folder = installation_folder() / record["folder"]
    program = tuple(str(folder / one) for one in record["program"])
    if record["runtime"]:
        program = (_find_runtime(name, record["runtime"], environment), *program)
    return Installed((*program, *arguments), (folder,))


def _find_runtime(name: str, runtime: str, environment: Mapping[str, str]) -> str:
    if found := shutil.which(runtime, path=environment.get("PATH", os.defpath)):
        return found
    raise ToolError(
        f"the server {name} cannot be started: {runtime} is not installed",
        ErrorKind.CONFIG,
        f"Install {runtime}, or add its folder to PATH.",
    )


def _read_record(integrity: str) -> dict[str, Any] | None:
    """Reads the record of a complete installation; None if there is none."""
    try:
        record = json.loads(read_regular(record_path(integrity), LARGEST_RECORD))
        folder = installation_folder() / record["folder"]
        is_complete = record["integrity"] == integrity and folder.is_dir() and folder.parent == installation_folder()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if is_complete and isinstance(record.get("program"), list) else None


# --- The exact packages of a pinned server, and the file beside forge.yaml that records them.


NAME = "forge.mcp.lock"  # beside forge.yaml
FORMAT = 1
LARGEST_LOCK = 16 * 1024 * 1024  # bytes


class LockedProgram(NamedTuple):
    """A package with a program, and every package that it needs, each with its version and its hash.

    `packages` is what the installer reads: for npm the packages of its lock file, for PyPI lines of requirements.
    """

    registry: str
    package: str
    version: str
    program: str  # "": the package's own
    packages: Any

    @property
    def integrity(self) -> str:
        """The digest of all of it, which forge.yaml names."""
        text = json.dumps(self._asdict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    @property
    def size(self) -> int:
        """The number of packages."""
        return len(self.packages)


def read_lock(folder: Path) -> dict[str, LockedProgram]:
    """Reads the locked programs of the servers of a project. Raises `ToolError` for a damaged file."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        document = json.loads(bounded_text(path, LARGEST_LOCK))
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
        return {name: _read_program(entry) for name, entry in document["servers"].items()}
    except (Unreadable, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(
            f"{path} cannot be read: {str(error)[:300]}",
            ErrorKind.CONFIG,
            "Restore the file, or remove it and add its servers again with `forge mcp add NAME --replace`.",
        ) from None


def write_lock(folder: Path, programs: Mapping[str, LockedProgram]) -> None:
    """Writes the locked programs of all servers; without any, the file is removed."""
    path = folder / NAME
    if not programs:
        path.unlink(missing_ok=True)
        return
    servers = {name: programs[name]._asdict() for name in sorted(programs)}
    text = json.dumps({"format": FORMAT, "servers": servers}, indent=1, sort_keys=True, ensure_ascii=False)
    try:
        replace_file(path, f"{text}\n", 0o644)
    except OSError as error:
        raise ToolError(
            f"{path} cannot be written: {error.strerror}", ErrorKind.CONFIG, "Make the directory writable."
        ) from None


def _read_program(entry: Any) -> LockedProgram:
    program = LockedProgram(**entry)
    texts = (program.registry, program.package, program.version, program.program)
    if program.registry not in ("npm", "pypi") or not all(isinstance(one, str) for one in texts):
        raise ValueError("an entry is not one of `forge mcp add`")
    return program
