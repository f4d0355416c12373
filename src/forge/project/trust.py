"""Remembers which projects' configurations a person trusts: a cloned one has no effect before that.

The trusted text is stored outside the projects, and that text is in force: edits of the file have no effect until
they are trusted. If the trusted text cannot be known, nothing runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.project.config_layers import file_exists
from forge.project.read_yaml import read_text
from forge.workspace.state import data_file, replace_file

NAME = "forge.yaml"
STORE = "trust.json"
MEANING = 2  # of what is trusted: since 2, `allow network HOST` also opens that host for programs
_ALLOWS_HOST = re.compile(
    r"(?i)\ballow\s+network\s+[^\s#'\"-]|permission['\"]?\s*:\s*['\"]?network"
    r"|\ballow\s+(?:\*|tool:\S+)\s+[^\s#'\"]*[.:*]|target['\"]?\s*:\s*['\"]?[^\s'\"]*[.:*]"
)
MOST_PROJECTS = 200  # projects whose text is stored; older ones keep the digest, so that a change is noticed
MOST_NAMED = 20_000  # projects that are remembered
LARGEST_STORE = 128 * 1024 * 1024  # bytes of the store; a text has at most 256 KiB, twice that as JSON


class FoundConfig(str):
    """The path of a `forge.yaml` that was found, not named: each read checks that it is trusted."""

    __slots__ = ()


class Standing(NamedTuple):
    """The trust state of a workspace.

    `none`: it has no `forge.yaml`. `new`: its file was never trusted, and is not used. `trusted`, `changed` and
    `gone`: a text was trusted and is in force; the file has this text, another one, or is gone.
    `unknown`: a text was or may have been trusted, and cannot be read, or has another meaning now: nothing may run.
    """

    status: Literal["none", "trusted", "new", "changed", "gone", "unknown"]
    path: Path  # of forge.yaml, existing or not
    text: str = ""  # the current text
    before: str | None = None  # the trusted text; None if none was trusted, or there was no file
    problem: str = ""  # why the file or the store cannot be read
    unreadable: bool = False  # the problem is in the file, not in the store


def trust_state(workspace: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> Standing:
    """Returns the trust state of a workspace. Never raises."""
    root = _resolve_links(workspace)
    path = root / NAME
    known = _read_trust_store(root, environment)
    there, text, problem = _read_current(path)
    if known.lost or (known.homeless and there):
        return Standing("unknown", path, text, problem=known.problem)
    entry = known.projects.get(str(root))
    if entry is None or _is_without_file(entry):
        message = problem or known.problem
        return Standing("new" if there else "none", path, text, problem=message, unreadable=bool(problem))
    accepted_text = entry.get("text")
    if accepted_text is None and there and not problem and entry.get("sha256") == _digest(text):
        accepted_text = text
    if not isinstance(accepted_text, str):
        message = f"the trusted text of {path} was not stored, and the file has changed or is gone"
        return Standing("unknown", path, text, problem=message)
    if entry.get("meaning", 1) < MEANING and _ALLOWS_HOST.search(accepted_text):
        message = "its rules about hosts now hold for programs, too, which they did not when you trusted it"
        return Standing("unknown", path, text, problem=message)
    if not there:
        return Standing("gone", path, before=accepted_text)
    same = not problem and accepted_text == text
    return Standing("trusted" if same else "changed", path, text, accepted_text, problem, bool(problem))


def is_trusted(workspace: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether a person trusted this workspace as it is, with its `forge.yaml` or without one.

    This also decides about other files of a cloned project, such as the scripts in `tools/`.
    """
    root = _resolve_links(workspace)
    now = trust_state(root, environment)
    return now.status == "trusted" or (
        now.status == "none" and _read_trust_store(root, environment).projects.get(str(root)) is not None
    )


def find_accepted_config(workspace: str | os.PathLike[str]) -> FoundConfig | None:
    """Returns the workspace's trusted configuration, if any. Raises `ToolError` if that cannot be known."""
    now = trust_state(workspace)
    check_known(now)
    return FoundConfig(str(now.path)) if now.before is not None else None


