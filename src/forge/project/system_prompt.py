"""The system prompt of a project's agent: Forge's instructions, the project's, and the text of AGENTS.md and CLAUDE.md.

The files are those from the workspace's root down to the directory in which the run starts. In one directory, AGENTS.md
wins. The text comes with a clone, so it counts only if its hash is the one that a person accepted with `forge trust`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from forge.core.yaml import Unreadable, bounded_text
from forge.project.trust import accepted_instructions
from forge.project.trust_summary import TrustItem

INSTRUCTIONS = """\
You are an agent that works for a person at their command line. Your tools work in the directory {workspace}.
If you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and
check that it worked. A failed call says why: try another way, and do not repeat a refused call.
When you are done, answer briefly, in plain text: what you found or did, and what is left to do."""

NAMES = ("AGENTS.md", "CLAUDE.md")
MOST_BYTES = 32 * 1024  # of all files together, in the instructions
MOST_DIRECTORIES = 32


def system_prompt(workspace: Path, prompt: str, files: str, skills: str) -> str:
    """Returns the instructions of a project's agent.

    `prompt` is the configured one, `files` the text of the instruction files, `skills` the list of skills.
    """
    return "\n\n".join(filter(None, [INSTRUCTIONS.format(workspace=workspace), prompt, files, skills]))


class InstructionFile(NamedTuple):
    """A file with instructions; `changed`: another text was trusted; `unusable`: `problem` says why."""

    name: str  # relative to the workspace's root
    status: Literal["trusted", "new", "changed", "unusable"]
    text: str = ""
    sha256: str = ""
    problem: str = ""

    @property
    def size(self) -> int:
        return len(self.text.encode())


class ProjectInstructions(NamedTuple):
    """The text for the model, and notes for the person about files that are left out or cut."""

    text: str
    notes: tuple[str, ...]


def find_instruction_files(root: Path, environment: Mapping[str, str] = os.environ) -> list[InstructionFile]:
    """Returns the files from the root down to the current directory, the root's first. Never raises."""
    known = accepted_instructions(root, environment)
    found: list[InstructionFile] = []
    for directory in _directories(root):
        path = next((directory / name for name in NAMES if os.path.lexists(directory / name)), None)
        if path is not None:
            found.append(_read(root, path, known))
    return found


def read_instructions(root: Path) -> ProjectInstructions:
    """Returns the trusted text of the files that apply here. If it is too long, the files near the root are cut."""
    files = find_instruction_files(root)
    parts: list[str] = []
    notes = [_explain(file) for file in files if file.status != "trusted"]
    left = MOST_BYTES
    for file in reversed([one for one in files if one.status == "trusted" and one.text.strip()]):
        shown = file.text.strip().encode()[:left].decode(errors="ignore")
        left -= len(shown.encode())
        cut = ""
        if shown != file.text.strip():
            cut = f"{file.name} is cut to {len(shown.encode()):,} of {file.size:,} bytes"
            notes.append(f"{cut}: instruction files may have {MOST_BYTES // 1024} KiB together")
            cut = f"\n[{cut}. The file has the rest.]"
        parts.append(f"Instructions of this project, from its file {file.name}:\n\n{shown}{cut}")
    return ProjectInstructions("\n\n".join(reversed(parts)), tuple(notes))


def describe_files(files: Iterable[InstructionFile], *, used: bool) -> dict[str, str]:
    """Returns the state of each file by its name, for `forge config show` and `forge doctor`."""
    said = {"trusted": "used" if used else "not used", "new": "not trusted", "changed": "changed since you trusted it"}
    return {file.name: file.problem or f"{file.size:,} bytes, {said[file.status]}" for file in files}


def list_items(files: Iterable[InstructionFile]) -> list[TrustItem]:
    """Returns the files that trust would put into the instructions, for the person who decides about them."""
    return [
        TrustItem("instructs the model", f"{file.name}: {file.text}")
        for file in files
        if file.status in ("new", "changed")
    ]


def _directories(root: Path) -> list[Path]:
    """Returns the root and the directories between it and the current one, if that one is below it."""
    try:
        below = Path(os.path.realpath(os.curdir)).relative_to(root).parts
    except (OSError, ValueError):  # elsewhere, or gone
        below = ()
    return [root, *(root.joinpath(*below[: depth + 1]) for depth in range(min(len(below), MOST_DIRECTORIES)))]


def _read(root: Path, path: Path, known: Mapping[str, str]) -> InstructionFile:
    name = path.relative_to(root).as_posix()
    try:
        if not Path(os.path.realpath(path)).is_relative_to(root):
            return InstructionFile(name, "unusable", problem="it is a link to a file outside the workspace")
        text = bounded_text(path)
    except Unreadable as error:
        return InstructionFile(name, "unusable", problem=error.problem)
    except OSError as error:
        return InstructionFile(name, "unusable", problem=str(error.strerror))
    digest = sha256(text.encode()).hexdigest()
    before = known.get(name)
    status: Literal["trusted", "new", "changed"] = (
        "trusted" if before == digest else "new" if before is None else "changed"
    )
    return InstructionFile(name, status, text, digest)


def _explain(file: InstructionFile) -> str:
    if file.status == "unusable":
        return f"{file.name} cannot be used ({file.problem}), so Forge ignores it"
    message = "is not trusted yet" if file.status == "new" else "has changed since you trusted it"
    return f"{file.name} {message}, so Forge ignores it; run `forge trust` to review and trust it"
