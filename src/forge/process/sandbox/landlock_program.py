"""Confines itself with Landlock and a system call filter, and then becomes another program.

It starts with the standard library alone; `landlock.py` builds its command line. If it cannot set something up, it
reports the error and ends: nothing runs half confined. bubblewrap uses the same filter.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable
from stat import S_ISDIR, S_ISREG

STARTED = b"started"  # in the status file before the program begins; an error number follows if it cannot
FAILED = 126  # exit code if it cannot confine; a shell uses it for a program that cannot be run

_GENERIC = 1  # the column of the numbers that newer architectures share
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, _GENERIC), "riscv64": (0xC00000F3, _GENERIC)}

_FLAGS = ("network", "mounts", "processes", "fixed")
_Numbers = dict[str, tuple[int, int | None]]
_Instruction = tuple[int, int, int, int]

# The calls that programs may make: name, number on x86_64, number elsewhere. All others seem not to exist.
_PERMITTED = """
    accept 43 202, accept4 288 242, access 21 -, adjtimex 159 171, alarm 37 -, arch_prctl 158 -, bind 49 200, brk 12
    214, cachestat 451 451, capget 125 90, capset 126 91, chdir 80 49, chmod 90 -, chown 92 -, clock_getres 229 114,
    clock_gettime 228 113, clock_nanosleep 230 115, clone 56 220, close 3 57, close_range 436 436, connect 42 203,
    copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, epoll_create 213 -, epoll_create1 291 20,
    epoll_ctl 233 21, epoll_pwait 281 22, epoll_pwait2 441 441, epoll_wait 232 -, eventfd 284 -, eventfd2 290 19,
    execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94, faccessat 269 48, faccessat2 439 439, fadvise64
    221 223, fallocate 285 47, fchdir 81 50, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, fchown 93 55, fchownat
    260 54, fcntl 72 25, fdatasync 75 83, fgetxattr 193 10, file_getattr 468 468, file_setattr 469 469, flistxattr 196
    13, flock 73 32, fork 57 -, fremovexattr 199 16, fsetxattr 190 7, fstat 5 80, fstatfs 138 44, fsync 74 82,
    ftruncate 77 46, futex 202 98, futex_requeue 456 456, futex_wait 455 455, futex_waitv 449 449, futex_wake 454 454,
    futimesat 261 -, get_mempolicy 239 236, get_robust_list 274 100, getcpu 309 168, getcwd 79 17, getdents 78 -,
    getdents64 217 61, getegid 108 177, geteuid 107 175, getgid 104 176, getgroups 115 158, getitimer 36 102,
    getpeername 52 205, getpgid 121 155, getpgrp 111 -, getpid 39 172, getppid 110 173, getpriority 140 141, getrandom
    318 278, getresgid 120 150, getresuid 118 148, getrlimit 97 163, getrusage 98 165, getsid 124 156, getsockname 51
    204, getsockopt 55 209, gettid 186 178, gettimeofday 96 169, getuid 102 174, getxattr 191 8, getxattrat 464 464,
    inotify_add_watch 254 27, inotify_init 253 -, inotify_init1 294 26, inotify_rm_watch 255 28, io_cancel 210 3,
    io_destroy 207 1, io_getevents 208 4, io_pgetevents 333 292, io_setup 206 0, io_submit 209 2, ioctl 16 29,
    ioprio_get 252 31, ioprio_set 251 30, kcmp 312 272, kill 62 129, landlock_add_rule 445 445,
    landlock_create_ruleset 444 444, landlock_restrict_self 446 446, lchown 94 -, lgetxattr 192 9, link 86 -, linkat
    265 37, listen 50 201, listxattr 194 11, listxattrat 465 465, llistxattr 195 12, lremovexattr 198 15, lseek 8 62,
    lsetxattr 189 6, lstat 6 -, madvise 28 233, map_shadow_stack 453 453, mbind 237 235, membarrier 324 283,
    memfd_create 319 279, mincore 27 232, mkdir 83 -, mkdirat 258 34, mknod 133 -, mknodat 259 33, mlock 149 228,
    mlock2 325 284, mlockall 151 230, mmap 9 222, modify_ldt 154 -, mprotect 10 226, mq_getsetattr 245 185, mq_notify
    244 184, mq_open 240 180, mq_timedreceive 243 183, mq_timedsend 242 182, mq_unlink 241 181, mremap 25 216, mseal
    462 462, msgctl 71 187, msgget 68 186, msgrcv 70 188, msgsnd 69 189, msync 26 227, munlock 150 229, munlockall 152
    231, munmap 11 215, name_to_handle_at 303 264, nanosleep 35 101, newfstatat 262 79, open 2 -, openat 257 56,
    openat2 437 437, pause 34 -, personality 135 92, pidfd_getfd 438 438, pidfd_open 434 434, pidfd_send_signal 424
    424, pipe 22 -, pipe2 293 59, pkey_alloc 330 289, pkey_free 331 290, pkey_mprotect 329 288, poll 7 -, ppoll 271
    73, prctl 157 167, pread64 17 67, preadv 295 69, preadv2 327 286, prlimit64 302 261, process_madvise 440 440,
    process_mrelease 448 448, process_vm_readv 310 270, process_vm_writev 311 271, pselect6 270 72, ptrace 101 117,
    pwrite64 18 68, pwritev 296 70, pwritev2 328 287, read 0 63, readahead 187 213, readlink 89 -, readlinkat 267 78,
    readv 19 65, recvfrom 45 207, recvmmsg 299 243, recvmsg 47 212, remap_file_pages 216 234, removexattr 197 14,
    removexattrat 466 466, rename 82 -, renameat 264 38, renameat2 316 276, restart_syscall 219 128,
    riscv_flush_icache - 259, riscv_hwprobe - 258, rmdir 84 -, rseq 334 293, rt_sigaction 13 134, rt_sigpending 127
    136, rt_sigprocmask 14 135, rt_sigqueueinfo 129 138, rt_sigreturn 15 139, rt_sigsuspend 130 133, rt_sigtimedwait
    128 137, rt_tgsigqueueinfo 297 240, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
    sched_getaffinity 204 123, sched_getattr 315 275, sched_getparam 143 121, sched_getscheduler 145 120,
    sched_rr_get_interval 148 127, sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118,
    sched_setscheduler 144 119, sched_yield 24 124, seccomp 317 277, select 23 -, semctl 66 191, semget 64 190, semop
    65 193, semtimedop 220 192, sendfile 40 71, sendmmsg 307 269, sendmsg 46 211, sendto 44 206, set_mempolicy 238
    237, set_robust_list 273 99, set_tid_address 218 96, setfsgid 123 152, setfsuid 122 151, setgid 106 144, setgroups
    116 159, setitimer 38 103, setpgid 109 154, setpriority 141 140, setregid 114 143, setresgid 119 149, setresuid
    117 147, setreuid 113 145, setrlimit 160 164, setsid 112 157, setsockopt 54 208, setuid 105 146, setxattr 188 5,
    setxattrat 463 463, shmat 30 196, shmctl 31 195, shmdt 67 197, shmget 29 194, shutdown 48 210, sigaltstack 131
    132, signalfd 282 -, signalfd4 289 74, socket 41 198, socketpair 53 199, splice 275 76, stat 4 -, statfs 137 43,
    statx 332 291, symlink 88 -, symlinkat 266 36, sync 162 81, sync_file_range 277 84, syncfs 306 267, sysinfo 99
    179, tee 276 77, tgkill 234 131, time 201 -, timer_create 222 107, timer_delete 226 111, timer_getoverrun 225 109,
    timer_gettime 224 108, timer_settime 223 110, timerfd_create 283 85, timerfd_gettime 287 87, timerfd_settime 286
    86, times 100 153, tkill 200 130, truncate 76 45, umask 95 166, uname 63 160, unlink 87 -, unlinkat 263 35,
    unshare 272 97, utime 132 -, utimensat 280 88, utimes 235 -, vfork 58 -, vmsplice 278 75, wait4 61 260, waitid 247
    95, write 1 64, writev 20 66
