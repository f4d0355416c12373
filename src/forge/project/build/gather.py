"""Collects the project's files that the agent needs: scripts with their neighbours, skills, documents."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forge.core.errors import ToolError
from forge.core.regular_files import open_regular
from forge.project.assemble.egress import project_egress
from forge.project.assemble.sources import SCRIPTS as FOLDER
from forge.project.build.record import DOCUMENTS, SCRIPTS, SKILLS, Build, OutputFile, Problem, StageRefused
from forge.workspace.paths import PathValidator
from forge.workspace.paths.open import explain_errors, open_directory, open_file

MOST_FILES = 5_000
MOST_BYTES = 64 * 1024 * 1024  # bytes of all files together
DEEPEST = 20  # folders within folders

_LEFT = frozenset({"__pycache__", "node_modules"})  # and names that begin with a dot
_HOW = f"Keep in {FOLDER}/ and skills only what the agent needs."


@dataclass(slots=True)
class Documents:
    """The OpenAPI documents, and their changed entries of forge.yaml."""

    files: dict[str, OutputFile] = field(default_factory=dict)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)


def gather_scripts(build: Build) -> dict[str, OutputFile]:
    """Returns the whole folder if it has tools: scripts may import files beside them."""
    origins = [spec.origin.removeprefix("script:") for spec in build.tools.values() if _is_script(spec.origin)]
    paths = PathValidator(build.order.workspace)
    found: dict[str, OutputFile] = {}
    if any(one.startswith(f"{FOLDER}/") for one in origins):
        found = dict(_files_below(paths, FOLDER, f"{SCRIPTS}/{FOLDER}"))
    for one in origins:
        if not one.startswith(f"{FOLDER}/"):
            found[f"{SCRIPTS}/{one}"] = _read_file(paths, one)
    return _check_size(found)


def gather_skills(build: Build) -> dict[str, OutputFile]:
    """Returns the files of the project's skills."""
    found: dict[str, OutputFile] = {}
    for skill in build.skills:
        if skill.folder is not None:
            found |= _files_below(PathValidator(skill.folder.path, environment={}), ".", f"{SKILLS}/{skill.name}")
        else:
            paths = PathValidator(skill.location.path.parent, environment={})
            found[f"{SKILLS}/{skill.name}.md"] = _read_file(paths, skill.location.name)
    return _check_size(found)


def gather_documents(build: Build) -> Documents:
    """Also downloads documents at a URL, so that a run uses what was built. Raises `ToolError`."""
    from forge.sources.openapi.opening import is_url

    documents, problems = Documents(), []
    for name, entry in build.configuration.openapi.items():
        said = build.document["openapi"][name]
        spec = said if isinstance(said, str) else said["spec"]
        if not is_url(entry.spec):
            content, server = _read_document(Path(entry.spec)), ""
        elif entry.server or "${" not in spec:
            content, server = asyncio.run(_download(build, name))
        else:
            problems.append(
                Problem(
                    f"openapi.{name}: the URL of its document contains variables, so its server is unknown",
                    f"Write openapi.{name}.server too.",
                )
            )
            continue
        path = f"{DOCUMENTS}/{name}.{'json' if content.lstrip()[:1] == b'{' else 'yaml'}"
        documents.files[path] = OutputFile(content)
        documents.entries[name] = {"spec": f"../{path}", **({"server": server} if server else {})}
    if problems:
        raise StageRefused(problems)
    return documents


async def _download(build: Build, name: str) -> tuple[bytes, str]:
    """Returns the document and the server of its operations: a copy no longer says from which server it came."""
    from forge.network.egress import Egress
    from forge.network.url import read_url
    from forge.sources.openapi.opening import download, parse_document
    from forge.sources.openapi.servers import Servers

    entry = build.configuration.openapi[name]
    egress = project_egress(build.configuration)
    judged = (egress if egress is not None else Egress.current()).reaching(read_url(entry.spec))
    content, url = await download(entry.spec, judged)
    return content, "" if entry.server else Servers(await parse_document(content, url, url), "", egress).base()


def _read_document(path: Path) -> bytes:
    """Reads the named file, which may be anywhere."""
    from forge.sources.openapi.parsing import LARGEST, unreadable

    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise unreadable(path.name, f"it has more than {LARGEST // 1024 // 1024} MiB", "Make it smaller.")
    return content


def _files_below(paths: PathValidator, folder: str, to: str, depth: int = 0) -> Iterator[tuple[str, OutputFile]]:
    """Yields every file with its path in the output. Links are followed as long as they stay inside."""
    if depth > DEEPEST:
        raise StageRefused(
            [
                Problem(
                    f"{folder} is more than {DEEPEST} folders deep",
                    "Check for a symbolic link that points to its own parent.",
                )
            ]
        )
    descriptor = open_directory(paths.resolve(folder, blank=True))
    try:
        names = sorted(name for name in os.listdir(descriptor) if not name.startswith(".") and name not in _LEFT)
        kinds = {name: _file_mode(descriptor, name) for name in names}
    finally:
        os.close(descriptor)
    for name, kind in kinds.items():
        inner = name if folder == "." else f"{folder}/{name}"
        if stat.S_ISDIR(kind):
            yield from _files_below(paths, inner, f"{to}/{name}", depth + 1)
        elif not name.endswith(".pyc"):
            yield f"{to}/{name}", _read_file(paths, inner)


def _file_mode(within: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=within).st_mode
    except OSError:  # a broken link: reading it fails later
        return 0


def _read_file(paths: PathValidator, path: str) -> OutputFile:
    """Reads a file. Raises `ToolError` for a path that leads out of the folder, is not a file, or is too large."""
    file_path = paths.resolve(path)
    with open(open_file(file_path), "rb") as file, explain_errors(file_path.shown):
        content = file.read(MOST_BYTES + 1)
        executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
    if len(content) > MOST_BYTES:
        raise ToolError(f"{file_path.shown} has more than {MOST_BYTES // 1024 // 1024} MiB", suggestion=_HOW)
    return OutputFile(content, executable)


def _check_size(found: dict[str, OutputFile]) -> dict[str, OutputFile]:
    size = sum(len(file.content) for file in found.values())
    if len(found) > MOST_FILES or size > MOST_BYTES:
        most = f"{MOST_FILES:,} files or {MOST_BYTES // 1024 // 1024} MiB"
        raise StageRefused([Problem(f"there are {len(found):,} files of {size:,} bytes, more than {most}", _HOW)])
    return found


def _is_script(origin: str) -> bool:
    return origin.startswith("script:")