def read_accepted_text(found: FoundConfig) -> str:
    """Returns the trusted text, whatever the file says now. Raises `ToolError` if there is none."""
    now = trust_state(Path(found).parent)
    check_known(now)
    if now.before is not None:
        return now.before
    message = "is gone" if now.status == "none" else "is not trusted"
    raise ToolError(f"{found} {message}", ErrorKind.CONFIG, WAY)


WAY = "Run `forge trust` to see what it would enable, and to trust it."


def check_known(now: Standing) -> None:
    """Raises `ToolError` if the trusted rules cannot be known: to continue could mean fewer rules."""
    if now.status != "unknown":
        return
    hint = "Fix that, then run `forge trust` to review and trust the project. Or name the file with --config to use its"
    hint += " rules for this command."
    raise ToolError(f"cannot tell which rules apply in {now.path.parent}: {now.problem}", ErrorKind.CONFIG, hint)


def notice(now: Standing) -> str:
    """Returns one line for the person if the file differs from the trusted text; empty if they agree."""
    name = now.path.name
    if now.status == "changed" and now.unreadable:
        return (
            f"{name} cannot be read ({now.problem}); the version you trusted still applies. Fix the file, then run"
            " `forge trust`"
        )
    if now.status == "changed":
        return (
            f"{name} has changed since you trusted it; the version you trusted still applies. Run `forge trust` to see"
            " the difference and trust the new version"
        )
    if now.status == "gone":
        return (
            f"{name} is gone; the version you trusted still applies. Restore the file, or run `forge trust` to"
            " continue without one"
        )
    if now.status == "new" and now.problem:
        return f"{name} cannot be trusted ({now.problem}), so Forge ignores it; name it with --config to use it"
    if now.status == "new":
        return (
            f"{name} is not trusted yet, so Forge ignores it; run `forge trust` to see what it would enable, and to"
            " trust it"
        )
    return f"cannot tell which rules apply here: {now.problem}" if now.status == "unknown" else ""


