"""What a program may try in a sandbox, each with its twin that has to work, and the world it tries it on."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join, quote
from typing import NamedTuple

import pytest

from forge.process.sandbox import Confinement, Tier, confine_command, problem

PLANTED = "planted-in-the-environment"
ARGUMENT = "planted-as-an-argument"
REACHED = "REACHED"
USUAL = tempfile.gettempdir()

TIERS = (Tier.BUBBLEWRAP, Tier.LANDLOCK)


def needs(tier: Tier) -> Tier:
    """The tier, or a loud skip where this machine does not have it."""
    if why := problem(tier):
        pytest.skip(f"NOT TESTED: {tier} cannot be used on this machine: {why}")
    return tier


class Attack(NamedTuple):
    """A line for bash that succeeds when it gets what it is after, and one that may."""

    name: str
    line: str
    twin: str = "true"
    tiers: Sequence[Tier] = TIERS


def python(code: str) -> str:
    return f"'{{python}}' -I -S -c '{code}'"


_SOCKET = "import socket; "
_KERNEL = "import ctypes, os, struct, sys; call = ctypes.CDLL(None, use_errno=True).syscall; "
_CONNECT = python(_SOCKET + 'socket.create_connection(("127.0.0.1", {tcp}), 5)')
_CONNECT_INSIDE = python(
    _SOCKET + 's = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname(), 5)'
)
_SERVICE = python(_SOCKET + 'socket.socket(socket.AF_UNIX).connect("{outside}/service")')
_SERVICE_INSIDE = python(
    _SOCKET + 's = socket.socket(1); s.bind("own"); s.listen(); socket.socket(socket.AF_UNIX).connect("own")'
)
_PAIR = python(_SOCKET + 'a, b = socket.socketpair(); a.send(b"x"); b.recv(1)')
_TRACE = python("import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, {victim}, None, None) != 0)")
_TRACE_INSIDE = python("import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, None, None) != 0)")
_OWN = "read -r -d '' first </proc/$$/"  # of the shell itself

FILES = (
    Attack("write a file", "echo x >'{outside}/new'", "echo x >'{inside}/new'"),
    Attack("append to one", "echo x >>'{outside}/secret'", "echo x >>'{inside}/mine'"),
    Attack("delete one", "rm '{outside}/secret'", "rm '{inside}/mine'"),
    Attack(
        "empty one by name", python('import os; os.truncate("{outside}/secret", 0)'), "truncate -s0 '{inside}/mine'"
    ),
    Attack("make a directory", "mkdir '{outside}/made'", "mkdir '{inside}/made'"),
    Attack("move a file out", "mv '{inside}/mine' '{outside}/mine'", "mv mine other"),
    Attack("write through a link", "ln -s '{outside}' l && echo x >l/n", "mkdir d && ln -s d l && echo x >l/n"),
    Attack("make a second name", "ln '{outside}/secret' mine2 && cat mine2", "ln mine mine2"),
    Attack("write into the system", "touch /usr/forge-was-here", "touch usr"),
    Attack("write into /etc", "touch /etc/forge-was-here", "touch etc"),
    Attack("read a file", "cat '{outside}/secret'", "cat mine"),
    Attack("read through a link", "ln -s '{outside}/secret' way; cat way", "ln -s mine way; cat way"),
    Attack("read through /proc/self/root", "cat '/proc/self/root{outside}/secret'", "cat /proc/$$/cwd/mine"),
    Attack(
        "read through the root of another",
        "cat '/proc/{victim}/root{outside}/secret'",
        "cat /proc/$$/root'{inside}/mine'",
    ),
    Attack("read what another works on", "cat /proc/{victim}/cwd/secret", "cat /proc/$$/cwd/mine"),
    Attack("list a directory outside", "ls '{outside}'", "ls '{inside}'"),
    Attack("read passwords", "cat /etc/shadow", "cat /etc/passwd"),
    Attack("read keys of the system", "ls /etc/ssl/private || ls /etc/ssh", "ls /etc/ssl/certs"),
)

PROCESSES = (
    Attack("read the environment of another", f"grep -q {PLANTED} /proc/{{victim}}/environ", f"{_OWN}environ"),
    Attack("read any environment", f"cat /proc/[0-9]*/environ | grep -qa {PLANTED}", "echo $OWN | grep -q own"),
    Attack("see how another was started", f"grep -qa {ARGUMENT} /proc/{{victim}}/cmdline", f"{_OWN}cmdline"),
    Attack("signal another", "kill -0 {victim}", "sleep 30 & kill $!"),
    Attack("signal everyone", "kill -CONT -1; kill -0 {victim}", "sleep 30 & kill -TERM $!"),
    Attack("trace another", _TRACE, _TRACE_INSIDE, (Tier.BUBBLEWRAP,)),
    Attack("trace another, by Landlock", _TRACE, tiers=(Tier.LANDLOCK,)),
)

_CALLS = """
import ctypes, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
one = os.PRIO_PROCESS
scheduled = os.sched_param(0)
def check(result):
    if result < 0: sys.exit(os.strerror(ctypes.get_errno()))
    return result