"""
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
# Calls that change another process; the last number is the place of the process among the arguments.
_OF_A_PROCESS = (
    ((302, 261), 0),  # prlimit64
    ((203, 122), 0),  # sched_setaffinity
    ((142, 118), 0),  # sched_setparam
    ((144, 119), 0),  # sched_setscheduler
    ((314, 274), 0),  # sched_setattr
)
_OF_A_GROUP = (((141, 140), 0), ((251, 30), 1))  # setpriority and ioprio_set, with their number for "one process"
# Memory, queues and semaphores that all processes of a user share.
_SHARED: _Numbers = {
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
}  # fmt: skip
# Calls that send signals, with the place of the process; -1 if there is none.
_SIGNALLING = (
    ((62, 129), 0),  # kill
    ((234, 131), 0),  # tgkill
    ((129, 138), 0),  # rt_sigqueueinfo
    ((297, 240), 0),  # rt_tgsigqueueinfo
    ((200, 130), -1),  # tkill
    ((424, 424), -1),  # pidfd_send_signal
)
_FCNTL, _OWNERS = (72, 25), (8, 15)  # F_SETOWN and F_SETOWN_EX: a file can signal its owner
_SOCKET_OWNERS = (0x8901, 0x8902)  # the same by ioctl: FIOSETOWN and SIOCSPGRP
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
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in the filter's input; an argument has 8 bytes
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000


def syscall_filter(
    families: Iterable[int],
    *,
    others: bool,
    by_name: bool = False,
    attributes: bool = True,
    alone: int = 0,
    signals: bool = True,
    machine: str = "",
) -> bytes | None:
    """Builds the filter in the kernel's format; None if this machine's numbers are unknown.

    `families`: of sockets that may be made. `others`: True allows calls about other processes. `by_name`:
    refuse `truncate`, which early Landlock does not check. `attributes`: True allows to change modes, owners, times and
    attributes of files. `alone`: the number of the program's process, if it has no namespace of processes: other
    processes, and what all processes share, cannot be changed. `signals`: False refuses signals to other processes.
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
    denied |= _SHARED if alone else {}
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
    code += _when(
        _IOCTL[column], [(_LOAD, 0, 0, _SECOND), *_refuse_all((*_INJECTING, *(() if signals else _SOCKET_OWNERS)))]
    )
    code += _keep_to_itself(column, alone) if alone else []
    code += [] if signals else _keep_signals(column, alone)
    for call in (_CLONE, _UNSHARE):
        no_namespaces = [(_ANY_BIT, 0, 1, _NAMESPACES), _refuse(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
        code += _when(call[column], [(_LOAD, 0, 0, _FIRST), *no_namespaces])
    code += _permit_calls(column)
    return b"".join(struct.pack("HBBI", *one) for one in code)


def _permit_calls(column: int) -> list[_Instruction]:
    """Allows the permitted calls, by ranges of their numbers, and refuses all others."""
    columns = (line.split()[column + 1] for line in _PERMITTED.split(","))
    numbers = sorted({int(number) for number in columns if number != "-"})
    code: list[_Instruction] = []
    first = last = numbers[0]
    for number in (*numbers[1:], 1 << 30):
        if number != last + 1:
            code += [(_AT_LEAST, 0, 2, first), (_AT_LEAST, 1, 0, last + 1), (_RETURN, 0, 0, _ALLOW)]
            first = number
        last = number
    return [*code, _refuse(errno.ENOSYS)]


def _keep_to_itself(column: int, process: int) -> list[_Instruction]:
    """Allows changes of limits and priorities for the caller alone (0), or for the program's first process."""
    code: list[_Instruction] = []
    for call, place in _OF_A_PROCESS:
        code += _when(call[column], [(_LOAD, 0, 0, _FIRST + 8 * place), *_allow_only((0, process))])
    for call, one in _OF_A_GROUP:
        only_one = [(_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, one), _refuse(errno.EPERM)]
        code += _when(call[column], [*only_one, (_LOAD, 0, 0, _SECOND), *_allow_only((0, process))])
    return code


def _keep_signals(column: int, process: int) -> list[_Instruction]:
    """Allows signals to the caller's own group (0) and to the program's first process alone."""
    code: list[_Instruction] = []
    for call, place in _SIGNALLING:
        own = [(_LOAD, 0, 0, _FIRST + 8 * place), *_allow_only((0, process))] if place >= 0 else [_refuse(errno.EPERM)]
        code += _when(call[column], own)
    return code + _when(_FCNTL[column], [(_LOAD, 0, 0, _SECOND), *_refuse_all(_OWNERS)])


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
_KEEPS_SIGNALS = 6  # the first version that keeps signals inside
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract Unix sockets and signals

_PARENT_DIES, _DUMPABLE = 1, 4  # prctl
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
    processes: bool = False,
    attributes: bool = True,
    states: Iterable[str] = (),
    temporary: Iterable[str] = (),
    size: int = 0,
) -> None:
    """Confines this process and its descendants forever. Raises OSError if something is not available.

    `mounts`: also mount everything else read-only, since Landlock does not check changes of modes, owners and times.
    `processes`: this process is alone in new namespaces of processes and of shared memory. `states`: Forge's state
    directories, which are hidden if `mounts` is True. `temporary`: writable folders that are empty and hold at most
    `size` bytes, if `mounts` is True.
    """
    version = landlock_version()
    if not version:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock, or it is switched off")
    program = syscall_filter(
        (INET, INET6, NETLINK) if network else (),
        others=False,
        by_name=version < 3,
        attributes=attributes,
        alone=0 if processes else os.getpid(),
        signals=processes or version >= _KEEPS_SIGNALS or attributes,
    )
    if program is None:
        raise OSError(errno.ENOSYS, f"there is no system call filter for {os.uname().machine}")
    if mounts:
        _mount_read_only(writable, processes=processes)
        for folder in states:
            _hide_state(folder)
        for folder in temporary if size else ():
            options = f"size={size},mode=0700".encode()
            flags = ctypes.c_ulong(_NO_SETUID | _NO_DEVICES)
            _call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options)
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
_NEW_MOUNTS, _NEW_USER, _NEW_PROCESSES, _NEW_MEMORY = 0x20000, 0x10000000, 0x20000000, 0x8000000
_PRIVATE, _RECURSIVE, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 1 << 18, 1 << 14, 2, 4, 8
_CLONE_TREE, _TREE_BELOW, _FROM_DESCRIPTOR, _READ_ONLY = 1, 0x8000, 4, 1
_HERE = -100  # AT_FDCWD


