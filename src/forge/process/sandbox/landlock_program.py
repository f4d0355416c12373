"""Confines itself with Landlock and a system call filter, and then becomes another program.

It starts with the standard library alone; `landlock.py` builds its command line. If it cannot set something up, it
reports the error and ends: nothing runs half confined. bubblewrap uses the same filter.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable
from stat import S_ISDIR

STARTED = b"started"  # in the status file before the program begins; an error number follows if it cannot
FAILED = 126  # exit code if it cannot confine; a shell uses it for a program that cannot be run

_GENERIC = 1  # the column of the numbers that newer architectures share
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, _GENERIC), "riscv64": (0xC00000F3, _GENERIC)}

_FLAGS = ("network", "mounts", "fixed")
_Numbers = dict[str, tuple[int, int | None]]
_Instruction = tuple[int, int, int, int]

# Calls that no program in a sandbox needs, and that attacks on the kernel or the outside use.
_DENIED: _Numbers = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265), "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "vhangup": (153, 58),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "syslog": (103, 116),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None),
}  # fmt: skip
# Programs have an alternative, and use it if these seem not to exist.
_ABSENT: _Numbers = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
}
# Calls about other processes, which bubblewrap hides.
_OTHERS: _Numbers = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
}  # fmt: skip
_SOCKET, _SOCKETPAIR, _IOCTL, _CLONE, _UNSHARE = (41, 198), (53, 199), (16, 29), (56, 220), (272, 97)
_TRUNCATE = (76, 45)
# Calls that change a file's mode, owner, times or attributes. Landlock does not check them.
_ATTRIBUTES: _Numbers = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}  # fmt: skip
_NAMESPACES = 0x7E020080  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET and TIME
_INJECTING = (0x5412, 0x541C)  # ioctl: TIOCSTI and TIOCLINUX type into a terminal
_X32 = 0x40000000

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16  # families of sockets
_STREAM, _PACKETS = 1, 5  # kinds of Unix sockets that cannot be pointed at an address once they are a pair

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06  # classic BPF
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in the filter's input
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000


def syscall_filter(
    families: Iterable[int], *, others: bool, by_name: bool = False, attributes: bool = True, machine: str = ""
) -> bytes | None:
    """Builds the filter in the kernel's format; None if this machine's numbers are unknown.

    `families`: of sockets that may be made. `others`: True allows calls about other processes. `by_name`:
    refuse `truncate`, which early Landlock does not check. `attributes`: True allows to change modes, owners, times and
    attributes of files.
    """
    found = _MACHINES.get(machine or os.uname().machine)
    if found is None:
        return None
    audit, column = found
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, audit),
        _refuse(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column != _GENERIC:
        code += [(_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)]
    denied = _DENIED | ({} if others else _OTHERS) | ({} if attributes else _ATTRIBUTES)
    denied |= {"truncate": _TRUNCATE} if by_name else {}
    for calls, number in ((denied, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for call in calls.values():
            if (value := call[column]) is not None:
                code += [(_EQUAL, 0, 1, value), _refuse(number)]
    permitted = tuple(families)
    code += _when(_SOCKET[column], [(_LOAD, 0, 0, _FIRST), *_allow_only(permitted)])
    if UNIX not in permitted:
        code += _when(
            _SOCKETPAIR[column], [(_LOAD, 0, 0, _SECOND), (_AND, 0, 0, 0xF), *_allow_only((_STREAM, _PACKETS))]
        )
    code += _when(_IOCTL[column], [(_LOAD, 0, 0, _SECOND), *_refuse_all(_INJECTING)])
    for call in (_CLONE, _UNSHARE):
        no_namespaces = [(_ANY_BIT, 0, 1, _NAMESPACES), _refuse(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
        code += _when(call[column], [(_LOAD, 0, 0, _FIRST), *no_namespaces])
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *one) for one in code)


def _refuse(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _REFUSE | number)


def _when(call: int, then: list[_Instruction]) -> list[_Instruction]:
    """Applies `then` to one call; `then` must end the filter, since it loads another value."""
    return [(_EQUAL, 0, len(then), call), *then]


def _allow_only(values: tuple[int, ...]) -> list[_Instruction]:
    passing = [one for value in values for one in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]
    return [*passing, _refuse(errno.EPERM)]


def _refuse_all(values: tuple[int, ...]) -> list[_Instruction]:
    refused = [one for value in values for one in ((_EQUAL, 0, 1, value), _refuse(errno.EPERM))]
    return [*refused, (_RETURN, 0, 0, _ALLOW)]


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every machine
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHARACTER, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE_FILE, _DEVICE_IOCTL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE_FILE | _DEVICE_IOCTL
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many kinds of access each version of Landlock knows; later ones: 16
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract Unix sockets and signals

_NO_NEW_PRIVILEGES, _SECCOMP, _DROP_FROM_BOUND, _AMBIENT = 38, 22, 24, 47  # prctl
_FILTER, _CLEAR_ALL, _CAPABILITIES_3 = 2, 4, 0x20080522
_CAPGET, _CAPSET = (125, 90), (126, 91)

_libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """Returns the version of Landlock's interface, 0 if there is none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def confine(
    readable: list[str],
    writable: list[str],
    devices: list[str],
    *,
    network: bool,
    mounts: bool = False,
    attributes: bool = True,
) -> None:
    """Confines this process and its descendants forever. Raises OSError if something is not available.

    `mounts`: also mount everything else read-only, since Landlock does not check changes of modes, owners and times.
    """
    version = landlock_version()
    if not version:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock, or it is switched off")
    families = (INET, INET6, NETLINK) if network else ()
    program = syscall_filter(families, others=False, by_name=version < 3, attributes=attributes)
    if program is None:
        raise OSError(errno.ENOSYS, f"there is no system call filter for {os.uname().machine}")
    if mounts:
        _mount_read_only(writable)
    _drop_capabilities()
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _restrict_files(version, readable, writable, devices, network=network)
    _filter_calls(program)


