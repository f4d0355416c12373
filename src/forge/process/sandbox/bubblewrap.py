"""Confines a program with bubblewrap: namespaces of its own, in which only what it may reach exists."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG

from forge.core.errors import ErrorKind, ToolError
from forge.core.git_hooks import hook_folders
from forge.process.find_program import trusted_program
from forge.process.sandbox.command import Command
from forge.process.sandbox.git_settings import git_settings
from forge.process.sandbox.landlock_program import INET, INET6, NETLINK, UNIX, syscall_filter
from forge.process.sandbox.layout import (
    CONFIGURATION,
    PROCESSORS,
    SETTINGS,
    SKILLS,
    STATE,
    SYSTEM,
    Confinement,
    Roots,
    inside_any,
    own_folders,
    program_folders,
    roots_of,
    skill_files,
)

HOW = "Install it: apt-get install bubblewrap (or dnf, pacman, apk, zypper)."

HOME = "/tmp/.forge-home"  # noqa: S108 - of a /tmp that only this run has
OTHER_HOME = "/.forge-home"
GIT_SETTINGS = "/etc/gitconfig"
MOST_WORDS = 9_000  # bubblewrap takes no more, those of the program included

_FILTER, _GIT, _STATUS = 9, 8, 7  # descriptors: bubblewrap reads the filter and the person's Git settings, and reports
_SHELL_SAYS = 6
_SIGNALS = 128  # exit codes above this one may stand for signals
_ENV = "/usr/bin/env"
# bubblewrap turns a signal into an exit code above 128, which a program can also choose. A shell says which it was, on
# its own standard error; that of the program stays what it is.
_NAMING_SIGNALS = ("/bin/sh", "-c", 'exec 5>&2 2>&6 6>&-; (exec "$@" 2>&5 5>&-); exit $?', "sh")
_ENDED = re.compile(rb'^\{ "exit-code": \d+ \}$', re.MULTILINE)
_REPORT = re.compile(rb"^\{ .* \}$", re.MULTILINE)
MOST_SKILLS = 100  # each costs two mounts; where there are more, their whole folder is read-only
_BINDABLE = ("file", "directory")  # never a link, which a program may have laid to bring in what it leads to
_GIT_READ_ONLY = ("worktrees", "modules")  # settings of other work trees and of submodules are in there


def program(writable: Iterable[str] = ()) -> str:
    """Where bubblewrap is, outside of what a confined program may write."""
    found = _found(tuple(writable), os.environ.get("PATH", ""))
    if found is None:
        raise ToolError("bubblewrap is not on this system", ErrorKind.CONFIG, HOW)
    return found


@lru_cache(maxsize=32)
def _found(writable: tuple[str, ...], path: str) -> str | None:
    """`path`: where it is looked for, which may change."""
    return trusted_program("bwrap", map(Path, writable))


def command(
    argv: Sequence[str], confinement: Confinement, env: Mapping[str, str], *, folder: str = "", status: str = ""
) -> Command:
    """To be started with `env`, in a directory below a root: values are not written onto the command line, which all
    users of the machine can read. `status`: the file that is told how it ended. `folder` is not needed here."""
    roots = roots_of(confinement)
    gentle = _can_reset_signals() and "=" not in argv[0]
    words = [program(roots.writable), *_namespaces(confinement), *_system(), *_mounts(confinement, roots, env)]
    words += _variables(confinement, roots)
    given = {_FILTER: _filter(has_sockets=not confinement.read_only), _GIT: git_settings(roots.workspace)}
    if given[_FILTER]:
        words += ["--seccomp", str(_FILTER)]
    if status:
        words += ["--json-status-fd", str(_STATUS), "--as-pid-1"]  # the shell below also buries orphans, as pid 1 must
    words += ["--", *(_NAMING_SIGNALS if status else ()), *((_ENV, "--default-signal=TERM") if gentle else ()), *argv]
    if len(words) > MOST_WORDS:
        most = MOST_WORDS - len(words) + len(argv)
        raise ToolError(
            f"the command has {len(argv):,} arguments, and bubblewrap takes {most:,} here",
            ErrorKind.VALIDATION,
            "Put them into a file or stdin, or split the work into several calls.",
        )
    return Command(
        words,
        reads=tuple((number, _in_memory(content, os.getpid())) for number, content in given.items() if content),
        appends=((_STATUS, status), (_SHELL_SAYS, status)) if status else (),
        ignores_term=gentle,  # bubblewrap must outlive the request to end, or the kernel kills what is asked to end
    )


def why_not_run(argv: Sequence[str], exit_code: int, status: bytes, said: str) -> tuple[int, str] | None:
    """Why the program never ran: an error number where it could not be started, and words; None if it ran."""
    first = said.strip()
    if exit_code in (126, 127) and first.startswith(f"{_ENV}: ") and argv[0] in first and "\n" not in first:
        return (errno.ENOENT if exit_code == 127 else errno.EACCES), first
    if _ENDED.search(status):
        return None
    last = (said.strip().splitlines() or [f"it ended with exit code {exit_code}"])[-1]
    return 0, last.removeprefix("bwrap: ")


def ended_by_signal(exit_code: int, status: bytes) -> bool:
    """Whether an exit code above 128 stands for a signal."""
    return exit_code > _SIGNALS and bool(_ENDED.search(status)) and bool(_REPORT.sub(b"", status).strip())


def _variables(confinement: Confinement, roots: Roots) -> list[str]:
    settings = GIT_SETTINGS if git_settings(roots.workspace) else os.devnull
    values = {"HOME": str(confinement.home or _home(roots)), "GIT_CONFIG_SYSTEM": settings}
    if confinement.home is None:  # whoever names a home lists the whole environment; /tmp is used without this, too
        values["TMPDIR"] = "/tmp"  # noqa: S108
    return [word for name, value in values.items() for word in ("--setenv", name, value)]


def _namespaces(confinement: Confinement) -> list[str]:
    words = ["--unshare-all", "--cap-drop", "ALL", "--die-with-parent"]
    return [*words, "--share-net"] if confinement.network and not confinement.read_only else words


def _home(roots: Roots) -> str:
    """An empty directory of this run alone, also where /tmp is a root."""
    return OTHER_HOME if roots.contain(HOME) else HOME


@cache
def _system() -> tuple[str, ...]:
    """The same for every program: what the system is made of, read-only; its own processes, devices and /tmp."""
    words: list[str] = []
    shown: list[str] = []
    for path in (*SYSTEM, *SETTINGS, PROCESSORS):
        real = os.path.realpath(path)
        if not os.path.exists(real):
            continue
        if real != path and inside_any(real, tuple(shown)):
            words += ["--symlink", real, path]
        else:
            words += ["--ro-bind", real, path]
        shown.append(path)
    words += ["--proc", "/proc", "--dev", "/dev"]
    return (*words, "--perms", "1777", "--tmpfs", "/tmp", "--symlink", "/tmp", "/var/tmp")  # noqa: S108


def _mounts(confinement: Confinement, roots: Roots, env: Mapping[str, str]) -> list[str]:
    """In this order: what is later lies over what is earlier."""
    words: list[str] = []
    for folder in program_folders(env, roots):
        words += _read_only(folder)
    words += ["--perms", "0700", "--dir" if _home(roots) == HOME else "--tmpfs", _home(roots)]
    for folder, writable in roots.folders:
        words += ["--bind" if writable else "--ro-bind-try", folder, folder]
    for folder, writable in roots.folders:
        if writable:
            words += _protected(folder)
        words += _without_state(folder, writable=writable)
    for folder in (*own_folders(roots), *(_path(one) for one in confinement.protected)):
        if roots.contain(folder) and _kind(folder) in _BINDABLE:
            words += _read_only(folder)
    spelled = os.path.abspath(confinement.workspace)
    if spelled != roots.workspace and not roots.contain(spelled) and not inside_any(spelled, SYSTEM):
        words += ["--symlink", roots.workspace, spelled]
    if git_settings(roots.workspace):
        words += ["--file", str(_GIT), GIT_SETTINGS]
    shown = (*SYSTEM, *SETTINGS, *program_folders(env, roots), *(folder for folder, _ in roots.folders))
    for real in dict.fromkeys(map(os.path.realpath, confinement.hidden)):
        words += _hidden(real) if inside_any(real, shown) else []
    return [*words, "--remount-ro", "/"]


def _hidden(path: str) -> list[str]:
    """To read it is refused. A device in the place of a file cannot be opened, since the mount has no devices."""
    match _kind(path):
        case "":
            return []
        case "directory":
            return ["--perms", "0000", "--tmpfs", path, "--remount-ro", path]
        case _:
            return ["--ro-bind", os.devnull, path]


def _protected(root: str) -> Iterator[str]:
    """Git's settings and hooks, which run programs, and Forge's configuration and skills."""
    git = os.path.join(root, ".git")
    kind = _kind(git)
    if kind == "file" or (kind == "directory" and not os.path.lexists(os.path.join(git, "HEAD"))):
        yield from _read_only(git)
    elif kind == "directory":
        yield from ("--bind", git, git)  # a mount point can be neither moved nor replaced
        yield from _git(git)
    yield from _named_hooks(root)
    for name in CONFIGURATION:
        path = os.path.join(root, name)
        if _kind(path) in _BINDABLE:
            yield from _read_only(path)
    yield from _skills(root)


def _named_hooks(root: str) -> Iterator[str]:
    """Hooks in a folder that the settings name; the folders around it are mount points, and cannot be moved away."""
    for name in hook_folders(root):
        parts = name.split("/")
        around = [os.path.join(root, *parts[:depth]) for depth in range(1, len(parts) + 1)]
        if all(_kind(folder) == "directory" for folder in around):
            yield from (word for folder in around[:-1] for word in ("--bind", folder, folder))
            yield from _read_only(around[-1])


def _skills(root: str) -> Iterator[str]:
    """The files that say what a skill denies; their folders are mount points, and cannot be moved away with them."""
    files = skill_files(root)
    top = os.path.join(root, SKILLS)
    if len(files) > MOST_SKILLS:
        yield from _read_only(top)
        return
    for folder in sorted({top, *(os.path.join(root, folder) for folder, _ in files)} if files else ()):
        yield from ("--bind", folder, folder)
    for folder, name in files:
        path = os.path.join(root, folder, name)
        if _kind(path) in _BINDABLE:
            yield from _read_only(path)


def _git(git: str) -> Iterator[str]:
    hooks, config = os.path.join(git, "hooks"), os.path.join(git, "config")
    if _kind(hooks) == "directory":
        yield from _read_only(hooks)
    elif not _kind(hooks):  # an empty one is left behind, as Git itself makes it
        yield from ("--tmpfs", hooks, "--remount-ro", hooks)
    if _kind(config) == "file":
        yield from _read_only(config)
    elif not _kind(config):  # an empty one is left behind, which says the same to Git as none
        yield from ("--ro-bind", os.devnull, config)
    for name in _GIT_READ_ONLY:
        if _kind(os.path.join(git, name)) == "directory":
            yield from _read_only(os.path.join(git, name))
    common = os.path.join(git, "commondir")
    if _kind(common) == "file":
        yield from _read_only(common)


def _without_state(root: str, *, writable: bool) -> Iterator[str]:
    """Forge's state is not there, but for the files it made for the model."""
    state = os.path.join(root, STATE)
    if _kind(state) != "directory":
        return
    yield from ("--tmpfs", state)
    for name, how, kind in (
        ("files", "--bind" if writable else "--ro-bind", "directory"),
        ("spill", "--ro-bind", "directory"),
        (".gitignore", "--ro-bind", "file"),  # without it `git add --all` would take what is left
    ):
        path = os.path.join(state, name)
        if _kind(path) == kind:
            yield from (how, path, path)
    yield from ("--remount-ro", state)