def _unshare(*, processes: bool) -> None:
    """Makes a mount namespace, and with `processes` namespaces of processes and of shared memory, for children."""
    user, group = os.geteuid(), os.getegid()
    wanted = _NEW_MOUNTS | (_NEW_PROCESSES | _NEW_MEMORY if processes else 0)
    if _libc.unshare(wanted) < 0:  # only root may do that without a user namespace
        _call("unshare", wanted | _NEW_USER)
        for name, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(content)


def _mount_read_only(writable: list[str], *, processes: bool) -> None:
    """Mounts everything but the writable folders read-only, in the mount namespace of `_unshare`."""
    start = os.getcwd()
    _call("mount", None, b"/", None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None)
    if processes:
        _call("mount", b"proc", b"/proc", b"proc", ctypes.c_ulong(_NO_SETUID | _NO_DEVICES | _NO_PROGRAMS), None)
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


_SHOWN = (("files", S_ISDIR, False), ("spill", S_ISDIR, True), (".gitignore", S_ISREG, True))  # of Forge's state
_EMPTY_PATH = 0x1000  # AT_EMPTY_PATH


def _hide_state(folder: str) -> None:
    """Mounts an empty directory over Forge's state, except the files it made for the model, as bubblewrap does."""
    read_only = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    trees: list[tuple[str, bool, int]] = []
    for name, is_kind, only_read in _SHOWN:
        path = os.path.join(folder, name)
        try:
            kind = os.lstat(path).st_mode
        except OSError:
            continue
        if is_kind(kind):  # never a link: a program may have made it
            flags = ctypes.c_uint(_CLONE_TREE | os.O_CLOEXEC)
            tree = _call("syscall", _OPEN_TREE, _HERE, os.fsencode(path), flags)
            if only_read:
                _set_mount(tree, b"", _EMPTY_PATH, read_only)
            trees.append((path, S_ISDIR(kind), tree))
    modes = ctypes.c_ulong(_NO_SETUID | _NO_DEVICES)
    _call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", modes, b"mode=0700,size=64k")
    for path, is_folder, tree in trees:
        if is_folder:
            os.mkdir(path, 0o700)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _call("syscall", _MOVE_MOUNT, tree, b"", _HERE, os.fsencode(path), ctypes.c_uint(_FROM_DESCRIPTOR))
        os.close(tree)
    _set_mount(_HERE, os.fsencode(folder), 0, read_only)


