"""Puts back what a confined program changed although it may not, where its sandbox could not prevent it.

bubblewrap cannot protect what does not exist yet without leaving something behind, and Landlock cannot make an
exception inside a directory that is writable. What would make Git or Forge run something later is looked at when the
program has ended: the new version is set aside as NAME.rejected, never deleted, and the old one is back in its place.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from stat import S_IMODE, S_ISREG

from forge.core.git_hooks import hook_folders
from forge.process.sandbox.layout import CONFIGURATION, Confinement, is_inside, roots_of, skill_files

MOST = 1024 * 1024  # bytes of a file that is remembered; a larger one is only recognised
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
class _State:
    """A file as it was: `content` is None where it is too large, or no file."""

    mark: tuple[int, int, int]
    content: bytes | None
    mode: int


_Place = tuple[str, str, str]  # root, folder below it, name


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was there before a program ran; None: nothing."""

    places: dict[_Place, _State | None]
    roots: tuple[str, ...]
    new_repositories: frozenset[str]  # roots that had no .git
    hooks: tuple[tuple[str, str, bool], ...]  # root, folder of hooks below it, whether it was there
    links: frozenset[_Place]  # that lead to hooks: no mount keeps them


def watched(confinement: Confinement | None, tier: str) -> Callable[[], list[str]]:
    """To be called before a confined program starts; what it returns, once it has ended: what was put back, in words.

    What bubblewrap shows as read-only cannot have been changed by the program, so a change there is somebody else's and
    stays; only what was missing is looked after. Without a sandbox nothing is.
    """
    if confinement is None or tier == "none":
        return list
    found = remember(confinement)
    return lambda: put_back(found, only_new=tier == "bubblewrap")


def remember(confinement: Confinement) -> Remembered:
    """To be called before the program is started, in any tier."""
    roots = tuple(roots_of(confinement).writable)
    places: dict[_Place, _State | None] = {}
    hooks: list[tuple[str, str, bool]] = []
    links: set[_Place] = set()
    for root in roots:
        folders = (_HOOKS, *hook_folders(root))
        hooks += [(root, folder, os.path.isdir(os.path.join(root, folder))) for folder in folders]
        found = ((folder, name) for folder in folders for name in _hooks(root, folder))
        leading = [os.path.split(folder) for folder in folders if os.path.islink(os.path.join(root, folder))]
        links |= {(root, *place) for place in leading}
        for folder, name in (*_named(root, confinement), *found, *leading):
            places[root, folder, name] = _state(root, folder, name)
    without = (root for root in roots if not os.path.lexists(os.path.join(root, _GIT)))
    return Remembered(places, roots, frozenset(without), tuple(hooks), frozenset(links))


def put_back(remembered: Remembered, *, only_new: bool = False) -> list[str]:
    """To be called when the program has ended. What was put back, in words for the model; [] as a rule.

    `only_new`: what was there before, and hooks of a repository that was, are left as they are.
    """
    said = []
    folders = [
        (root, folder)
        for root, folder, existed in remembered.hooks
        if not only_new or (root in remembered.new_repositories if folder == _HOOKS else not existed)
    ]
    new_hooks = {(root, folder, name): None for root, folder in folders for name in _hooks(root, folder)}
    for place, before in {**new_hooks, **remembered.places}.items():
        root, folder, name = place
        now = _state(*place)
        if now == before or (now is None and before is None):
            continue
        if only_new and before is not None and place not in remembered.links:
            continue
        if root in remembered.new_repositories and (folder, name) in ((_GIT, "config"), ("", _GIT)) and _harmless(now):
            continue
        with contextlib.suppress(OSError):  # whoever may not write there was not deceived either
            said += _restored(place, before, now)
    return said


def _named(root: str, confinement: Confinement) -> Iterator[tuple[str, str]]:
    yield from (("", name) for name in (*CONFIGURATION, _GIT))
    yield from ((_GIT, name) for name in ("config", "config.worktree", "commondir"))
    yield from skill_files(root)
    for path in confinement.protected:
        real = os.path.join(os.path.realpath(path.parent), path.name)
        if is_inside(real, root) and real != root:
            yield os.path.split(os.path.relpath(real, root))


def _hooks(root: str, folder: str) -> list[str]:
    with _opened(root, folder) as within:
        if within is None:
            return []
        with os.scandir(within) as entries:
            return [
                one.name
                for one in entries
                if not one.name.endswith((".sample", REJECTED)) and (folder == _HOOKS or not _is_folder(one))
            ]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _state(root: str, folder: str, name: str) -> _State | None:
    """None: nothing is there, or a directory, whose content is looked at by itself."""
    with _opened(root, folder) as within:
        if within is None:
            return None
        try:
            status = os.lstat(name, dir_fd=within)
            if name == _GIT and not S_ISREG(status.st_mode) and os.path.isdir(os.path.join(root, name)):
                return None
            content = None
            if S_ISREG(status.st_mode) and status.st_size <= MOST:
                place = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
                with open(place, "rb") as file:
                    content = file.read(MOST)
        except OSError:
            return None
    mark = (0, 0, 0) if content is not None else (status.st_ino, status.st_mtime_ns, status.st_size)
    return _State(mark, content, S_IMODE(status.st_mode))


def _restored(place: _Place, before: _State | None, now: _State | None) -> list[str]:
    root, folder, name = place
    shown = os.path.join(folder, name)
    words = []
    with _opened(root, folder) as within:
        if within is None:
            return [f"{shown} is gone, with its directory"]
        if now is not None:
            os.rename(name, f"{name}{REJECTED}", src_dir_fd=within, dst_dir_fd=within)
            words.append(f"{shown} may not be changed: what was written is in {shown}{REJECTED}")
            _disarm(within, f"{name}{REJECTED}")
        if before is not None and before.content is not None:
            _write(within, name, before.content, before.mode)
            words.append(f"{shown} is as it was before")
    return words


def _disarm(within: int, name: str) -> None:
    """Not executable, and nobody else's."""
    with contextlib.suppress(OSError):  # a link, which the new name has disarmed
        place = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
        try:
            os.fchmod(place, 0o600)
        finally:
            os.close(place)


def _write(within: int, name: str, content: bytes, mode: int) -> None:
    temporary = f".forge-tmp-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600, dir_fd=within), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    os.rename(temporary, name, src_dir_fd=within, dst_dir_fd=within)


def _harmless(state: _State | None) -> bool:
    """Whether what `git init` made names no program, so that a repository made by a program may stay."""
    if state is None or state.content is None:
        return False
    return all(_HARMLESS.fullmatch(line) for line in state.content.splitlines())


@contextlib.contextmanager
def _opened(root: str, folder: str) -> Iterator[int | None]:
    """A directory below a root, reached without following any link that a program may have laid; None if it is not."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        within = os.open(root, flags)
    except OSError:
        yield None
        return
    try:
        for name in folder.split("/") if folder else ():
            try:
                below = os.open(name, flags | os.O_NOFOLLOW, dir_fd=within)
            except OSError:
                yield None
                return
            os.close(within)
            within = below
        yield within
    finally:
        os.close(within)
