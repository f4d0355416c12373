"""Defines what a confined program may see and change, for every sandbox."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

from forge.core.context import LayerMount, ProgramLimits, Root, Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import check_held
from forge.process.environment import find_trusted_program

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
"""Programs and libraries. Not `/var`, `/run` and `/srv`, which hold data and sockets."""

SETTINGS = tuple(
    f"/etc/{name}"
    for name in (
        "alternatives crypto-policies pki/ca-trust pki/tls/certs pki/tls/cert.pem pki/tls/openssl.cnf ssl/certs "
        "ssl/cert.pem ssl/openssl.cnf ld.so.cache localtime locale.conf passwd group nsswitch.conf hosts "
        "resolv.conf services mime.types fonts java java-8-openjdk java-11-openjdk java-17-openjdk "
        "java-21-openjdk os-release"
    ).split()
)
"""Files of /etc that programs need: each costs a tenth of a millisecond a run. No passwords, no keys, no
tokens of package managers."""

PROCESSORS = "/sys/devices/system/cpu"
CONFIGURATION = ("forge.yaml", "forge.yml")
STATE = ".forge"
SKILLS = "skills"

MOST_HIDDEN = 3  # paths that are named

_KERNEL = ("/proc", "/sys", "/dev")
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - each sandbox has its own
_PATH = re.compile(r"(?<![\w:/.@+~-])[\w.@+~-]*/[\w.@+~/-]+")  # in time that grows with the length only
_BESIDE_PROGRAMS = ("lib", "lib64", "libexec")


Listener = tuple[str, str, int]
"""A socket that listens inside a sandbox's own network: "tcp" or "udp", address, port."""


class NetworkProxy(Protocol):
    """The one way out of a sandbox that has a network of its own, as `forge.network` makes it."""

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The sockets that listen inside."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables of the program."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files that the program sees instead of the machine's own."""

    @property
    def waited(self) -> float:
        """Seconds that the program waited for a person; infinite while it waits."""

    def take(self, sockets: Sequence[int]) -> None:
        """Serves the sockets from now on, and closes them in the end. Called in any thread."""

    def report(self) -> list[dict[str, Any]]:
        """Returns what was tried and reached."""

    def close(self) -> None:
        """Ends all connections. Called in any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The paths and rights of a program besides the system's own programs; everything else is hidden."""

    workspace: Path  # writable, unless it is one of `readable` too
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()  # read-only, besides Git's hooks and settings and what is Forge's
    network: bool = False
    proxy: NetworkProxy | None = None  # instead of the network: the one way out
    home: Path | None = None  # the value of HOME; without it a private and empty directory
    read_only: bool = False  # nothing can be changed, and there is no network, whatever the other fields say
    hidden: tuple[Path, ...] = ()  # cannot be read, wherever it is
    masked: tuple[Path, ...] = ()  # the same, where the sandbox can hide single files
    sandbox: str | bool = "auto"  # the wanted one
    limits: ProgramLimits = ProgramLimits()  # noqa: RUF009 - it cannot be changed
    layers: tuple[LayerMount, ...] = ()  # over the writable folders: the program's changes stay in them


class PathRoots(Protocol):
    """The directories that tools may reach, as `forge.workspace` finds them."""

    @property
    def workspace(self) -> Path: ...
    @property
    def roots(self) -> Sequence[Root]: ...
    @property
    def writes(self) -> bool: ...
    def location_of(self, real: str) -> object | None:
        """Returns None for a path outside of them."""


def confinement_of(
    scope: Scope,
    paths: PathRoots,
    *,
    also: Sequence[Path] = (),
    network: bool | NetworkProxy = False,
    home: Path | None = None,
) -> Confinement:
    """Returns the confinement of every program that a tool, a script or a skill starts.

    It covers the workspace, the declared roots, and for reading `also`, such as a script's own folder. The skills
    of the scope, and what it declares as protected, are read-only; what it declares as hidden is masked.
    """
    workspace = paths.workspace
    beside = [root for root in paths.roots if root.path != workspace]
    writable = tuple(root.path for root in beside if root.writable and paths.writes)
    only_read = [root.path for root in beside if root.path not in writable]
    return Confinement(
        workspace=workspace,
        writable=writable,
        readable=(*only_read, *also, *([] if paths.writes else [workspace])),
        protected=tuple(
            Path(workspace, folder, name)
            for top in map(os.path.expanduser, scope.skills)
            if top != SKILLS
            for folder, name in find_skill_files(str(workspace), top)
        )
        + tuple(Path(workspace, name) for name in (*scope.protected, *scope.hidden)),
        masked=tuple(Path(workspace, name) for name in scope.hidden),
        network=network is True,
        proxy=None if isinstance(network, bool) else network,
        home=home,
        limits=scope.programs,
    )