def _set_mount(directory: int, path: bytes, flags: int, wanted: bytes) -> None:
    _call("syscall", _MOUNT_SETATTR, directory, path, ctypes.c_uint(flags), wanted, ctypes.c_size_t(len(wanted)))


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
    """`[network] [mounts] [processes] [fixed] [KIND PATH]… -- PROGRAM ARGUMENT…`.

    Kinds: `r`, `w` and `d` for what may be read, written, and used as a device; `h` for Forge's state, which mounts
    hide; `t` for the folder of temporary files; `tmp` for another folder that `size`, in bytes, limits; `limit` for
    `NAME=VALUE` of a resource;
    `=NAME` for a variable of the environment; `status` for the status file.
    """
    end = words.index("--")
    after_flags = next(index for index, word in enumerate(words) if word not in _FLAGS)
    flags = words[:after_flags]
    paths: dict[str, list[str]] = {
        "r": [], "w": [], "d": [], "h": [], "t": [], "tmp": [], "size": ["0"], "limit": [], "status": []
    }  # fmt: skip
    for kind, path in zip(words[after_flags:end:2], words[after_flags + 1 : end : 2], strict=True):
        if kind.startswith("="):
            os.environ[kind[1:]] = path
        else:
            paths[kind].append(path)
    status_files = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in paths["status"]]
    processes = "processes" in flags
    report = -1
    try:
        for folder in paths["t"]:
            _make_private_folder(folder)
            os.environ["TMPDIR"] = folder
        if "mounts" in flags:
            _unshare(processes=processes)
        if processes:
            report = _become_first_process()
        confine(
            [*paths["r"], "/proc" if processes else f"/proc/{os.getpid()}"],
            paths["w"] + paths["t"],
            paths["d"],
            network="network" in flags,
            mounts="mounts" in flags,
            processes=processes,
            attributes="fixed" not in flags,
            states=paths["h"],
            temporary=paths["t"] + paths["tmp"],
            size=int(paths["size"][-1]),
        )
        if processes:
            _keep_children(report)
        for name, _, value in (word.partition("=") for word in paths["limit"]):
            _, most = resource.getrlimit(which := getattr(resource, name))
            value_now = int(value) if most == resource.RLIM_INFINITY else min(int(value), most)
            resource.setrlimit(which, (value_now, value_now))
    except OSError as error:
        _fail(f"the sandbox cannot be made: {error.strerror}", FAILED)
    _run_program(words[end + 1 :], status_files)