def _restrict_files(
    version: int, readable: list[str], writable: list[str], devices: list[str], *, network: bool
) -> None:
    everything = (1 << _BITS.get(version, 16)) - 1
    attributes = struct.pack("QQQ", everything, 0 if network else _TCP, _SCOPES)
    size = 8 if version < 4 else 16 if version < 6 else 24  # of what this version knows
    rules = _call("syscall", _CREATE_RULESET, attributes[:size], ctypes.c_size_t(size), ctypes.c_uint(0))
    try:
        no_devices = everything & ~(_MAKE_CHARACTER | _MAKE_BLOCK | _DEVICE_IOCTL)
        for paths, access in (
            (readable, _READING),
            (writable, no_devices),
            (devices, _READ_FILE | _WRITE_FILE | _DEVICE_IOCTL),
        ):
            for path in paths:
                _permit(rules, path, access & everything)
        _call("syscall", _RESTRICT_SELF, rules, ctypes.c_uint(0))
    finally:
        os.close(rules)


def _permit(rules: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a missing path needs no permission
        return
    try:
        if not S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_FILES
        _call("syscall", _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", access, descriptor), ctypes.c_uint(0))
    finally:
        os.close(descriptor)


_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same numbers on every machine
_NEW_MOUNTS, _NEW_USER, _PRIVATE, _RECURSIVE = 0x20000, 0x10000000, 1 << 18, 1 << 14
_CLONE_TREE, _TREE_BELOW, _FROM_DESCRIPTOR, _READ_ONLY = 1, 0x8000, 4, 1
_HERE = -100  # AT_FDCWD


def _mount_read_only(writable: list[str]) -> None:
    """Mounts everything but the writable folders read-only, in a mount namespace of this process alone."""
    user, group, start = os.geteuid(), os.getegid(), os.getcwd()
    if _libc.unshare(_NEW_MOUNTS) < 0:  # only root may do that without a user namespace
        _call("unshare", _NEW_MOUNTS | _NEW_USER)
        for name, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(content)
    _call("mount", None, b"/", None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None)
    trees = {}
    for folder in filter(os.path.exists, writable):
        flags = ctypes.c_uint(_CLONE_TREE | _TREE_BELOW | os.O_CLOEXEC)
        trees[folder] = _call("syscall", _OPEN_TREE, _HERE, os.fsencode(folder), flags)
    wanted = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    _call("syscall", _MOUNT_SETATTR, _HERE, b"/", ctypes.c_uint(_TREE_BELOW), wanted, ctypes.c_size_t(len(wanted)))
    for folder in sorted(trees, key=len):  # outer ones first
        _call("syscall", _MOVE_MOUNT, trees[folder], b"", _HERE, os.fsencode(folder), ctypes.c_uint(_FROM_DESCRIPTOR))
        os.close(trees[folder])
    os.chdir(start)  # the directory is still the one below the new mounts


def _filter_calls(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _call("prctl", _SECCOMP, _FILTER, description, 0, 0)


def _drop_capabilities() -> None:
    """Drops all capabilities forever: not even a program of root's gets one back."""
    _, column = _MACHINES[os.uname().machine]
    header = struct.pack("Ii", _CAPABILITIES_3, 0)
    held = ctypes.create_string_buffer(24)
    _call("syscall", _CAPGET[column], header, held)
    if not any(held.raw):
        return
    for capability in range(64):  # where that is refused, no_new_privs has the same effect
        _libc.prctl(_DROP_FROM_BOUND, capability, 0, 0, 0)
    _libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    _call("syscall", _CAPSET[column], header, bytes(24))


def _call(function: str, *arguments: object) -> int:
    result: int = getattr(_libc, function)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function} {arguments[0]}: {os.strerror(number)}")
    return result


def _make_private_folder(path: str) -> None:
    """Makes a folder for temporary files that only this user can use."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        status = os.lstat(path)
        if status.st_mode != 0o040700 or status.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"{path} is not a private directory of this user") from None


def main(words: list[str]) -> None:
    """`[network] [mounts] [fixed] [KIND PATH]… -- PROGRAM ARGUMENT…`.

    Kinds: `r`, `w` and `d` for what may be read, written, and used as a device; `t` for the folder of temporary files;
    `=NAME` for a variable of the environment; `status` for the status file.
    """
    end = words.index("--")
    after_flags = next(index for index, word in enumerate(words) if word not in _FLAGS)
    flags = words[:after_flags]
    paths: dict[str, list[str]] = {"r": [], "w": [], "d": [], "t": [], "status": []}
    for kind, path in zip(words[after_flags:end:2], words[after_flags + 1 : end : 2], strict=True):
        if kind.startswith("="):
            os.environ[kind[1:]] = path
        else:
            paths[kind].append(path)
    status_files = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in paths["status"]]
    try:
        for folder in paths["t"]:
            _make_private_folder(folder)
            os.environ["TMPDIR"] = folder
        confine(
            [*paths["r"], f"/proc/{os.getpid()}"],
            paths["w"] + paths["t"],
            paths["d"],
            network="network" in flags,
            mounts="mounts" in flags,
            attributes="fixed" not in flags,
        )
    except OSError as error:
        _fail(f"the sandbox cannot be made: {error.strerror}", FAILED)
    _run_program(words[end + 1 :], status_files)


def _run_program(program: list[str], status_files: list[int]) -> None:
    """Replaces this process by the program. A folder on PATH that may not be read hides nothing behind it."""
    name = program[0]
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    problem = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for one in status_files:
        os.write(one, STARTED)
    for folder in folders:
        try:
            os.execv(os.path.join(folder, name), program)  # noqa: S606
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) and ("/" in name or os.access(folder or ".", os.X_OK)):
                problem = error
    for one in status_files:
        os.write(one, b" %d" % (problem.errno or 0))
    _fail(f"{name}: {problem.strerror}", 127 if problem.errno == errno.ENOENT else FAILED)


def _fail(words: str, code: int) -> None:
    os.write(2, f"forge: {words}\n".encode(errors="surrogateescape"))
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