MIB = 1024 * 1024
_COUNTS_APART = (5, 14)  # the first Linux that counts processes for each user namespace


def kernel_limits(limits: ProgramLimits, *, apart: bool) -> dict[str, int]:
    """Returns the limits of each process by their names in `resource`, none above those of Forge itself.

    `apart`: the program has a user namespace. Otherwise all processes of the user count. Root has no limit of them.
    """

    wanted = {"RLIMIT_DATA": limits.memory * MIB, "RLIMIT_NOFILE": limits.open_files}
    if limits.processes and os.geteuid() != 0:
        counted_apart = apart and _kernel_version() >= _COUNTS_APART
        wanted["RLIMIT_NPROC"] = limits.processes + (0 if counted_apart else _count_threads())
    found = {}
    for name, value in wanted.items():
        _, most = resource.getrlimit(getattr(resource, name))
        if value:
            found[name] = value if most == resource.RLIM_INFINITY else min(value, most)
    return found


def cgroup_limits(limits: ProgramLimits, controllers: Collection[str]) -> dict[str, str]:
    """Returns the values of the files of a program's cgroup. If its memory does not suffice, all of it is killed."""
    values = {}
    if limits.memory and "memory" in controllers:
        values = {"memory.max": str(limits.memory * MIB), "memory.swap.max": "0", "memory.oom.group": "1"}
    if limits.processes and "pids" in controllers:
        values["pids.max"] = str(limits.processes)
    return values


def describe_limits(
    limits: ProgramLimits, tier: str, *, temporary: bool, controllers: Collection[str] = ()
) -> dict[str, str]:
    """Describes the limits in force, for people. `temporary`: the size of temporary files can be limited.
    `controllers`: those of the cgroup of each program.
    """
    memory = f"{limits.memory:,} MiB for each process" if limits.memory else "not limited"
    if limits.memory and "memory" in controllers:
        memory += ", and for each program with all that it starts (cgroup)"
    processes = f"{limits.processes:,} for each program" if limits.processes else "not limited"
    if limits.processes and "pids" in controllers:
        processes += " (cgroup)"
    elif limits.processes and os.geteuid() == 0:
        processes = "not limited: the kernel does not apply this limit to root"
    space = f"{limits.temporary:,} MiB for each program" if limits.temporary else "not limited"
    if limits.temporary and not temporary:
        space = f"not limited: {tier} cannot do that here"
    return {
        "memory": memory,
        "processes": processes,
        "open_files": f"{limits.open_files:,} for each process" if limits.open_files else "not limited",
        "temporary": space,
    }


_SIGNS_OF_LIMITS = {
    "memory": re.compile(
        r"MemoryError|Cannot allocate memory|ENOMEM|bad_alloc|OutOfMemoryError|heap out of memory|[Oo]ut of memory"
        r"|memory allocation of \d+ bytes failed|insufficient memory|memory exhausted|mmap failed"
    ),
    "processes": re.compile(
        r"Resource temporarily unavailable|BlockingIOError: \[Errno 11\]|EAGAIN|can't start new thread"
        r"|unable to create (?:new )?(?:native )?thread|Cannot fork|fork failed"
    ),
    "open_files": re.compile(r"Too many open files|EMFILE"),
    "temporary": re.compile(r"No space left on device|ENOSPC"),
}
_SHELL_FAILED_TO_FORK = re.compile(r"^(?:\S*sh: )(?:.*: )?(?:fork: |\d+: Cannot fork)", re.MULTILINE)
_END_OF_OUTPUT = 8_000  # characters in which a program says why it ended


