"""Which projects' configurations a person accepted: a cloned one decides nothing before that.

The accepted text is kept outside the projects, and that text is in force: a file that was edited, replaced or removed
since changes nothing until it is accepted. Where the accepted text cannot be known, nothing runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.project.layers import data_file, is_there
from forge.project.read_yaml import read_text
from forge.workspace.state.replace_file import replace_file

NAME = "forge.yaml"
STORE = "trust.json"
MOST = 200  # projects whose text is kept; of older ones only the digest, so that a change is still noticed
MOST_NAMED = 20_000  # projects that are remembered at all
LARGEST = 128 * 1024 * 1024  # bytes of the store; a text has at most 256 KiB, twice that as JSON


class Found(str):
    """The path of a `forge.yaml` that was found, not named: each time it is read, it counts only if it is trusted."""

    __slots__ = ()


class Standing(NamedTuple):
    """How a workspace stands.

    `none`: it has no `forge.yaml`. `new`: its file was never accepted, and is not used. `trusted`, `changed` and
    `gone`: a text was accepted, and is in force; the file has it, has another, or is not there any more.
    `unknown`: something was accepted, or may have been, and its text cannot be had: nothing may run.
    """

    status: Literal["none", "trusted", "new", "changed", "gone", "unknown"]
    path: Path  # of forge.yaml, there or not
    text: str = ""  # as it is now
    before: str | None = None  # as it was accepted; None where it never was, or where there was no file
    problem: str = ""  # why the file or the store cannot be read
    unreadable: bool = False  # the problem is the file's


def standing(workspace: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> Standing:
    """Never raises."""
    root = _real(workspace)
    path = root / NAME
    known = _known(root, environment)
    there, text, problem = _current(path)
    if known.lost or (known.homeless and there):
        return Standing("unknown", path, text, problem=known.problem)
    entry = known.projects.get(str(root))
    if entry is None or _is_without_file(entry):
        words = problem or known.problem
        return Standing("new" if there else "none", path, text, problem=words, unreadable=bool(problem))
    accepted_text = entry.get("text")
    if accepted_text is None and there and not problem and entry.get("sha256") == _digest(text):
        accepted_text = text
    if not isinstance(accepted_text, str):
        words = f"the accepted text of {path} was not kept, and the file has changed since or is gone"
        return Standing("unknown", path, text, problem=words)
    if not there:
        return Standing("gone", path, before=accepted_text)
    same = not problem and accepted_text == text
    return Standing("trusted" if same else "changed", path, text, accepted_text, problem, bool(problem))


def is_trusted(workspace: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a person accepted this workspace as it is, its `forge.yaml` or that it has none.

    For whatever else a cloned project brings, such as the scripts in `tools/`.
    """
    root = _real(workspace)
    now = standing(root, environment)
    return now.status == "trusted" or (
        now.status == "none" and _known(root, environment).projects.get(str(root)) is not None
    )


def found_in(workspace: str | os.PathLike[str]) -> Found | None:
    """The workspace's configuration, if one was accepted. Raises `ToolError` where that cannot be known."""
    now = standing(workspace)
    check_known(now)
    return Found(str(now.path)) if now.before is not None else None


def trusted_text(found: Found) -> str:
    """The very text that was accepted, whatever the file says by now. Raises `ToolError` where there is none."""
    now = standing(Path(found).parent)
    check_known(now)
    if now.before is not None:
        return now.before
    words = "is gone" if now.status == "none" else "is not accepted, or not any more"
    raise ToolError(f"{found} {words}", ErrorKind.CONFIG, WAY)


WAY = "`forge trust` shows what it would turn on, and accepts it."


def check_known(now: Standing) -> None:
    """Raises `ToolError` where the accepted rules cannot be known: to go on could mean fewer rules than those."""
    if now.status != "unknown":
        return
    way = "Repair that, then run `forge trust`: it shows the project as it is now, and accepts it. Or name the file"
    way += " with --config, and its rules hold for this command."
    raise ToolError(f"cannot tell which rules hold in {now.path.parent}: {now.problem}", ErrorKind.CONFIG, way)


def notice(now: Standing) -> str:
    """One line for the person where the file and what is in force differ, with what to do; empty where they agree."""
    name = now.path.name
    if now.status == "changed" and now.unreadable:
        return (
            f"{name} cannot be read ({now.problem}); the version you accepted stays in force. Repair the file, then"
            " run `forge trust`"
        )
    if now.status == "changed":
        return (
            f"{name} has changed since it was accepted; the version you accepted stays in force. Run `forge trust`:"
            " it shows the difference and accepts the new version"
        )
    if now.status == "gone":
        return (
            f"{name} is gone; the version you accepted stays in force. Restore the file, or run `forge trust` to"
            " accept that there is none"
        )
    if now.status == "new" and now.problem:
        return f"{name} cannot be trusted: {now.problem}, and is not used; name it with --config to use it"
    if now.status == "new":
        return f"{name} is not accepted yet, and is not used; `forge trust` shows what it would do, and accepts it"
    return f"cannot tell which rules hold here: {now.problem}" if now.status == "unknown" else ""