def _read_only(path: str) -> tuple[str, str, str]:
    return "--ro-bind", path, path


def _kind(path: str) -> str:
    """What is there: "" for nothing, and "link" for what could lead anywhere."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    if S_ISLNK(mode):
        return "link"
    return "directory" if S_ISDIR(mode) else "file" if S_ISREG(mode) else "special"


def _path(path: os.PathLike[str]) -> str:
    """As it is written in its real directory: if it is a link itself, that is not followed."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


@cache
def _filter(*, has_sockets: bool) -> bytes:
    """The system call filter; b"" where there is none.

    Loopback and Unix sockets exist in the namespace too, so they are allowed; what no namespace separates is not. A
    Unix socket in the workspace leads to a program outside: what only reads has no sockets at all.
    """
    return syscall_filter((UNIX, INET, INET6, NETLINK) if has_sockets else (), others=True) or b""


@cache
def _in_memory(content: bytes, process: int) -> str:
    """Content as a file in the memory of this process, which only processes of this user can open."""
    memory = os.memfd_create("forge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(memory, content)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return f"/proc/{process}/fd/{memory}"


@cache
def _can_reset_signals() -> bool:
    try:
        tried = subprocess.run(["/usr/bin/env", "--default-signal=TERM", "true"], capture_output=True, check=False)
    except OSError:
        return False
    return tried.returncode == 0