def explain_reached_limits(
    limits: ProgramLimits, described: Mapping[str, str], said: str, *, failed: bool, counted: Mapping[str, int]
) -> list[str]:
    """Explains the limits that a program reached, as its cgroup `counted`, or seems to have reached, by what it wrote.

    `described`: the limits in force.
    """
    end = said[-_END_OF_OUTPUT:]
    found = []
    for name, signs in _SIGNS_OF_LIMITS.items():
        if described.get(name, "not limited").startswith("not limited") or not getattr(limits, name):
            continue
        is_counted = counted.get(_CONTROLLERS.get(name, ""), 0) > 0
        is_likely = (failed and signs.search(end)) or (name == "processes" and _SHELL_FAILED_TO_FORK.search(end))
        if is_counted or is_likely:
            verb = "reached" if is_counted else "may have reached"
            found.append(
                f"it {verb} a limit of the sandbox: {_LIMIT_WORDS[name]} ({described[name]}); use less, or the person"
                f" can raise programs.{name} in forge.yaml"
            )
    return found


_CONTROLLERS = {"memory": "memory", "processes": "pids"}  # limit -> controller of cgroups
_LIMIT_WORDS = {
    "memory": "memory",
    "processes": "processes and threads",
    "open_files": "open files",
    "temporary": "space for temporary files",
}


@cache
def _kernel_version() -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", os.uname().release)[:2])


def _count_threads() -> int:
    """Counts the threads of this user, which the kernel compares with its limit of processes."""
    count, user = 0, os.getuid()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                count += max(1, len(os.listdir(f"/proc/{name}/task")))
    return count


@dataclass(frozen=True, slots=True)
class Roots:
    """The real directories of a confinement, outer ones first, each with True if it is writable."""

    workspace: str
    folders: tuple[tuple[str, bool], ...]

    @property
    def writable(self) -> list[str]:
        return [folder for folder, writable in self.folders if writable]

    def contain(self, path: str) -> bool:
        return any(is_inside(path, folder) for folder, _ in self.folders)


def roots_of(confinement: Confinement) -> Roots:
    """Resolves the roots. Raises `ToolError` for a root that would open what a sandbox must protect."""
    check_held((confinement.workspace, *confinement.writable, *confinement.readable))
    found = {os.path.realpath(path): True for path in (confinement.workspace, *confinement.writable)}
    found |= {os.path.realpath(path): False for path in confinement.readable}
    if confinement.read_only:
        found = dict.fromkeys(found, False)
    for folder, writable in found.items():
        if folder == "/" or (writable and folder in _system_folders()) or is_inside_any(folder, _KERNEL[:2]):
            raise ToolError(
                f'"{folder}" cannot be confined: it is, or contains, the system itself',
                ErrorKind.CONFIG,
                "Choose a separate directory as the workspace or root, or set sandbox: off.",
            )
    return Roots(os.path.realpath(confinement.workspace), tuple(sorted(found.items(), key=_depth)))


@cache
def _system_folders() -> frozenset[str]:
    """Returns the folders that no program may write, also where they are links, as /bin is."""
    return frozenset((*SYSTEM, *map(os.path.realpath, SYSTEM), "/etc", "/dev"))


def program_folders(env: Mapping[str, str], roots: Roots) -> list[str]:
    """Returns the folders of programs on PATH and of this Python, outside the system and the roots."""
    folders = _program_folders(env.get("PATH", ""), env.get("VIRTUAL_ENV", ""), sys.prefix, sys.base_prefix)
    return [
        folder
        for folder in folders
        if not roots.contain(folder) and not any(is_inside(root, folder) for root, _ in roots.folders)
    ]


def find_hidden(texts: Sequence[str], confinement: Confinement, env: Mapping[str, str], directory: Path) -> list[str]:
    """Returns the paths in these texts that a sandbox hides from a program in this directory, the first ones first.

    A path counts as written, whether or not something is there: the answer must not reveal what exists outside. Only
    in the folder for temporary files, where programs make files of their own, and through links, it must exist.
    """
    try:
        roots = roots_of(confinement)
    except (ToolError, OSError):
        return []
    seen = (*SYSTEM, *SETTINGS, *_KERNEL, *program_folders(env, roots), *(folder for folder, _ in roots.folders))
    found: dict[str, None] = {}
    for word in (one for text in texts for one in _PATH.findall(text)):
        path = os.path.join(directory, word.rstrip(".,;:"))
        real = os.path.realpath(path)
        is_shown = is_inside_any(real, seen)
        needs_proof = not word.startswith("/") or is_inside_any(os.path.normpath(path), _TEMPORARY)
        if not is_shown and len(found) < MOST_HIDDEN and (not needs_proof or os.path.lexists(real)):
            found[word.rstrip(".,;:")] = None
    return list(found)