def accepted_instructions(
    workspace: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the SHA-256 of each trusted instruction file, by its name. Never raises: unknown means none."""
    root = _resolve_links(workspace)
    found = _read_trust_store(root, environment).projects.get(str(root), {}).get("instructions")
    return {str(name): str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def accept(
    workspace: str | os.PathLike[str], text: str | None = None, instructions: Mapping[str, str] | None = None
) -> Path:
    """Remembers a workspace's configuration as it is, or as it was shown (`text`). Returns the path of the store.

    `instructions` are the hashes of instruction files that were shown, by name; earlier ones stay trusted. Raises
    `ToolError` if nothing can be remembered.
    """
    root = _resolve_links(workspace)
    if text is None and file_exists(root / NAME):
        text = read_text(str(root / NAME))
    hashed = _digest(text) if text is not None else None
    with _change_store(root) as (store, known):
        before = known.pop(str(root), {}).get("instructions")
        hashes = {**(before if isinstance(before, dict) else {}), **(instructions or {})}
        entry = {"sha256": hashed, "text": text, "accepted": int(time.time()), "meaning": MEANING}
        known[str(root)] = {**entry, "instructions": hashes} if hashes else entry
        for older in [*known][:-MOST_PROJECTS]:
            if known[older].get("text") is not None:
                known[older] = {name: value for name, value in known[older].items() if name != "text"}
        for oldest in [*known][:-MOST_NAMED]:
            del known[oldest]
        return store


def forget(workspace: str | os.PathLike[str]) -> bool:
    """Forgets a workspace; returns whether it was trusted. Raises `ToolError`."""
    root = _resolve_links(workspace)
    with _change_store(root) as (_, known):
        return known.pop(str(root), None) is not None


def list_accepted(environment: Mapping[str, str] = os.environ) -> dict[str, dict[str, Any]]:
    """Returns every trusted project by its directory. Raises `ToolError` if that cannot be known."""
    known = _read_trust_store(None, environment)
    if known.lost:
        raise ToolError(f"cannot read which projects are trusted: {known.problem}", ErrorKind.CONFIG)
    return known.projects


class _TrustStore(NamedTuple):
    """The content of the trust store."""

    projects: dict[str, dict[str, Any]]
    problem: str = ""  # the reason why nothing can be remembered
    lost: bool = False  # the store exists but cannot be read: anything may have been trusted
    homeless: bool = False  # the location of the store is unknown: a project with a file may have been trusted


def _read_trust_store(root: Path | None, environment: Mapping[str, str]) -> _TrustStore:
    store = data_file(STORE, environment)
    if store is None:
        return _TrustStore({}, "there is no home directory to store it in; set HOME or XDG_DATA_HOME", homeless=True)
    if root is not None and _resolve_links(store).is_relative_to(root):
        return _TrustStore({}, f"{store} is inside the workspace, where tools could change it; set XDG_DATA_HOME")
    try:
        return _TrustStore(_read_projects(store))
    except FileNotFoundError:
        return _TrustStore({})
    except NotADirectoryError:
        return _TrustStore({}, f"{store.parent} is not a directory")
    except OSError as error:
        return _TrustStore({}, f"{store}: {error.strerror}", lost=not _is_of_another(store))
    except ValueError as error:
        return _TrustStore({}, f"{store} cannot be used: {error}", lost=True)


def _is_of_another(store: Path) -> bool:
    """Returns whether the store is in another user's closed directory, as when HOME survives a switch of users."""
    for folder in store.parents:
        try:
            return hasattr(os, "getuid") and folder.stat().st_uid != os.getuid() and not os.access(folder, os.X_OK)
        except PermissionError:
            continue
        except OSError:
            return False
    return False


def _read_current(path: Path) -> tuple[bool, str, str]:
    """Returns whether the file exists, its text, and why it cannot be read."""
    if not file_exists(path):
        return False, "", ""
    try:
        return True, read_text(str(path)), ""
    except ToolError as error:
        return True, "", error.message


def _is_without_file(entry: Mapping[str, Any]) -> bool:
    """Returns whether it was trusted that the project has no `forge.yaml`."""
    return "text" in entry and entry["text"] is None and entry.get("sha256") is None


def _digest(text: str) -> str:
    from hashlib import sha256  # only here

    return sha256(text.encode()).hexdigest()


def _resolve_links(path: str | os.PathLike[str]) -> Path:
    """Resolves links as far as possible."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):  # a NUL byte, or the current directory is gone
        return Path(path)


def _read_projects(store: Path) -> dict[str, dict[str, Any]]:
    file = os.open(store, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as stream:
        status = os.fstat(file)
        if (hasattr(os, "getuid") and status.st_uid not in (0, os.getuid())) or status.st_mode & 0o022:
            raise ValueError("other users may change it; remove it, or restrict it with chmod go-w")
        content = stream.read(LARGEST_STORE + 1)

    try:
        document = json.loads(content)
        projects = document["projects"]
        # an entry of another shape was trusted by a person: it is kept, without a text
        return {str(name): entry if isinstance(entry, dict) else {} for name, entry in projects.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("it is damaged; restore it, or remove it and run `forge trust` in each project") from None


@contextlib.contextmanager
def _change_store(root: Path) -> Iterator[tuple[Path, dict[str, dict[str, Any]]]]:
    """Yields the store's content, and writes it back in one piece at the end; one process at a time."""

    store = data_file(STORE)
    if store is None or _read_trust_store(root, os.environ).problem:
        raise _cannot_remember(_read_trust_store(root, os.environ).problem)
    try:
        for folder in [*reversed(store.parents)]:
            if not folder.exists():  # each with its mode: `parents=True` would leave that to the umask
                folder.mkdir(mode=0o700, exist_ok=True)
        with _lock(store.parent):
            known = _read_trust_store(root, os.environ)
            if known.problem:
                raise _cannot_remember(known.problem)
            yield store, known.projects
            replace_file(store, json.dumps({"version": 1, "projects": known.projects}, indent=1))
    except OSError as error:
        raise ToolError(
            f"cannot store the decision to trust this project: {error.filename or store}: {error.strerror}",
            ErrorKind.CONFIG,
            "Name the file with --config for each command, or set XDG_DATA_HOME to a writable directory.",
        ) from None


def _cannot_remember(problem: str) -> ToolError:
    return ToolError(
        f"cannot store the decision to trust this project: {problem}", ErrorKind.CONFIG, "Fix that, or use --config."
    )


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    import fcntl  # only where something is written

    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
