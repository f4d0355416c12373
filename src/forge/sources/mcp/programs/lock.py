"""The exact packages of a pinned server, and the file beside forge.yaml that records them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.yaml import Unreadable, bounded_text
from forge.workspace.state import replace_file

NAME = "forge.mcp.lock"  # beside forge.yaml
FORMAT = 1
LARGEST = 16 * 1024 * 1024  # bytes


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
        document = json.loads(bounded_text(path, LARGEST))
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