def own_folders(roots: Roots) -> list[str]:
    """Returns the folders this process runs from, if a program could write them: a change would run outside the
    sandbox.
    """
    return [
        folder
        for folder in _own_prefixes(sys.prefix, sys.base_prefix)
        if any(is_inside(folder, root) and folder != root for root in roots.writable)
    ]


def find_skill_files(root: str, within: str = SKILLS) -> list[tuple[str, str]]:
    """Returns folder and name of each skill below a directory: a program must not change what skills deny."""
    found: list[tuple[str, str]] = []
    top = os.path.join(root, within)
    if os.path.islink(top):
        return found
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if os.path.isfile(os.path.join(entry.path, "SKILL.md")):
                    found.append((os.path.join(within, entry.name), "SKILL.md"))
            elif entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
                found.append((within, entry.name))
    return found


MOST_LINKS = 40


def follow_links(path: str) -> tuple[list[str], str]:
    """Returns the links on the way of a path, each by its real place, and where they lead in the end."""
    links: list[str] = []
    current, ahead = "/", os.path.abspath(path).split("/")[::-1]
    while ahead:
        name = ahead.pop()
        place = os.path.normpath(os.path.join(current, name))
        if os.path.islink(place) and len(links) < MOST_LINKS:
            links.append(place)
            target = os.path.join(current, os.readlink(place))
            current, ahead = "/", [*ahead, *target.split("/")[::-1]]
        else:
            current = place
    return links, current


def folders_above(path: str, root: str) -> list[str]:
    """Returns the folders between a root and a path in it, the outer ones first."""
    parts = os.path.relpath(path, root).split("/")[:-1]
    return [os.path.join(root, *parts[: depth + 1]) for depth in range(len(parts))]


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def is_inside_any(path: str, folders: tuple[str, ...]) -> bool:
    return any(is_inside(path, folder) for folder in folders)


@cache
def _own_prefixes(*prefixes: str) -> tuple[str, ...]:
    package = str(Path(__file__).parents[2])
    return tuple(dict.fromkeys(os.path.realpath(path) for path in (*prefixes, package)))


@cache
def _program_folders(path: str, environment: str, *prefixes: str) -> tuple[str, ...]:
    homes = {os.path.realpath(home) for home in (os.path.expanduser("~"), os.environ.get("HOME", "")) if home}
    wanted: dict[str, None] = {}
    for folder in (*prefixes, environment, *_list_beside(path.split(os.pathsep), homes)):
        for spelling in (os.path.normpath(folder), os.path.realpath(folder)) if os.path.isabs(folder) else ():
            too_much = spelling == "/" or any(is_inside(home, spelling) for home in homes)
            if not too_much and os.path.isdir(spelling) and not is_inside_any(spelling, (*SYSTEM, "/etc", *_KERNEL)):
                wanted[spelling] = None
    ordered = sorted(wanted, key=len)
    return tuple(one for one in ordered if not any(is_inside(one, other) and one != other for other in ordered))


def _list_beside(folders: list[str], homes: set[str]) -> Iterator[str]:
    for folder in folders:
        yield folder
        parent, name = os.path.split(os.path.normpath(folder))
        if os.path.realpath(parent) in homes:  # folders beside ~/bin are the person's
            continue
        if name == "shims":  # shims of a version manager start programs beside them
            yield parent
        elif name in ("bin", "sbin"):
            yield from (os.path.join(parent, beside) for beside in _BESIDE_PROGRAMS)


def _depth(item: tuple[str, bool]) -> int:
    return item[0].count("/")


# Defines a command line to start, with the files to open for the program.


