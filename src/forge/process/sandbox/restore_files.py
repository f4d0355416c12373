"""Restores protected files that a confined program changed, where its sandbox could not prevent it.

bubblewrap cannot protect a missing file without leaving something behind, and Landlock cannot make an
exception inside a writable directory. Files that would make Git or Forge run something later are checked when the
program has ended: the new version is set aside as NAME.rejected, never deleted, and the old one is restored.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from stat import S_IMODE, S_ISLNK, S_ISREG

from forge.process.git_hooks import hook_folders
from forge.process.sandbox.layout import (
    CONFIGURATION,
    Confinement,
    find_skill_files,
    folders_above,
    follow_links,
    is_inside,
    roots_of,
)

LARGEST_KEPT = 1024 * 1024  # bytes of a file that is stored; a change of a larger one is only detected
REJECTED = ".rejected"

_GIT, _HOOKS = ".git", ".git/hooks"
_HARMLESS = re.compile(
    rb"""(\s*[#;].* | \s*
    | \s*\[ (core|user|init|branch|pull|push|color|advice|merge|remote) (\s+"[^"\\\n]*")? \]\s*
    | \s*(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol
         |name|email|defaultbranch|rebase|ff|default|ui|remote|merge|url|fetch)\s*=[^\\\n]*)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Lines of Git's settings that name no program."""


@dataclass(frozen=True, slots=True)
class _FileState:
    """A file as it was: `content` is None where it is too large, or not a file. `target` is that of a link."""

    mark: tuple[int, int, int]
    content: bytes | None
    mode: int
    target: str = ""


_FileKey = tuple[str, str, str]  # root, folder below it, name


@dataclass(frozen=True, slots=True)
class ProtectedSnapshot:
    """The protected files before a program ran; None: no file."""

    files: dict[_FileKey, _FileState | None]
    roots: tuple[str, ...]
    new_repositories: frozenset[str]  # roots that had no .git
    hooks: tuple[tuple[str, str, bool], ...]  # root, folder of hooks below it, True if it existed
    links: frozenset[_FileKey]  # that lead to hooks: no mount protects them
    deep: frozenset[tuple[str, str]]  # root, protected folder below it: nothing may be added, not even a folder
    around: dict[_FileKey, str]  # the folders around protected files -> "folder", "link" or "" for none


def watch_protected_files(confinement: Confinement | None, tier: str) -> Callable[[], list[str]]:
    """Takes a snapshot before a confined program starts. Returns a function to call at its end, which restores and
    reports.

    Files that bubblewrap mounts read-only cannot have been changed by the program, so a change there is another's and
    stays; only missing files are watched. Without a sandbox nothing is watched.
    """
    if confinement is None or tier == "none":
        return list
    found = take_snapshot(confinement)
    return lambda: restore_protected(found, only_new=tier == "bubblewrap")


def take_snapshot(confinement: Confinement) -> ProtectedSnapshot:
    """Records the protected files. Call it before the program is started, in any tier."""
    roots = tuple(roots_of(confinement).writable)
    files: dict[_FileKey, _FileState | None] = {}
    hooks: list[tuple[str, str, bool]] = []
    links: set[_FileKey] = set()
    deep: set[tuple[str, str]] = set()
    for root in roots:
        inside = _list_protected_folders(root, confinement)
        deep |= {(root, folder) for folder in inside}
        folders = (_HOOKS, *hook_folders(root), *inside)
        hooks += [(root, folder, os.path.isdir(os.path.join(root, folder))) for folder in folders]
        found = ((folder, name) for folder in folders for name in _list_hooks(root, folder))
        leading = [os.path.split(folder) for folder in folders if os.path.islink(os.path.join(root, folder))]
        leading += [os.path.split(inner) for inner in _list_inside(root, confinement) if _is_link(root, inner)]
        links |= {(root, *key) for key in leading}
        for folder, name in (*_list_protected(root, confinement), *found, *leading):
            files[root, folder, name] = _read_state(root, folder, name)
    without = (root for root in roots if not os.path.lexists(os.path.join(root, _GIT)))
    folders_around = {(root, folder) for root, folder, _ in (*files, *hooks)}
    around = {key: _kind(key) for root, folder in folders_around for key in _folders_to(root, folder)}
    return ProtectedSnapshot(
        files, roots, frozenset(without), tuple(hooks), frozenset(links), frozenset(deep), dict(sorted(around.items()))
    )


def restore_protected(remembered: ProtectedSnapshot, *, only_new: bool = False) -> list[str]:
    """Restores protected files after the program has ended. Returns messages for the model, usually none.

    `only_new`: files and repositories' hooks that existed before are left as they are.
    """
    said = []
    for around, kind in remembered.around.items():  # what a program laid in the place of a folder
        laid = _kind(around)
        if (kind == "folder" and not only_new and laid not in ("folder", "")) or (not kind and laid == "link"):
            with contextlib.suppress(OSError):
                said += _restore(around, None, _read_state(*around))
    folders = [
        (root, folder)
        for root, folder, existed in remembered.hooks
        if not only_new or (root in remembered.new_repositories if folder == _HOOKS else not existed)
    ]
    new_hooks: dict[_FileKey, _FileState | None] = {
        (root, folder, name): None
        for root, folder in folders
        for name in _list_hooks(root, folder, with_folders=(root, folder) in remembered.deep)
        if (root, os.path.join(folder, name)) not in remembered.deep
    }
    for key, before in {**new_hooks, **remembered.files}.items():
        root, folder, name = key
        now = _read_state(*key)
        if now == before or (now is None and before is None):
            continue
        if only_new and before is not None and key not in remembered.links:
            continue
        if (
            root in remembered.new_repositories
            and (folder, name) in ((_GIT, "config"), ("", _GIT))
            and _is_harmless(now)
        ):
            continue
        with contextlib.suppress(OSError):  # if we may not write there, the program could not either
            said += _restore(key, before, now)
    return said


def _list_protected(root: str, confinement: Confinement) -> Iterator[tuple[str, str]]:
    yield from (("", name) for name in (*CONFIGURATION, _GIT))
    yield from ((_GIT, name) for name in ("config", "config.worktree", "commondir"))
    yield from find_skill_files(root)
    yield from (os.path.split(inner) for inner in _list_inside(root, confinement) if not _is_real_folder(root, inner))


def _list_protected_folders(root: str, confinement: Confinement) -> list[str]:
    """Returns the protected folders and those in them: a program may not add a file to them either."""
    return [
        os.path.relpath(folder, root)
        for inner in _list_inside(root, confinement)
        if _is_real_folder(root, inner)
        for folder, _, _ in os.walk(os.path.join(root, inner))
    ]


def _list_inside(root: str, confinement: Confinement) -> Iterator[str]:
    """Yields the protected paths in a root: where they are, and the links that lead there."""
    for path in confinement.protected:
        links, real = follow_links(str(path))
        yield from (os.path.relpath(one, root) for one in (*links, real) if is_inside(one, root) and one != root)


def _folders_to(root: str, folder: str) -> Iterator[_FileKey]:
    """Yields a folder below a root, and those around it."""
    for one in folders_above(os.path.join(root, folder, "x"), root):
        yield (root, *os.path.split(os.path.relpath(one, root)))


def _kind(key: _FileKey) -> str:
    path = os.path.join(*key)
    if os.path.islink(path):
        return "link"
    return "folder" if os.path.isdir(path) else "file" if os.path.lexists(path) else ""


def _is_link(root: str, inner: str) -> bool:
    return os.path.islink(os.path.join(root, inner))


def _is_real_folder(root: str, inner: str) -> bool:
    path = os.path.join(root, inner)
    return os.path.isdir(path) and not os.path.islink(path)


def _list_hooks(root: str, folder: str, *, with_folders: bool = False) -> list[str]:
    with _open_below(root, folder) as within:
        if within is None:
            return []
        with os.scandir(within) as entries:
            return [
                one.name
                for one in entries
                if not one.name.endswith((".sample", REJECTED))
                and (with_folders or folder == _HOOKS or not _is_folder(one))
            ]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _read_state(root: str, folder: str, name: str) -> _FileState | None:
    """Reads a file's state; None: there is no file, or a directory, whose files are read by themselves."""
    with _open_below(root, folder) as within:
        if within is None:
            return None
        try:
            status = os.lstat(name, dir_fd=within)
            if name == _GIT and not S_ISREG(status.st_mode) and os.path.isdir(os.path.join(root, name)):
                return None
            content, target = None, ""
            if S_ISLNK(status.st_mode):
                target = os.readlink(name, dir_fd=within)
            elif S_ISREG(status.st_mode) and status.st_size <= LARGEST_KEPT:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
                with open(descriptor, "rb") as file:
                    content = file.read(LARGEST_KEPT)
        except OSError:
            return None
    mark = (0, 0, 0) if content is not None or target else (status.st_ino, status.st_mtime_ns, status.st_size)
    return _FileState(mark, content, S_IMODE(status.st_mode), target)


def _restore(key: _FileKey, before: _FileState | None, now: _FileState | None) -> list[str]:
    root, folder, name = key
    shown = os.path.join(folder, name)
    words = []
    with _open_below(root, folder, make=before is not None) as within:
        if within is None:
            return [f"{shown} was removed, with its directory"]
        if now is not None:
            aside = _set_aside(within, name)
            words.append(f"{shown} must not be changed: the new version is in {os.path.join(folder, aside)}")
            _disarm(within, aside)
        if before is not None and before.target:
            os.symlink(before.target, name, dir_fd=within)
            words.append(f"{shown} was restored")
        elif before is not None and before.content is not None:
            _write(within, name, before.content, before.mode)
            words.append(f"{shown} was restored")
    return words


def _set_aside(within: int, name: str) -> str:
    """Renames a file or folder, under another name if a folder has the usual one. Returns the name."""
    aside = f"{name}{REJECTED}"
    try:
        os.rename(name, aside, src_dir_fd=within, dst_dir_fd=within)
    except OSError:
        aside = f"{name}.{secrets.token_hex(4)}{REJECTED}"
        os.rename(name, aside, src_dir_fd=within, dst_dir_fd=within)
    return aside


def _disarm(within: int, name: str) -> None:
    """Makes a file non-executable and readable by its owner alone."""
    with contextlib.suppress(OSError):  # a link: its new name is harmless
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)


def _write(within: int, name: str, content: bytes, mode: int) -> None:
    temporary = f".forge-tmp-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600, dir_fd=within), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    os.rename(temporary, name, src_dir_fd=within, dst_dir_fd=within)


def _is_harmless(state: _FileState | None) -> bool:
    """Returns whether the settings that `git init` made name no program, so that the new repository may stay."""
    if state is None or state.content is None:
        return False
    return all(_HARMLESS.fullmatch(line) for line in state.content.splitlines())


@contextlib.contextmanager
def _open_below(root: str, folder: str, *, make: bool = False) -> Iterator[int | None]:
    """Yields a directory below a root, opened without following links; None if it cannot be opened.

    `make`: makes directories that are missing.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        within = os.open(root, flags)
    except OSError:
        yield None
        return
    try:
        for name in folder.split("/") if folder else ():
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=within)
                below = os.open(name, flags | os.O_NOFOLLOW, dir_fd=within)
            except OSError:
                yield None
                return
            os.close(within)
            within = below
        yield within
    finally:
        os.close(within)