def _become_first_process() -> int:
    """Continues as the first process of a new namespace; the calling process waits for the end of the program.

    Returns the descriptor that takes the program's status.
    """
    status, report = os.pipe()
    first = os.fork()
    if first:
        os.close(report)
        _wait_for_program(status, first)
    os.close(status)
    _call("prctl", _PARENT_DIES, signal.SIGKILL, 0, 0, 0)
    return report


def _wait_for_program(status: int, first: int) -> None:
    """Ends as the program does. A signal reaches the whole group, so it is not for this process."""
    _libc.prctl(_PARENT_DIES, signal.SIGKILL, 0, 0, 0)  # who kills Forge by its cgroup does not reach this one
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    said = os.read(status, 4)
    ended = struct.unpack("i", said)[0] if len(said) == 4 else os.waitpid(first, 0)[1]
    code = os.waitstatus_to_exitcode(ended)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code not in (-signal.SIGKILL, -signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _keep_children(report: int) -> None:
    """Starts the program's process and returns in it. This one reaps all others, as the first process must."""
    _call("prctl", _DUMPABLE, 0, 0, 0, 0)  # its descriptors are not for the program
    program = os.fork()
    if not program:
        os.close(report)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in range(3):  # its pipes end with the processes that use them
        os.close(descriptor)
    while True:
        try:
            process, status = os.wait()
        except ChildProcessError:
            os._exit(0)
        if process == program:
            _libc.prctl(_PARENT_DIES, 0, 0, 0, 0)  # processes that the program left continue
            os.write(report, struct.pack("i", status))


def _run_program(program: list[str], status_files: list[int]) -> None:
    """Replaces this process by the program. A folder on PATH that may not be read hides nothing behind it."""
    name = program[0]
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    problem = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
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