_READING, _APPENDING = os.O_RDONLY, os.O_WRONLY | os.O_APPEND


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command to start. The starter opens its files, makes its cgroup and, if wanted, makes it ignore SIGTERM."""

    argv: list[str]
    reads: tuple[tuple[int, str], ...] = ()  # descriptor and path of each file that it reads from the beginning
    appends: tuple[tuple[int, str], ...] = ()  # of each file that it writes to at the end
    ignores_term: bool = False  # it starts with SIGTERM ignored
    cgroup: tuple[str, tuple[tuple[str, str], ...]] | None = (
        None  # where to make its cgroup, and the values of its files
    )
    layers: tuple[LayerMount, ...] = ()  # mounted before it starts; only a keeper can do that
    listens: tuple[Listener, ...] = ()  # sockets that its starter makes inside its network, before it begins …
    on_listening: Callable[[list[int]], None] | None = None  # … and who gets their descriptors, in any thread
    variables: Mapping[str, str] = field(default_factory=dict)  # in place of those of the same name that it would get

    @property
    def files(self) -> list[tuple[int, str, int]]:
        """Descriptor, path and open flags of each file."""
        return [(*one, _READING) for one in self.reads] + [(*one, _APPENDING) for one in self.appends]

    def in_shell(self) -> list[str]:
        """Returns one command line for starting it without a keeper: a shell opens the files. It has no cgroup."""
        assert not self.layers, "only a keeper mounts layers"
        if not self.files and not self.ignores_term:
            return self.argv
        opened = [f"{number}<{path}" for number, path in self.reads]
        opened += [f"{number}>>{path}" for number, path in self.appends]
        ignored = 'trap "" TERM; ' if self.ignores_term else ""
        return ["/bin/sh", "-c", f'{ignored}exec "$@" {" ".join(opened)}', "sh", *self.argv]


# Makes folders for one run of a program: files that a sandbox needs, and an empty home directory.


_NAME = re.compile(r"forge-run-(\d+)-(\d+)-[0-9a-f]{16}")
_lock = threading.Lock()
_made: set[str] = set()


def make_private_folder() -> str:
    """Makes an empty folder that only this user can use. `remove_folder` or the end of this process removes it."""
    directory = tempfile.gettempdir()
    with _lock:
        _tidy(directory)
        folder = os.path.join(directory, f"forge-run-{os.geteuid()}-{os.getpid()}-{secrets.token_hex(8)}")
        os.mkdir(folder, 0o700)
        _made.add(folder)
    return folder


def remove_folder(folder: str) -> None:
    with _lock:
        _made.discard(folder)
    shutil.rmtree(folder, ignore_errors=True)


@cache
def _tidy(directory: str) -> None:
    """Removes folders that killed processes of this user left behind, once."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            found = _NAME.fullmatch(name)
            if found and int(found[1]) == os.geteuid() and not _runs(int(found[2])):
                shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove_all() -> None:
    for folder in tuple(_made):
        remove_folder(folder)


def _reset_after_fork() -> None:
    """Forgets the folders, which belong to the parent process."""
    global _lock
    _lock = threading.Lock()
    _made.clear()


atexit.register(_remove_all)
os.register_at_fork(after_in_child=_reset_after_fork)


# Reads the person's Git identity for programs in a sandbox, which cannot read it themselves but commit in that
# name.


_WANTED = (
    r"^(user\.(name|email)|init\.defaultbranch|safe\.directory)$"  # nothing here names a program or holds a secret
)
_GIT_SECONDS = 5.0


def git_settings(workspace: str) -> bytes:
    """Returns the person's name, address and similar settings as a settings file; b"" if there are none."""
    home, more = os.path.expanduser("~"), os.environ.get("XDG_CONFIG_HOME", "")
    return _read_settings(workspace, home, more) if os.path.isabs(home) else b""


@lru_cache(maxsize=64)
def _read_settings(workspace: str, home: str, more: str) -> bytes:
    git = find_trusted_program("git", [])
    if git is None or _lies_in(git, workspace):
        return b""
    env = {"PATH": os.defpath, "HOME": home, **({"XDG_CONFIG_HOME": more} if more else {})}
    argv = [git, "config", "--global", "--includes", "--null", "--get-regexp", _WANTED]
    try:
        ended = subprocess.run(
            argv,
            cwd=workspace,  # some settings are for certain directories only
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return b"".join(_format_settings(ended.stdout)) if ended.returncode == 0 else b""


def _lies_in(program: str, workspace: str) -> bool:
    return os.path.realpath(program).startswith(f"{workspace.rstrip('/')}/")


def _format_settings(output: bytes) -> Iterator[bytes]:
    for entry in output.split(b"\0"):
        key, _, value = entry.partition(b"\n")
        section, _, name = key.partition(b".")
        if name and value and b"\n" not in value:
            quoted = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            yield b'[%s]\n\t%s = "%s"\n' % (section, name, quoted)