"""
_IOPRIO = 'call = 251 if os.uname().machine == "x86_64" else 30; check(libc.syscall(call, 1, {}, 3 << 13))'
_SHARED = python("import mmap; mmap.mmap(-1, 4096)[0] = 1")

_OF_ANOTHER = tuple(
    Attack(name, python(_CALLS + line.replace("WHO", "{victim}")), python(_CALLS + line.replace("WHO", "0")))
    for name, line in (
        ("end another by its limits", "resource.prlimit(WHO, resource.RLIMIT_CPU, (1, 1))"),
        ("limit what another opens", "resource.prlimit(WHO, resource.RLIMIT_NOFILE, (17, 17))"),
        ("slow another down", "os.setpriority(one, WHO, 19)"),
        ("move another to a processor", "os.sched_setaffinity(WHO, {min(os.sched_getaffinity(0))})"),
        ("reschedule another", "os.sched_setscheduler(WHO, os.SCHED_BATCH, scheduled)"),
        ("set how another is scheduled", "os.sched_setparam(WHO, scheduled)"),
        ("delay how another reads", _IOPRIO.format("WHO")),
    )
)
OTHERS = (
    *_OF_ANOTHER,
    Attack("slow the group of another down", python(_CALLS + "os.setpriority(os.PRIO_PGRP, {victim}, 19)")),
    Attack("read shared memory", python(_CALLS + "check(libc.shmget({shared}, 64, 0o600))"), _SHARED),
    Attack(
        "attach shared memory",
        python(_CALLS + "libc.shmat.restype = ctypes.c_ssize_t; check(libc.shmat({memory}, None, 0))"),
        _SHARED,
    ),
    Attack("remove shared memory", python(_CALLS + "check(libc.shmctl({memory}, 0, None))"), _SHARED),
    Attack("remove a queue", python(_CALLS + "check(libc.msgctl({queue}, 0, None))"), _SHARED),
    Attack("read from a queue", python(_CALLS + "check(libc.msgrcv({queue}, bytes(99), 64, 0, 0o4000))"), _SHARED),
    Attack("write to a queue", python(_CALLS + 'check(libc.msgsnd({queue}, b"x" * 16, 8, 0o4000))'), _SHARED),
    Attack("remove semaphores", python(_CALLS + "check(libc.semctl({semaphores}, 0, 0, 0))"), _SHARED),
    Attack("open a named queue", python(_CALLS + 'check(libc.mq_open(b"/{named}", 2))'), _SHARED),
    Attack("remove a named queue", python(_CALLS + 'check(libc.mq_unlink(b"/{named}"))'), _SHARED),
)

SOCKETS = (
    Attack("connect by TCP", _CONNECT, _CONNECT_INSIDE, (Tier.BUBBLEWRAP,)),
    Attack("connect by TCP, by Landlock", _CONNECT, _PAIR, (Tier.LANDLOCK,)),
    Attack("connect to an abstract socket", python(_SOCKET + 'socket.socket(1).connect(b"\\0{abstract}")'), _PAIR),
    Attack("connect to a socket of a service", _SERVICE, _SERVICE_INSIDE, (Tier.BUBBLEWRAP,)),
    Attack(
        "connect to a socket of a service, by Landlock",
        _SERVICE,
        python("import asyncio; asyncio.run(asyncio.sleep(0))"),
        (Tier.LANDLOCK,),
    ),
    Attack(
        "turn a pair of sockets to a service",
        python(_SOCKET + 'a, b = socket.socketpair(1, socket.SOCK_DGRAM); a.sendto(b"x", "{outside}/log")'),
        _PAIR,
    ),
    Attack("reach the machine around this one", python(_SOCKET + "socket.socket(40, socket.SOCK_STREAM)"), _PAIR),
    Attack("talk to the kernel's ciphers", python(_SOCKET + "socket.socket(38, socket.SOCK_SEQPACKET)"), _PAIR),
    Attack("open raw packets", python(_SOCKET + "socket.socket(17, socket.SOCK_RAW)"), _PAIR),
)

_OPEN_SETTINGS = """
import os, sys
tops = [f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit() and "self" not in name and name != "net"]
opened = []
for top in [*tops, "/sys/kernel", "/sys/module", "/sys/fs", "/sys/devices/system", "/sys/power"]:
    for folder, _, files in [("", (), [top])] if os.path.isfile(top) else os.walk(top):
        for name in files:
            try: os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK))
            except OSError: continue
            opened.append(os.path.join(folder, name))
