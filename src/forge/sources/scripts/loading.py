"""Reads a script: its current content and its header. Nothing is run."""

from __future__ import annotations

import os
from dataclasses import dataclass

from forge.core.errors import ToolError
from forge.core.spec import is_name
from forge.sources.scripts.finding import LANGUAGES, Candidate
from forge.sources.scripts.header import (
    Header,
    HeaderError,
    begins_with_tool,
    header_lines,
    looks_like_header,
    read_header,
)
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.digest import digest_of
from forge.workspace.paths.open import explain_errors, open_file

MOST_BYTES = 4 * 1024 * 1024  # of a script, which is read before every call


_NO_HEADER = "it has no header: its first docstring or comment must have the lines Tool: and Description:"
_NOT_FIRST = (
    "the lines Tool: and Description: are in the wrong place; its first docstring or comment must begin with Tool:"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that looks like a script but is not a tool, and the reason."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Script:
    """A file with a header, as it was read."""

    path: str  # below the root, for people
    location: Location
    digest: str
    name: str
    header: Header

    @property
    def suffix(self) -> str:
        """The suffix of the language; "" for an executable file."""
        suffix = os.path.splitext(self.location.name)[1]
        return suffix if suffix in LANGUAGES else ""


def load(candidate: Candidate, paths: PathValidator) -> Script | Problem | None:
    """Returns the script, or its problem, or None for a file that is not meant to be a script."""
    try:
        location = paths.resolve(candidate.path)
        content = read_script(location)
        return _read_candidate(candidate, location, content)
    except (ToolError, HeaderError) as error:
        return None if candidate.in_root and not isinstance(error, HeaderError) else Problem(candidate.path, str(error))
    except Exception as error:  # the content is foreign: one broken file must not affect the others
        return Problem(candidate.path, f"its header is invalid ({type(error).__name__})")


def read_script(location: Location) -> bytes:
    """Returns the content of a script. Raises `ToolError` if it cannot be read or is too large."""
    with open(open_file(location), "rb") as file, explain_errors(location.shown):
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ToolError(f"it has more than {MOST_BYTES // 1024 // 1024} MiB, the maximum for a script")
    return content


def _read_candidate(candidate: Candidate, location: Location, content: bytes) -> Script | Problem | None:
    suffix = os.path.splitext(candidate.path)[1]
    runs_by_itself = suffix not in LANGUAGES
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        quiet = candidate.in_root or (runs_by_itself and not candidate.is_meant)  # for example, a compiled program
        return None if quiet else Problem(candidate.path, f"it is not UTF-8: byte {error.start} cannot be read")
    lines = header_lines(text, python=suffix == ".py")
    if candidate.in_root and not begins_with_tool(lines):
        return None
    header = read_header(lines)
    if header is None:
        if looks_like_header(text):
            return Problem(candidate.path, _NOT_FIRST)
        return Problem(candidate.path, _NO_HEADER) if candidate.is_meant else None
    if runs_by_itself and not candidate.mark[-1] & 0o111:
        return Problem(candidate.path, "it has a header, but is not executable: chmod +x makes it a tool")
    if runs_by_itself and not text.startswith("#!"):
        return Problem(
            candidate.path, "it has a header, but no first line such as #!/bin/sh that names its interpreter"
        )
    if runs_by_itself and text.partition("\n")[0].endswith("\r"):  # the system would search for a program of that name
        return Problem(candidate.path, "its first line ends with a carriage return; save it with Unix line endings")
    name = header.name or candidate.name
    if not is_name(name) or "__" in name:
        how = "a letter, then up to 63 letters, digits, - or single _"
        return Problem(candidate.path, f"{name[:80]!r} cannot be the name of a tool: {how}")
    return Script(candidate.path, location, digest_of(content), name, header)