def accept(workspace: str | os.PathLike[str], text: str | None = None) -> Path:
    """Remember a workspace's configuration as it is, or as it was shown (`text`). Returns where.

    Raises `ToolError` where nothing can be remembered.
    """
    root = _real(workspace)
    if text is None and is_there(root / NAME):
        text = read_text(str(root / NAME))
    hashed = _digest(text) if text is not None else None
    with _changing(root) as (store, known):
        known.pop(str(root), None)
        known[str(root)] = {"sha256": hashed, "text": text, "accepted": int(time.time())}
        for older in [*known][:-MOST]:
            if known[older].get("text") is not None:
                known[older] = {name: value for name, value in known[older].items() if name != "text"}
        for oldest in [*known][:-MOST_NAMED]:
            del known[oldest]
        return store


def forget(workspace: str | os.PathLike[str]) -> bool:
    """Whether there was something to forget. Raises `ToolError`."""
    root = _real(workspace)
    with _changing(root) as (_, known):
        return known.pop(str(root), None) is not None


def accepted(environment: Mapping[str, str] = os.environ) -> dict[str, dict[str, Any]]:
    """Every project that was accepted, by its directory. Raises `ToolError` where that cannot be known."""
    known = _known(None, environment)
    if known.lost:
        raise ToolError(f"cannot tell what was accepted: {known.problem}", ErrorKind.CONFIG)
    return known.projects


class _Known(NamedTuple):
    projects: dict[str, dict[str, Any]]
    problem: str = ""  # why nothing can be remembered
    lost: bool = False  # there is a store, and it cannot be read: anything may have been accepted
    homeless: bool = False  # it is not known where the store is: a project with a file may have been accepted


def _known(root: Path | None, environment: Mapping[str, str]) -> _Known:
    store = data_file(STORE, environment)
    if store is None:
        return _Known({}, "there is no home directory, where that is kept; set HOME or XDG_DATA_HOME", homeless=True)
    if root is not None and _real(store).is_relative_to(root):
        return _Known({}, f"{store} lies in the workspace, where tools could change it; set XDG_DATA_HOME")
    try:
        return _Known(_read(store))
    except FileNotFoundError:
        return _Known({})
    except NotADirectoryError:
        return _Known({}, f"{store.parent} is not a directory")
    except OSError as error:
        return _Known({}, f"{store}: {error.strerror}", lost=not _is_of_another(store))
    except ValueError as error:
        return _Known({}, f"{store} cannot be used: {error}", lost=True)


def _is_of_another(store: Path) -> bool:
    """Below a directory of another user that this one may not enter, as where HOME was kept on a switch of users."""
    for folder in store.parents:
        try:
            return hasattr(os, "getuid") and folder.stat().st_uid != os.getuid() and not os.access(folder, os.X_OK)
        except PermissionError:
            continue
        except OSError:
            return False
    return False


def _current(path: Path) -> tuple[bool, str, str]:
    """Whether the file is there, its text, and why that cannot be read."""
    if not is_there(path):
        return False, "", ""
    try:
        return True, read_text(str(path)), ""
    except ToolError as error:
        return True, "", error.message


def _is_without_file(entry: Mapping[str, Any]) -> bool:
    """It was accepted that the project has no `forge.yaml`."""
    return "text" in entry and entry["text"] is None and entry.get("sha256") is None


def _digest(text: str) -> str:
    from hashlib import sha256  # only here

    return sha256(text.encode()).hexdigest()


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
    import json  # only where something was accepted before

    try:
        document = json.loads(content)
        projects = document["projects"]
        # an entry of another shape was something that a person accepted: it is kept, and found to have no text
        return {str(name): entry if isinstance(entry, dict) else {} for name, entry in projects.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("it is broken; restore it, or remove it and run `forge trust` in each project") from None


@contextlib.contextmanager
def _changing(root: Path) -> Iterator[tuple[Path, dict[str, dict[str, Any]]]]:
    """What is known, written back in one piece at the end; one process at a time."""
    import json

    store = data_file(STORE)
    if store is None or _known(root, os.environ).problem:
        raise _unable(_known(root, os.environ).problem)
    try:
        for folder in [*reversed(store.parents)]:
            if not folder.exists():  # each with its mode: `parents=True` would leave that to the umask
                folder.mkdir(mode=0o700, exist_ok=True)
        with _locked(store.parent):
            known = _known(root, os.environ)
            if known.problem:
                raise _unable(known.problem)
            yield store, known.projects
            replace_file(store, json.dumps({"version": 1, "projects": known.projects}, indent=1))
    except OSError as error:
        raise ToolError(
            f"cannot remember what is trusted: {error.filename or store}: {error.strerror}",
            ErrorKind.CONFIG,
            "Name the file with --config for each command, or set XDG_DATA_HOME to a directory that can be written.",
        ) from None


def _unable(problem: str) -> ToolError:
    return ToolError(f"cannot remember what is trusted: {problem}", ErrorKind.CONFIG, "Repair that, or use --config.")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    import fcntl  # only where something is written

    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
