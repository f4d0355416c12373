"""Confines a program with bubblewrap: in its own namespaces it sees only what it may reach."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from stat import S_IFCHR, S_IMODE, S_ISDIR, S_ISLNK, S_ISREG

from forge.core.errors import ErrorKind, ToolError
from forge.process.environment import find_trusted_program
from forge.process.git_hooks import hook_folders
from forge.process.sandbox.landlock_program import INET, INET6, NETLINK, UNIX, syscall_filter
from forge.process.sandbox.layout import (
    CONFIGURATION,
    MIB,
    PROCESSORS,
    SETTINGS,
    SKILLS,
    STATE,
    SYSTEM,
    CommandLine,
    Confinement,
    NetworkProxy,
    Roots,
    find_skill_files,
    folders_above,
    follow_links,
    git_settings,
    is_inside,
    is_inside_any,
    kernel_limits,
    make_private_folder,
    own_folders,
    program_folders,
    remove_folder,
    roots_of,
)

HOW = "Install it: apt-get install bubblewrap (or dnf, pacman, apk, zypper)."

HOME = "/tmp/.forge-home"  # noqa: S108 - of a /tmp that only this run has
OTHER_HOME = "/.forge-home"
OTHER_TEMPORARY = "/var/tmp"  # noqa: S108 - the same as /tmp, unless the workspace or a program lies there
GIT_SETTINGS = "/etc/gitconfig"
MOST_WORDS = 9_000  # limit of bubblewrap, the program's words included

_FILTER, _GIT, _STATUS = 9, 8, 7  # descriptors of the filter, the person's Git settings, and bubblewrap's report
_SHELL_SAYS = 6
INFO, BLOCK = 10, 11  # bubblewrap writes its child's number there, and waits until it can read
_FIRST_FILE = 12  # … of the files that a proxy gives to the program
_SIGNALS = 128  # exit codes above this one may stand for signals
_ENV = "/usr/bin/env"
# bubblewrap turns a signal into an exit code above 128, which a program can also choose. A shell reports which it was,
# on its own standard error, apart from the program's.
_NAMING_SIGNALS = 'exec 5>&2 2>&6 6>&-; (exec "$@" 2>&5 5>&-); exit $?'
_ENDED = re.compile(rb'^\{ "exit-code": \d+ \}$', re.MULTILINE)
_REPORT = re.compile(rb"^\{ .* \}$", re.MULTILINE)
_ULIMITS = (("RLIMIT_DATA", "d", 1024), ("RLIMIT_NOFILE", "n", 1))  # name, letter of the shell, bytes or pieces
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")  # those that bubblewrap shows
_DEVICE_MODE = S_IFCHR | 0o666
MOST_SKILLS = 100  # each costs two mounts; beyond that, their whole folder is read-only
_BINDABLE = ("file", "directory")  # never a link: a program may have made it to expose its target
_GIT_READ_ONLY = ("worktrees", "modules")  # they hold settings of other work trees and of submodules


def find_bubblewrap(writable: Iterable[str] = ()) -> str:
    """Returns the path of bubblewrap, outside of what a confined program may write."""
    found = _find_bubblewrap(tuple(writable), os.environ.get("PATH", ""))
    if found is None:
        raise ToolError("bubblewrap is not installed", ErrorKind.CONFIG, HOW)
    return found


@lru_cache(maxsize=32)
def _find_bubblewrap(writable: tuple[str, ...], path: str) -> str | None:
    """Caches the search; `path`: the PATH, which may change."""
    return find_trusted_program("bwrap", map(Path, writable))


def build_command(
    argv: Sequence[str], confinement: Confinement, env: Mapping[str, str], *, folder: str = "", status: str = ""
) -> CommandLine:
    """Builds the command line, to be started with `env` in a directory below a root: values are not on the command
    line, which all users of the machine can read. `status`: the file that receives the exit status. `folder` is not
    used here.
    """
    roots = roots_of(confinement)
    gentle = _can_reset_signals() and "=" not in argv[0]
    words = [find_bubblewrap(roots.writable), *_namespaces(confinement)]
    words += [*_system(_temporary_size(confinement)), *_devices()]
    words += _mounts(confinement, roots, env)
    words += _variables(confinement, roots)
    given = {_FILTER: _filter(writes=not confinement.read_only), _GIT: git_settings(roots.workspace)}
    if given[_FILTER]:
        words += ["--seccomp", str(_FILTER)]
    proxy = None if confinement.read_only or confinement.network else confinement.proxy
    if proxy is not None:
        words += _open_proxy(proxy)
        given |= dict(enumerate(proxy.files.values(), _FIRST_FILE))
    if status:
        words += ["--json-status-fd", str(_STATUS), "--as-pid-1"]  # the shell below also reaps orphans, as pid 1 must
    words += [
        "--",
        *_shell(confinement, names_signals=bool(status)),
        *((_ENV, "--default-signal=TERM") if gentle else ()),
        *argv,
    ]
    if len(words) > MOST_WORDS:
        most = MOST_WORDS - len(words) + len(argv)
        raise ToolError(
            f"the command has {len(argv):,} arguments; the limit of bubblewrap is {most:,}",
            ErrorKind.VALIDATION,
            "Put them into a file or stdin, or split the work into several calls.",
        )
    return CommandLine(
        words,
        reads=tuple((number, _make_memory_file(content, os.getpid())) for number, content in given.items() if content),
        appends=((_STATUS, status), (_SHELL_SAYS, status)) if status else (),
        listens=proxy.listeners if proxy is not None else (),
        on_listening=proxy.take if proxy is not None else None,
        variables=proxy.variables if proxy is not None else {},  # bubblewrap itself must not hold what they replace
        ignores_term=gentle,  # bubblewrap must survive SIGTERM, or the kernel kills the program before it can end
        layers=confinement.layers,
    )


def _open_proxy(proxy: NetworkProxy) -> list[str]:
    """Returns the words for a network with a proxy in it: bubblewrap waits until its sockets are there."""
    words = ["--info-fd", str(INFO), "--block-fd", str(BLOCK)]
    for number, path in enumerate(proxy.files, _FIRST_FILE):
        words += ["--ro-bind-data", str(number), path]
    return words


def _shell(confinement: Confinement, *, names_signals: bool) -> list[str]:
    """Returns the shell that starts the program: it lowers the limits, which costs a keeper nothing."""
    wanted = kernel_limits(confinement.limits, apart=True)
    lines = [f"ulimit -{letter} {wanted[name] // unit}" for name, letter, unit in _ULIMITS if name in wanted]
    if "RLIMIT_NPROC" in wanted:  # shells have two letters for it
        most = wanted["RLIMIT_NPROC"]
        lines.append(f"{{ ulimit -u {most} 2>&- || ulimit -p {most}; }}")
    if not lines and not names_signals:
        return []
    return ["/bin/sh", "-c", "; ".join([*lines, _NAMING_SIGNALS if names_signals else 'exec "$@"']), "sh"]


def limits_temporary_files() -> bool:
    """Returns whether this bubblewrap can limit the size of temporary files (since version 0.8)."""
    try:
        return _has_size(find_bubblewrap())
    except ToolError:  # it was there a moment ago
        return False


@cache
def _has_size(program: str) -> bool:
    try:
        said = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    return "--size " in said


def _temporary_size(confinement: Confinement) -> int:
    return confinement.limits.temporary * MIB if limits_temporary_files() else 0


def explain_failed_start(argv: Sequence[str], exit_code: int, status: bytes, said: str) -> tuple[int, str] | None:
    """Returns why the program never ran: an error number if it could not be started, and words; None if it ran."""
    first = said.strip()
    if exit_code in (126, 127) and first.startswith((f"{_ENV}: ", "env: ")) and argv[0] in first and "\n" not in first:
        return (errno.ENOENT if exit_code == 127 else errno.EACCES), first
    if _ENDED.search(status):
        return None
    last = (said.strip().splitlines() or [f"it ended with exit code {exit_code}"])[-1]
    return 0, last.removeprefix("bwrap: ")


def is_signal_exit(exit_code: int, status: bytes) -> bool:
    """Returns whether an exit code above 128 stands for a signal."""
    return exit_code > _SIGNALS and bool(_ENDED.search(status)) and bool(_REPORT.sub(b"", status).strip())


def _variables(confinement: Confinement, roots: Roots) -> list[str]:
    settings = GIT_SETTINGS if git_settings(roots.workspace) else os.devnull
    values = {"HOME": str(confinement.home or _home_directory(roots)), "GIT_CONFIG_SYSTEM": settings}
    if confinement.home is None:  # a caller that names a home sets the whole environment; /tmp is the default anyway
        values["TMPDIR"] = "/tmp"  # noqa: S108
    return [word for name, value in values.items() for word in ("--setenv", name, value)]


def _namespaces(confinement: Confinement) -> list[str]:
    words = ["--unshare-all", "--cap-drop", "ALL", "--die-with-parent"]
    return [*words, "--share-net"] if confinement.network and not confinement.read_only else words


def _home_directory(roots: Roots) -> str:
    """Returns an empty directory of this run alone, also if /tmp is a root."""
    return OTHER_HOME if roots.contain(HOME) else HOME


@cache
def _system(temporary: int) -> tuple[str, ...]:
    """Returns the mounts that all programs share: the system, read-only; private processes, devices and /tmp.

    `temporary`: bytes that /tmp may hold, and /dev/shm a quarter of it; 0: no limit.
    """
    words: list[str] = []
    shown: list[str] = []
    for path in (*SYSTEM, *SETTINGS, PROCESSORS):
        real = os.path.realpath(path)
        if not os.path.exists(real):
            continue
        if real != path and is_inside_any(real, tuple(shown)):
            words += ["--symlink", real, path]
        else:
            words += ["--ro-bind", real, path]
        shown.append(path)
    # Root's programs own what the kernel offers in /proc/sys, even without a capability: nothing in /proc is writable.
    words += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    for folder, size in (("/dev/shm", temporary // 4), ("/tmp", temporary)):  # noqa: S108
        words += ["--perms", "1777", *_make_temporary(folder, size)]
    return tuple(words)


def _make_temporary(folder: str, size: int) -> tuple[str, ...]:
    return (*(("--size", str(size)) if size else ()), "--tmpfs", folder)


def _devices() -> list[str]:
    """Returns mounts of devices for root's programs, which could change modes and owners of the machine's own ones."""
    return [word for path in _make_devices() for word in ("--dev-bind", path, f"/dev/{os.path.basename(path)}")]


def _make_devices() -> list[str]:
    """Makes devices of this process, again if a program changed them; none for an ordinary user or if impossible."""
    if os.geteuid() != 0 or not (folder := _device_folder(os.getpid())):
        return []
    if not os.path.isdir(folder):  # whoever tidies up temporary files took it
        _device_folder.cache_clear()
        if not (folder := _device_folder(os.getpid())):
            return []
    for name in _DEVICES:
        path = os.path.join(folder, name)
        try:
            found = os.lstat(path)
            if (found.st_mode, found.st_uid, found.st_gid) == (_DEVICE_MODE, 0, 0):
                continue
            os.unlink(path)
        except FileNotFoundError:
            pass
        os.mknod(path, _DEVICE_MODE, os.lstat(f"/dev/{name}").st_rdev)
        os.chmod(path, S_IMODE(_DEVICE_MODE))
    return [os.path.join(folder, name) for name in _DEVICES]


@cache
def _device_folder(process: int) -> str:
    """Makes the folder for devices; returns "" if no device can be made or opened there, as in many containers."""
    folder = make_private_folder()
    try:
        os.mknod(tried := os.path.join(folder, _DEVICES[0]), _DEVICE_MODE, os.lstat(os.devnull).st_rdev)
        os.close(os.open(tried, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        remove_folder(folder)
        return ""
    return folder


def _mounts(confinement: Confinement, roots: Roots, env: Mapping[str, str]) -> list[str]:
    """Returns the mounts in order: later ones cover earlier ones."""
    spelled = os.path.abspath(confinement.workspace)
    programs = program_folders(env, roots)
    shown = (*SYSTEM, *SETTINGS, *programs, *(folder for folder, _ in roots.folders))
    words: list[str] = []
    if any(is_inside_any(path, (OTHER_TEMPORARY,)) for path in (*shown, spelled)):
        words += ["--perms", "1777", *_make_temporary(OTHER_TEMPORARY, _temporary_size(confinement) // 4)]
    else:
        words += ["--symlink", "/tmp", OTHER_TEMPORARY]  # noqa: S108 - nothing can be mounted behind a link
    for folder in programs:
        words += _bind_read_only(folder)
    home = _home_directory(roots)
    words += ["--perms", "0700"]
    words += ["--dir", home] if home == HOME else _make_temporary(home, _temporary_size(confinement))
    for folder, writable in roots.folders:
        words += ["--bind" if writable else "--ro-bind-try", folder, folder]
    protected, around = _find_protected(confinement, roots)
    for folder in around:  # a mount point cannot be moved; before others, since it would cover theirs
        words += ["--bind", folder, folder]
    for folder, writable in roots.folders:
        if writable:
            words += _protect_project(folder, around)
        words += _hide_state(folder, writable=writable)
    for folder in (*own_folders(roots), *protected):
        if roots.contain(folder) and _kind(folder) in _BINDABLE:
            words += _bind_read_only(folder)
    if spelled != roots.workspace and not roots.contain(spelled) and not is_inside_any(spelled, SYSTEM):
        words += ["--symlink", roots.workspace, spelled]
    if git_settings(roots.workspace):
        words += ["--file", str(_GIT), GIT_SETTINGS]
    for real in dict.fromkeys(map(os.path.realpath, (*confinement.hidden, *confinement.masked))):
        words += _hide(real) if is_inside_any(real, shown) else []
    if not roots.contain("/dev"):
        words += ["--remount-ro", "/dev"]
    return [*words, "--remount-ro", "/"]


def _find_protected(confinement: Confinement, roots: Roots) -> tuple[list[str], list[str]]:
    """Returns the protected paths, where links lead, and the folders around them and around the links."""
    paths: dict[str, None] = {}
    around: set[str] = set()
    for one in confinement.protected:
        links, real = follow_links(str(one))
        for place in (*links, real):
            root = next((folder for folder, _ in reversed(roots.folders) if is_inside(place, folder)), "")
            if not root or place == root:
                continue
            is_state = is_inside_any(place, (os.path.join(root, STATE),))
            if place == real and not (links and is_state):  # a program may have made the link to expose Forge's state
                paths[place] = None
            if (root, True) in roots.folders and not is_state:
                around |= {folder for folder in folders_above(place, root) if _kind(folder) == "directory"}
    return list(paths), sorted(around - set(paths))


def _hide(path: str) -> list[str]:
    """Hides a path from reading. A device instead of a file cannot be opened, since the mount has no devices."""
    match _kind(path):
        case "":
            return []
        case "directory":
            return ["--perms", "0000", "--tmpfs", path, "--remount-ro", path]
        case _:
            return ["--ro-bind", os.devnull, path]


def _protect_project(root: str, mounted: Sequence[str]) -> Iterator[str]:
    """Protects Git's settings and hooks, which run programs, and Forge's configuration and skills.

    `mounted`: folders that are mount points already; another mount would cover those in them.
    """
    git = os.path.join(root, ".git")
    kind = _kind(git)
    if kind == "file" or (kind == "directory" and not os.path.lexists(os.path.join(git, "HEAD"))):
        yield from _bind_read_only(git)
    elif kind == "directory":
        yield from _bind_once((git,), mounted)  # a mount point cannot be moved or replaced
        yield from _protect_git(git)
    yield from _protect_named_hooks(root, mounted)
    for name in CONFIGURATION:
        path = os.path.join(root, name)
        if _kind(path) in _BINDABLE:
            yield from _bind_read_only(path)
    yield from _protect_skills(root, mounted)


def _bind_once(folders: Iterable[str], mounted: Sequence[str]) -> Iterator[str]:
    yield from (word for folder in folders if folder not in mounted for word in ("--bind", folder, folder))


def _protect_named_hooks(root: str, mounted: Sequence[str]) -> Iterator[str]:
    """Protects hooks in a folder that the settings name; mounts its parents, so that they cannot be moved."""
    for name in hook_folders(root):
        parts = name.split("/")
        around = [os.path.join(root, *parts[:depth]) for depth in range(1, len(parts) + 1)]
        if all(_kind(folder) == "directory" for folder in around):
            yield from _bind_once(around[:-1], mounted)
            yield from _bind_read_only(around[-1])


def _protect_skills(root: str, mounted: Sequence[str]) -> Iterator[str]:
    """Protects the files of skills, which may deny calls; mounts their folders, so that they cannot be moved."""
    files = find_skill_files(root)
    top = os.path.join(root, SKILLS)
    if len(files) > MOST_SKILLS:
        yield from _bind_read_only(top)
        return
    folders = sorted({top, *(os.path.join(root, folder) for folder, _ in files)} if files else ())
    yield from _bind_once(folders, mounted)
    for folder, name in files:
        path = os.path.join(root, folder, name)
        if _kind(path) in _BINDABLE:
            yield from _bind_read_only(path)


def _protect_git(git: str) -> Iterator[str]:
    hooks, config = os.path.join(git, "hooks"), os.path.join(git, "config")
    if _kind(hooks) == "directory":
        yield from _bind_read_only(hooks)
    elif not _kind(hooks):  # this leaves an empty directory, as Git itself makes it
        yield from ("--tmpfs", hooks, "--remount-ro", hooks)
    if _kind(config) == "file":
        yield from _bind_read_only(config)
    elif not _kind(config):  # this leaves an empty file, which means the same to Git as none
        yield from ("--ro-bind", os.devnull, config)
    for name in _GIT_READ_ONLY:
        if _kind(os.path.join(git, name)) == "directory":
            yield from _bind_read_only(os.path.join(git, name))
    common = os.path.join(git, "commondir")
    if _kind(common) == "file":
        yield from _bind_read_only(common)


def _hide_state(root: str, *, writable: bool) -> Iterator[str]:
    """Hides Forge's state, except the files it made for the model."""
    state = os.path.join(root, STATE)
    if _kind(state) != "directory":
        return
    yield from ("--tmpfs", state)
    for name, how, kind in (
        ("files", "--bind" if writable else "--ro-bind", "directory"),
        ("spill", "--ro-bind", "directory"),
        (".gitignore", "--ro-bind", "file"),  # without it `git add --all` would add the rest
    ):
        path = os.path.join(state, name)
        if _kind(path) == kind:
            yield from (how, path, path)
    yield from ("--remount-ro", state)


def _bind_read_only(path: str) -> tuple[str, str, str]:
    return "--ro-bind", path, path


def _kind(path: str) -> str:
    """Returns the kind of a path: "" for nothing, "link" for any link."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    if S_ISLNK(mode):
        return "link"
    return "directory" if S_ISDIR(mode) else "file" if S_ISREG(mode) else "special"


@cache
def _filter(*, writes: bool) -> bytes:
    """Returns the system call filter; b"" if there is none.

    Loopback and Unix sockets also exist in the namespace, so they are allowed. A Unix socket in the workspace leads to
    a program outside: a read-only command gets no sockets at all, and changes no modes and owners.
    """
    families = (UNIX, INET, INET6, NETLINK) if writes else ()
    return syscall_filter(families, others=True, attributes=writes) or b""


@cache
def _make_memory_file(content: bytes, process: int) -> str:
    """Puts content into a file in memory, which only processes of this user can open."""
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