print(opened[:9])
sys.exit(not opened)
"""
_READ_SETTINGS = """
import os
for name in ("kernel/pid_max", "vm/overcommit_memory", "fs/file-max", "kernel/ostype"):
    with open(f"/proc/sys/{name}") as file: assert file.read()
assert os.cpu_count()
"""

KERNEL = (
    Attack("change a setting of the kernel", python(_OPEN_SETTINGS), python(_READ_SETTINGS)),
    Attack("choose what runs after a crash", "true >>/proc/sys/kernel/core_pattern", "cat /proc/sys/kernel/ostype"),
    Attack("press keys for the kernel", "true >>/proc/sysrq-trigger", "cat /proc/uptime"),
    Attack(
        "read the kernel's keys",
        python(_KERNEL + 'sys.exit(call(250 if os.uname().machine == "x86_64" else 219, 0, -3, 0) < 0)'),
    ),
    Attack("use io_uring", python(_KERNEL + "sys.exit(call(425, 8, bytes(120)) < 0)")),
    Attack("make namespaces", "unshare -Ur true", "( true )"),
    Attack(
        "make namespaces by clone3",
        python(_KERNEL + 'sys.exit(call(435, struct.pack("11Q", 1 << 28, *[0] * 10), 88) < 0)'),
        python("import threading; t = threading.Thread(target=print); t.start(); t.join()"),
    ),
    Attack("mount something", "mkdir m && mount -t tmpfs none m", "mkdir m"),
    Attack("make the system writable", "mount -o remount,rw,bind /usr", "ls /usr"),
    Attack(
        "make a device",
        python('import os, stat; os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(254, 0))'),
        "mkfifo pipe",
    ),
    Attack("read a disk", "cat /dev/[hsv]da /dev/nvme* /dev/mem | grep -q .", "head -c1 /dev/urandom"),
    Attack("read kernel messages", "dmesg | grep -q ."),
    Attack("change the clock", "date -s 2001-01-01", "date"),
    Attack("rename the machine", "hostname forge-was-here", "hostname"),
)

ATTACKS = FILES + PROCESSES + OTHERS + SOCKETS + KERNEL
"""Every one is tried in each of its tiers."""


VECTORS: dict[str, list[str]] = {
    "find -exec": ["find", ".", "-maxdepth", "0", "-exec", "sh", "./payload", ";"],
    "find -fprintf": ["find", ".", "-maxdepth", "0", "-fprintf", "{target}", "x"],
    "git alias": ["git", "-c", "alias.x=!sh ./payload", "x"],
    "git core.fsmonitor": ["git", "-C", "repository", "-c", "core.fsmonitor=sh ../payload; false", "status"],
    "git core.sshCommand": ["git", "-c", "core.sshCommand=sh ./payload", "ls-remote", "ssh://nowhere/x"],
    "git --upload-pack": ["git", "ls-remote", "--upload-pack=sh ./payload;", "./repository"],
    "tar --checkpoint-action": [
        "tar",
        "cf",
        "/dev/null",
        "--checkpoint=1",
        "--checkpoint-action=exec=sh ./payload",
        ".",
    ],
    "tar --to-command": ["tar", "xf", "some.tar", "--to-command=sh ./payload"],
    "tar -I": ["tar", "-I", "sh ./payload", "-cf", "out.tar", "payload"],
    "awk system": ["awk", 'BEGIN { system("sh ./payload") }'],
    "awk print": ["awk", 'BEGIN { print "x" > "{target}" }'],
    "python3 -c": [sys.executable, "-c", 'import os; os.system("sh ./payload")'],
    "perl -e": ["perl", "-e", 'system("sh ./payload")'],
    "sort --compress-program": ["sort", "-S", "1k", "--compress-program=./payload", "numbers"],
    "sort -o": ["sort", "-o", "{target}", "payload"],
    "sed e": ["sed", "1e sh ./payload", "payload"],
    "sed w": ["sed", "-n", "w {target}", "payload"],
    "xargs": ["xargs", "-a", "one", "sh"],
    "env -S": ["env", "-S", "sh ./payload"],
    "rg --pre": ["rg", "--pre", "./payload", "x", "one"],
    "ssh ProxyCommand": ["ssh", "-o", "ProxyCommand=sh ./payload", "nowhere"],
    "rsync -e": ["rsync", "-e", "sh ./payload", "nowhere:x", "."],
    "make": ["make", "-f", "makefile"],
    "vim -c": ["vim", "-es", "-c", "!sh ./payload", "-c", "q!"],
    "gdb -ex": ["gdb", "-batch", "-nx", "-ex", "shell sh ./payload"],
    "node -e": ["node", "-e", 'require("child_process").execSync("sh ./payload")'],
    "dd of": ["dd", "if=payload", "of={target}"],
    "cp": ["cp", "payload", "{target}"],
    "tee": ["tee", "{target}"],
    "curl -o": ["curl", "-s", "-o", "{target}", "file://{inside}/payload"],
    "sqlite3 .shell": ["sqlite3", ":memory:", ".shell sh ./payload"],
}
"""Ways to run a program, or to write a file, through programs that an allow-list may contain."""


@dataclass
class World:
    """A workspace, what lies beside it, and who else is there."""

    inside: Path
    outside: Path
    victim: int = 0
    tcp: int = 0
    udp: socket.socket | None = None
    abstract: str = ""
    services: list[socket.socket] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)  # what System V shares, by kind; -1 if the kernel has none

    def words(self, text: str) -> str:
        known = {
            "{inside}": str(self.inside),
            "{outside}": str(self.outside),
            "{victim}": str(self.victim),
            "{tcp}": str(self.tcp),
            "{abstract}": self.abstract,
            "{python}": sys.executable,
            "{named}": self.abstract,
            "{shared}": str(_KEY + os.getpid()),
            **{f"{{{kind}}}": str(number) for kind, number in self.shared.items()},
        }
        for name, value in known.items():
            text = text.replace(name, value)
        return text

    def run(
        self, argv: Sequence[str], tier: Tier, env: dict[str, str] | None = None, **how: object
    ) -> subprocess.CompletedProcess[str]:
        confinement = Confinement(workspace=self.inside, **how)  # type: ignore[arg-type]
        return run(argv, confinement, tier, env)

    def bash(self, line: str, tier: Tier, **how: object) -> subprocess.CompletedProcess[str]:
        return self.run(["bash", "-c", self.words(line)], tier, **how)  # type: ignore[arg-type]

    def each(self, lines: Mapping[str, str], tier: Tier) -> dict[str, str]:
        """What each line says, all run by one shell in one sandbox, each in a directory of its own."""
        folders = {name: self.inside / str(number) for number, name in enumerate(lines)}
        for name, line in lines.items():
            folders[name].mkdir()
            (folders[name] / "mine").write_text("mine\n")
            line = self.words(line.replace("{inside}", str(folders[name])))
            (folders[name] / "line").write_text(f"{line}\n[ $? = 0 ] && echo {REACHED}\n")
        self.bash("for folder in [0-9]*; do ( cd $folder; . ./line ) >$folder.said 2>&1; done", tier)
        return {name: Path(f"{folder}.said").read_text(errors="replace") for name, folder in folders.items()}


def run(
    argv: Sequence[str],
    confinement: Confinement,
    tier: Tier,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "OWN": "own", **(env or {})}
    with pytest.MonkeyPatch.context() as changed:
        if tempfile.gettempdir() == USUAL:  # Landlock's directory for temporary files is left behind
            changed.setattr(tempfile, "tempdir", str(confinement.workspace.parent))
        words = confine_command(argv, confinement, tier, env)
    return subprocess.run(
        words,
        cwd=cwd or confinement.workspace,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=150,
        start_new_session=True,
        check=False,
    )


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """With a process to spy on, and services that listen by TCP, UDP and Unix sockets."""
    inside, outside = folder / "inside", folder / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "mine").write_text("mine\n")
    (outside / "secret").write_text("the secret\n")
    victim = subprocess.Popen([ARGUMENT, "60"], executable="/bin/sleep", env={"SECRET": PLANTED}, cwd=outside)
    made = World(inside, outside, victim.pid, abstract=f"forge-test-{os.getpid()}-{victim.pid}")
    try:
        _listen(made)
        _share(made)
        yield made
    finally:
        _unshare(made)
        victim.kill()
        victim.wait()
        for one in made.services:
            one.close()


_LIBC = ctypes.CDLL(None, use_errno=True)
_KEY, _CREATE = 0x466F0000, 0o1600


def _share(made: World) -> None:
    """Makes shared memory, a message in a queue, semaphores and a named queue, as other programs of the user would."""
    made.shared = {
        "memory": _LIBC.shmget(_KEY + os.getpid(), 4096, _CREATE),
        "queue": _LIBC.msgget(_KEY + os.getpid(), _CREATE),
        "semaphores": _LIBC.semget(_KEY + os.getpid(), 1, _CREATE),
    }
    _LIBC.msgsnd(made.shared["queue"], b"x" * 16, 8, 0)
    os.close(_LIBC.mq_open(f"/{made.abstract}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None))


def _unshare(made: World) -> None:
    _LIBC.shmctl(made.shared.get("memory", -1), 0, None)
    _LIBC.msgctl(made.shared.get("queue", -1), 0, None)
    _LIBC.semctl(made.shared.get("semaphores", -1), 0, 0, 0)
    _LIBC.mq_unlink(f"/{made.abstract}".encode())


def _opens_queue(name: str) -> bool:
    queue = _LIBC.mq_open(f"/{name}".encode(), os.O_RDONLY)
    if queue >= 0:
        os.close(queue)
    return bool(queue >= 0)


def describe_others(made: World) -> list[object]:
    """How the victim is scheduled and limited, and what is shared: the same as long as nothing reached it."""
    status = ctypes.create_string_buffer(512)
    queued = ctypes.create_string_buffer(512)
    return [
        os.getpriority(os.PRIO_PROCESS, made.victim),
        os.sched_getaffinity(made.victim),
        os.sched_getscheduler(made.victim),
        [resource.prlimit(made.victim, one) for one in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)],
        _LIBC.shmctl(made.shared["memory"], 2, status),
        _LIBC.msgctl(made.shared["queue"], 2, queued),
        queued.raw,  # with the number of messages
        _LIBC.semctl(made.shared["semaphores"], 0, 12, 0),  # GETVAL
        _opens_queue(made.abstract),
    ]


def _listen(made: World) -> None:
    tcp = socket.create_server(("127.0.0.1", 0))
    made.tcp = tcp.getsockname()[1]
    made.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.udp.bind(("127.0.0.1", 0))
    made.udp.setblocking(False)
    made.services += [tcp, made.udp]
    for kind, address in (
        (socket.SOCK_STREAM, f"\0{made.abstract}"),
        (socket.SOCK_STREAM, f"{made.outside}/service"),
        (socket.SOCK_DGRAM, f"{made.outside}/log"),
    ):
        service = socket.socket(socket.AF_UNIX, kind)
        made.services.append(service)
        here = os.getcwd()
        os.chdir(made.outside)  # the path of a Unix socket may be 107 bytes long
        try:
            service.bind(address if address[0] == "\0" else os.path.basename(address))
        finally:
            os.chdir(here)
        if kind == socket.SOCK_STREAM:
            service.listen()


def prepare_vectors(folder: Path) -> None:
    """What the vectors work on; each gets a copy, with a payload of its own."""
    (folder / "payload").write_text("")
    (folder / "one").write_text("./payload")
    (folder / "numbers").write_text("\n".join(str(number) for number in range(5_000)))
    (folder / "makefile").write_text("all:\n\tsh ./payload\n")
    tar = ["tar", "cf", "some.tar", "payload"]
    git = ["git", "-c", "init.defaultBranch=main", "init", "-q", "repository"]
    for argv in (tar, git):
        if shutil.which(argv[0]):
            subprocess.run(argv, cwd=folder, check=True, capture_output=True)


def vector_line(words: Sequence[str], folder: Path, target: Path) -> str:
    """The line that runs a vector, whose payload writes to the target."""
    payload = folder / "payload"
    payload.write_text(f"#!/bin/sh\necho x >'{target}'\n")
    payload.chmod(0o755)
    named = [word.replace("{target}", str(target)).replace("{inside}", str(folder)) for word in words]
    return f"( cd {quote(str(folder))} && {join(named)} ) </dev/null >/dev/null 2>&1"
