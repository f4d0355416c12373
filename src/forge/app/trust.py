"""Which projects' configurations a person accepted: a cloned one decides nothing before that.

What was accepted is kept outside the projects, with its text, so that a change can be shown. A configuration that
changed is untrusted again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from forge.app.layers import data_file, is_there
from forge.app.read_yaml import read_text
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.whole_file import replace_file

NAME = "forge.yaml"
STORE = "trust.json"
MOST = 200  # projects that are remembered; the oldest are asked about again
LARGEST = 64 * 1024 * 1024  # bytes of the store


class Found(str):
    """The path of a `forge.yaml` that was found, not named: each time it is read, it counts only if it is trusted."""

    __slots__ = ()


class Standing(NamedTuple):
    """How a workspace stands.

    `none`: it has no `forge.yaml`. Only `trusted` ones are used.
    """

    status: Literal["none", "trusted", "new", "changed"]
    path: Path  # of forge.yaml, there or not
    text: str = ""  # as it is now
    before: str | None = None  # as it was accepted; None where it never was, or where there was no file
    problem: str = ""  # why nothing can be trusted here


def standing(workspace: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> Standing:
    """Never raises."""
    root = _real(workspace)
    path = root / NAME
    known, problem = _known(root, environment)
    entry = known.get(str(root))
    before = entry.get("text") if entry else None
    if not is_there(path):
        return Standing("none", path, before=before, problem=problem)
    try:
        text = read_text(str(path))
    except ToolError as error:
        return Standing("new", path, problem=error.message)
    if before is None:
        return Standing("new", path, text, problem=problem)
    return Standing("trusted" if before == text else "changed", path, text, before, problem)


def is_trusted(workspace: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a person accepted this workspace as it is, its `forge.yaml` or that it has none.

    For whatever else a cloned project brings, such as the scripts in `tools/`.
    """
    root = _real(workspace)
    entry = _known(root, environment)[0].get(str(root))
    if entry is None:
        return False
    now = standing(root, environment)
    return now.status == "trusted" or (now.status == "none" and entry.get("text") is None)


def found_in(workspace: str | os.PathLike[str]) -> Found | None:
    """The workspace's configuration, if it is trusted."""
    now = standing(workspace)
    return Found(str(now.path)) if now.status == "trusted" else None


def trusted_text(found: Found) -> str:
    """The very text that was accepted. Raises `ToolError` where the file is another by now."""
    now = standing(Path(found).parent)
    if now.status == "trusted":
        return now.text
    raise ToolError(f"{found} {why_not(now)}", ErrorKind.CONFIG, WAY)


WAY = "`forge trust` shows what it would turn on, and accepts it."


def why_not(now: Standing) -> str:
    """The end of a sentence about a configuration that is not used."""
    if now.problem:
        return f"cannot be trusted: {now.problem}"
    if now.status == "changed":
        return "has changed since it was accepted"
    return "is gone" if now.status == "none" else "is not accepted yet"


def accept(workspace: str | os.PathLike[str], text: str | None = None) -> Path:
    """Remember a workspace's configuration as it is, or as it was shown (`text`). Returns where.

    Raises `ToolError` where nothing can be remembered.
    """
    root = _real(workspace)
    if text is None and is_there(root / NAME):
        text = read_text(str(root / NAME))
    from hashlib import sha256  # only here

    hashed = sha256(text.encode()).hexdigest() if text is not None else None
    with _changing(root) as (store, known):
        known.pop(str(root), None)
        known[str(root)] = {"sha256": hashed, "text": text, "accepted": int(time.time())}
        for oldest in [*known][:-MOST]:
            del known[oldest]
        return store


def forget(workspace: str | os.PathLike[str]) -> bool:
    """Whether there was something to forget. Raises `ToolError`."""
    root = _real(workspace)
    with _changing(root) as (_, known):
        return known.pop(str(root), None) is not None


def accepted(environment: Mapping[str, str] = os.environ) -> dict[str, dict[str, Any]]:
    """Every project that was accepted, by its directory."""
    return _known(None, environment)[0]


def _known(root: Path | None, environment: Mapping[str, str]) -> tuple[dict[str, dict[str, Any]], str]:
    """What was accepted, and why that cannot be known or changed."""
    store = data_file(STORE, environment)
    if store is None:
        return {}, "there is no home directory to remember it in; set HOME or XDG_DATA_HOME"
    if root is not None and _real(store).is_relative_to(root):
        return {}, f"{store} lies in the workspace, where tools could change it; set XDG_DATA_HOME"
    try:
        return _read(store), ""
    except FileNotFoundError:
        return {}, ""
    except NotADirectoryError:
        return {}, f"{store.parent} is not a directory"
    except OSError as error:
        return {}, f"{store}: {error.strerror}"
    except ValueError as error:
        return {}, f"{store} cannot be used: {error}"


def _real(path: str | os.PathLike[str]) -> Path:
    """Through links, as far as they can be followed."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):  # a NUL byte, or the current directory is gone
        return Path(path)


def _read(store: Path) -> dict[str, dict[str, Any]]:
    file = os.open(store, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as stream:
        status = os.fstat(file)
        if (hasattr(os, "getuid") and status.st_uid not in (0, os.getuid())) or status.st_mode & 0o022:
            raise ValueError("others may change it; remove it, or take their rights with chmod go-w")
        content = stream.read(LARGEST + 1)
    try:
        document = json.loads(content)
        projects = document["projects"]
        known = {str(name): entry for name, entry in projects.items() if isinstance(entry, dict)}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("it is broken; remove it") from None
    return {name: one for name, one in known.items() if isinstance(one.get("text"), str | None)}


@contextlib.contextmanager
def _changing(root: Path) -> Iterator[tuple[Path, dict[str, dict[str, Any]]]]:
    """What is known, written back in one piece at the end; one process at a time."""
    known, problem = _known(root, os.environ)
    store = data_file(STORE)
    if store is None or problem:
        raise ToolError(f"cannot remember what is trusted: {problem}", ErrorKind.CONFIG, "Mend that, or use --config.")
    try:
        for folder in [*reversed(store.parents)]:
            if not folder.exists():  # each with its mode: `parents=True` would leave that to the umask
                folder.mkdir(mode=0o700, exist_ok=True)
        with _locked(store.parent):
            known = _known(root, os.environ)[0]
            yield store, known
            replace_file(store, json.dumps({"version": 1, "projects": known}, indent=1))
    except OSError as error:
        raise ToolError(
            f"cannot remember what is trusted: {error.filename or store}: {error.strerror}",
            ErrorKind.CONFIG,
            "Name the file with --config for each command, or set XDG_DATA_HOME to a directory that can be written.",
        ) from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    import fcntl  # only where something is written

    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
