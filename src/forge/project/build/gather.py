"""What the agent needs of the project's files: its scripts with what lies beside them, its skills, its documents."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forge.project.build.record import DOCUMENTS, SCRIPTS, SKILLS, Build, File, Problem, Refused
from forge.project.assemble.egress import project_egress
from forge.project.assemble.sources import SCRIPTS as FOLDER
from forge.core.errors import ToolError
from forge.workspace.paths.open import explain_errors, open_directory, open_file
from forge.workspace.paths import PathValidator

MOST_FILES = 5_000
MOST_BYTES = 64 * 1024 * 1024  # of all of them
DEEPEST = 20  # folders within folders

_LEFT = frozenset({"__pycache__", "node_modules"})  # and whatever begins with a dot
_HOW = f"Keep in {FOLDER}/ and skills only what the agent needs."


@dataclass(slots=True)
class Documents:
    """The OpenAPI documents, and what their entries in forge.yaml become."""

    files: dict[str, File] = field(default_factory=dict)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)


def gather_scripts(build: Build) -> dict[str, File]:
    """The whole folder, where there are tools in it: they may import what lies beside them."""
    origins = [spec.origin.removeprefix("script:") for spec in build.tools.values() if _is_script(spec.origin)]
    paths = PathValidator(build.order.workspace)
    found: dict[str, File] = {}
    if any(one.startswith(f"{FOLDER}/") for one in origins):
        found = dict(_below(paths, FOLDER, f"{SCRIPTS}/{FOLDER}"))
    for one in origins:
        if not one.startswith(f"{FOLDER}/"):
            found[f"{SCRIPTS}/{one}"] = _read(paths, one)
    return _bounded(found)


def gather_skills(build: Build) -> dict[str, File]:
    found: dict[str, File] = {}
    for skill in build.skills:
        if skill.folder is not None:
            found |= _below(PathValidator(skill.folder.path, environment={}), ".", f"{SKILLS}/{skill.name}")
        else:
            paths = PathValidator(skill.location.path.parent, environment={})
            found[f"{SKILLS}/{skill.name}.md"] = _read(paths, skill.location.name)
    return _bounded(found)


def gather_documents(build: Build) -> Documents:
    """Also those at a URL, so that a run goes by what was built and not by what is there then. Raises `ToolError`."""
    from forge.sources.openapi.opening import is_url

    made, problems = Documents(), []
    for name, entry in build.configuration.openapi.items():
        said = build.document["openapi"][name]
        written = said if isinstance(said, str) else said["spec"]
        if not is_url(entry.spec):
            content, server = _document(Path(entry.spec)), ""
        elif entry.server or "${" not in written:
            content, server = asyncio.run(_downloaded(build, name))
        else:
            problems.append(
                Problem(
                    f"openapi.{name}: the URL of its document holds variables, so that it is not known where it will"
                    " be asked",
                    f"Write openapi.{name}.server too.",
                )
            )
            continue
        path = f"{DOCUMENTS}/{name}.{'json' if content.lstrip()[:1] == b'{' else 'yaml'}"
        made.files[path] = File(content)
        made.entries[name] = {"spec": f"../{path}", **({"server": server} if server else {})}
    if problems:
        raise Refused(problems)
    return made


async def _downloaded(build: Build, name: str) -> tuple[bytes, str]:
    """The document, and where its operations are: a copy of it no longer says from which server it came."""
    from forge.network.egress import Egress
    from forge.network.url import read_url
    from forge.sources.openapi.opening import download, parsed
    from forge.sources.openapi.servers import Servers

    entry = build.configuration.openapi[name]
    egress = project_egress(build.configuration)
    judged = (egress if egress is not None else Egress.current()).reaching(read_url(entry.spec))
    content, url = await download(entry.spec, judged)
    return content, "" if entry.server else Servers(await parsed(content, url, url), "", egress).base()


def _document(path: Path) -> bytes:
    """The file that was named: a person may keep it wherever they like."""
    from forge.sources.openapi.parsing import LARGEST, unreadable

    with open(path, "rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise unreadable(path.name, f"it has more than {LARGEST // 1024 // 1024} MiB", "Make it smaller.")
    return content


def _below(paths: PathValidator, folder: str, to: str, depth: int = 0) -> Iterator[tuple[str, File]]:
    """Every file, by what it will be called. Links are followed as far as they stay inside."""
    if depth > DEEPEST:
        raise Refused([Problem(f"{folder} lies more than {DEEPEST} folders deep", "Is a link leading in circles?")])
    descriptor = open_directory(paths.resolve(folder, blank=True))
    try:
        names = sorted(name for name in os.listdir(descriptor) if not name.startswith(".") and name not in _LEFT)
        kinds = {name: _kind(descriptor, name) for name in names}
    finally:
        os.close(descriptor)
    for name, kind in kinds.items():
        inner = name if folder == "." else f"{folder}/{name}"
        if stat.S_ISDIR(kind):
            yield from _below(paths, inner, f"{to}/{name}", depth + 1)
        elif not name.endswith(".pyc"):
            yield f"{to}/{name}", _read(paths, inner)


def _kind(within: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=within).st_mode
    except OSError:  # a link that leads nowhere: reading it will say so
        return 0


def _read(paths: PathValidator, path: str) -> File:
    """Raises `ToolError` for what leads out, is no file, or is too large."""
    place = paths.resolve(path)
    with open(open_file(place), "rb") as file, explain_errors(place.shown):
        content = file.read(MOST_BYTES + 1)
        executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
    if len(content) > MOST_BYTES:
        raise ToolError(f"{place.shown} has more than {MOST_BYTES // 1024 // 1024} MiB", suggestion=_HOW)
    return File(content, executable)


def _bounded(found: dict[str, File]) -> dict[str, File]:
    size = sum(len(file.content) for file in found.values())
    if len(found) > MOST_FILES or size > MOST_BYTES:
        most = f"{MOST_FILES:,} files or {MOST_BYTES // 1024 // 1024} MiB"
        raise Refused([Problem(f"there are {len(found):,} files of {size:,} bytes, more than {most}", _HOW)])
    return found


def _is_script(origin: str) -> bool:
    return origin.startswith("script:")
