"""Runs the one process beside Forge that owns all others: makes their keepers, and kills all when Forge ends.

It starts with the standard library alone, without importing `forge` itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from functools import cache

from forge.process.running.cgroups import Cgroup, fork_and_wait, remove_all
from forge.process.running.keeper_messages import CGROUPS, NEW, PIECE, Messages, pack
from forge.process.running.overlay import LayerError, Layers, can_be_entered, enter_layers, is_fuse
from forge.process.running.process_tree import (
    PATIENCE,
    adopt_orphans,
    describe_process,
    find_descendants,
    follow_parent,
    is_first_of_namespace,
    kill_below,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # not loaded at run time: this process has to start fast
    from collections.abc import Iterable
    from typing import Any, NoReturn


def main() -> NoReturn:
    import gc

    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # terminal signals are for Forge
    os.closerange(3, 1 << 20)  # descriptors that Forge inherited
    supervisor = _Supervisor(socket.socket(fileno=0))
    gc.disable()
    gc.freeze()  # frozen objects are not copied for a keeper
    supervisor.serve()


class _Supervisor:
    """Makes keepers, and cleans up when they or Forge die."""

    def __init__(self, forge: socket.socket) -> None:
        self.forge = forge
        self.messages = Messages()
        self.alarm = Alarm()
        self.keepers: set[int] = set()
        self.cgroups = ""  # the directory of the keepers' cgroups
        self.poll = select.poll()
        self.poll.register(forge, select.POLLIN)
        self.poll.register(self.alarm.reader, select.POLLIN)
        self.pid = os.getpid()
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # a fork of Forge may hold a copy of its socket
                self.parent = os.pidfd_open(os.getppid())
                self.poll.register(self.parent, select.POLLIN)
        adopt_orphans()

    def serve(self) -> NoReturn:
        while True:
            for descriptor, _ in self.poll.poll():
                if descriptor == self.alarm.reader:
                    self.alarm.clear()
                    self._reap()
                elif descriptor != self.forge.fileno() or not self._receive():
                    self.keepers.clear()
                    kill_below(os.getpid(), self._reap)
                    self._remove_cgroups()
                    os._exit(0)

    def _receive(self) -> bool:
        if not self.messages.read(self.forge):
            return False
        while (message := self.messages.next()) is not None:
            if message[0] == NEW:
                self._fork(self.messages.descriptors.pop(0))
            elif message[0] == CGROUPS:
                self.cgroups = message[1]
            elif message[1] in self.keepers:  # not yet reaped: the process number is still valid
                os.kill(message[1], signal.SIGTERM)
        return True

    def _fork(self, descriptor: int) -> None:
        try:
            pid = os.fork()
        except OSError:  # its socket closes, which tells Forge
            os.close(descriptor)
            return
        if pid:
            self.keepers.add(pid)
            os.close(descriptor)
            return
        try:
            _become_keeper(self, descriptor)
        finally:
            os._exit(1)

    def _reap(self) -> bool:
        """Reaps keepers. Kills other children: orphans of a killed keeper."""
        gone = False
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                break
            gone |= pid in self.keepers
            self.keepers.discard(pid)
        if gone:
            kill_below(os.getpid(), lambda: not find_descendants(os.getpid(), self.keepers), spared=self.keepers)
            self._remove_cgroups()
        return False

    def _remove_cgroups(self) -> None:
        if self.cgroups:
            remove_all(self.cgroups, self.pid, self.keepers)


def _become_keeper(supervisor: _Supervisor, descriptor: int) -> NoReturn:
    supervisor.alarm.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)  # where the supervisor's own connection was
    os.close(nothing)
    for other in supervisor.messages.take():
        os.close(other)
    with contextlib.suppress(AttributeError, OSError):
        os.close(supervisor.parent)
    adopt_orphans()
    follow_parent(supervisor.pid)
    Keeper(socket.socket(fileno=descriptor)).serve()


# A keeper: keeps one program at a time, with all its descendants, in a process beside Forge.
#
# A keeper adopts orphaned descendants of the program, so the process tree is complete even if some daemonise, and
# it can be used again once none is left. On systems without adoption (macOS), the tree is the process group.


SETTLE = 0.1  # seconds that descendants have to end after the program, before they count as left running
MOST_NAMED = 20  # processes left running that are listed
_ABOVE_FILES = 64  # descriptors of files that programs are started with are below
IDLE = 10.0  # seconds without work after which a keeper ends

_DEFAULT_SIGNALS = [one for one in signal.valid_signals() if one not in (signal.SIGKILL, signal.SIGSTOP)]


class _NoListeners(OSError):
    """No socket could be made inside a sandbox's network."""


class Keeper:
    """Keeps one program at a time and its descendants. All of them die when Forge closes the connection."""

    def __init__(self, forge: socket.socket) -> None:
        self.forge = forge
        self.forge.setblocking(False)
        self.messages = Messages()
        self.alarm = Alarm()
        self.poll = select.poll()
        self.poll.register(self.alarm.reader, select.POLLIN)
        self.poll.register(forge, select.POLLIN)
        self.pipes: set[int] = set()  # of processes left running: drained, or they would block or die when they write
        self.usable = True  # False: its own limits were lowered, or Forge is gone
        self.supervisor = os.getppid()
        self.cgroup: Cgroup | None = None  # of the program with all that it starts
        self.layers = Layers()
        self._begin(0)

    def _begin(self, program: int) -> None:
        self.program = program
        self.status: int | None = None
        self.leave = False
        self.reported = False
        self.stop_at: float | None = None  # when stopping processes are killed
        self.settled_at = 0.0

    def serve(self) -> NoReturn:
        signal.signal(signal.SIGTERM, self._stop_and_exit)
        while True:
            events = self.poll.poll(self._wait())
            if not events and not self.program:
                self._retire()
            for descriptor, _ in events:
                if descriptor == self.forge.fileno():
                    self._receive()
                elif descriptor == self.alarm.reader:
                    self.alarm.clear()
                else:
                    self._empty(descriptor)
            if self.program:
                self._check_program()
            if not self.program and not self.usable:
                os._exit(0)

    def _wait(self) -> int | None:
        if not self.program:
            return int(IDLE * 1000)
        if self.stop_at is None and (self.status is None or self.reported):
            return None
        until = self.stop_at if self.stop_at is not None else self.settled_at
        return max(1, min(20, int((until - time.monotonic()) * 1000) + 1))

    def _receive(self) -> None:
        if not self.messages.read(self.forge):
            self.poll.unregister(self.forge)
            self.usable = False
            if not self.leave or not self.reported:
                self._stop(0.0)
            return
        while (message := self.messages.next()) is not None:
            match message[0]:
                case "start":
                    self._start(message[1])
                case "stop":
                    self._stop(message[1])
                case "leave":  # the processes continue unwatched, until the supervisor ends
                    for pipe in self.messages.take():
                        os.set_blocking(pipe, False)
                        self.poll.register(pipe, select.POLLIN)
                        self.pipes.add(pipe)

    def _retire(self) -> None:
        """Stops accepting work; work sent in this very moment is still done."""
        self.usable = False
        with contextlib.suppress(OSError):
            self.forge.shutdown(socket.SHUT_RD)

    def _start(self, work: dict[str, Any]) -> None:
        given = self.messages.take()
        stage = "directory"
        try:
            os.chdir(work["cwd"])
            stage = "limits"
            if work["limits"]:
                self._limit(work["limits"])
            stage = "cgroup"
            if work["cgroup"]:
                folder, values = work["cgroup"]
                self.cgroup = Cgroup(folder, self.supervisor, dict(values))
            stage = "program"
            if work["listens"]:
                self._start_with_listeners(work, given)
            else:
                self._begin(self._spawn(work, given))
            self.leave = work["leave"]
        except (OSError, ValueError) as error:
            stage = "network" if isinstance(error, _NoListeners) else stage
            self._end_cgroup()
            stage = "layer" if isinstance(error, LayerError) else stage
            self.layers.release()
            self._send("failed", getattr(error, "errno", None) or 0, stage, self._usable_for())
        finally:
            os.chdir("/")
            for one in given:
                os.close(one)

    def _usable_for(self) -> str:
        """Returns which programs this keeper can start after this one: "all", "layers" or "" for none."""
        return "" if not self.usable else "layers" if self.layers.is_apart else "all"

    def _spawn(self, work: dict[str, Any], given: list[int]) -> int:
        if not work["ignores_term"]:
            return _spawn_program(work, given, _DEFAULT_SIGNALS, self.cgroup, self.layers)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a program inherits what is ignored
        try:
            defaults = [one for one in _DEFAULT_SIGNALS if one != signal.SIGTERM]
            return _spawn_program(work, given, defaults, self.cgroup, self.layers)
        finally:
            signal.signal(signal.SIGTERM, self._stop_and_exit)
            if os.getppid() != self.supervisor:  # it may have ended just now
                self._stop_and_exit()

    def _start_with_listeners(self, work: dict[str, Any], given: list[int]) -> None:
        """Starts a sandbox that waits, makes sockets that listen inside its network, gives them to Forge, and goes on.

        Where they cannot be made, the sandbox never runs its program.
        """
        from forge.process.running.listen_inside import SandboxStart, open_listeners

        with SandboxStart() as started:
            work["inherits"] = started.inherited
            self._begin(self._spawn(work, given))
            try:
                if not (child := started.read_child()):
                    return
                sockets = open_listeners(child, work["listens"])
            except OSError as error:
                self._kill_tree()
                self._begin(0)
                raise _NoListeners(error.errno or 0, str(error)) from None
            with contextlib.suppress(OSError):  # the connection is closed: Forge is gone, and so is the program
                socket.send_fds(self.forge, [pack(("listening", self._usable_for()))], sockets)
            for one in sockets:
                os.close(one)
            started.go_on()

    def _limit(self, limits: Iterable[tuple[int, int, int]]) -> None:
        """Lowers the limits that the program inherits. They cannot be raised again, so this keeper serves once."""
        import resource

        self.usable = False
        for which, soft, hard in limits:
            _, most = resource.getrlimit(which)
            if most != resource.RLIM_INFINITY:
                soft, hard = min(soft, most), min(hard, most)
            resource.setrlimit(which, (soft, hard))

    def _check_program(self) -> None:
        """Checks the program and its tree for changes since the last call."""
        empty = self._reap()
        now = time.monotonic()
        if self.stop_at is not None:
            if not empty and (now >= self.stop_at or self._has_left_the_group()):
                empty = self._kill_tree()
            if not empty and now >= self.stop_at + PATIENCE:
                self.usable = False  # some process cannot be killed
                self._report_end(_name_left())
            elif empty:
                self._report_end([])
        elif self.status is not None and not self.reported:
            if empty:
                self._report_end([])
            elif now >= self.settled_at:
                self._leave_or_kill()
        elif empty and self.reported:
            self._finish()

    def _leave_or_kill(self) -> None:
        left = _name_left()
        if self.leave and left:
            self.reported = True
            self._send("ended", self.status, left[:MOST_NAMED], os.getpid(), self._count_events(), False)
        else:
            self._kill_tree()
            self._report_end(left)

    def _kill_tree(self) -> bool:
        if self.cgroup is not None:
            self.cgroup.kill()
        return kill_below(os.getpid(), self._reap, self.program)

    def _count_events(self) -> dict[str, int]:
        return self.cgroup.count_events() if self.cgroup is not None else {}

    def _end_cgroup(self) -> None:
        if self.cgroup is not None:
            self.cgroup.remove()
            self.cgroup = None

    def _report_end(self, left: list[str]) -> None:
        events = self._count_events()
        self._end_cgroup()
        if not self.reported:
            self.reported = True
            self._send("ended", self.status, left[:MOST_NAMED], 0, events, self._usable_for())
        self._finish()

    def _finish(self) -> None:
        self._end_cgroup()
        self.layers.release()
        for pipe in tuple(self.pipes):
            self._forget(pipe)
        self._begin(0)

    def _stop(self, grace: float) -> None:
        """Asks the program's group to end, then kills the rest of the tree."""
        if not self.program:
            return
        now = time.monotonic()
        self.stop_at = min(self.stop_at, now + grace) if self.stop_at is not None else now + grace
        if grace and self.status is None:
            with contextlib.suppress(OSError):
                os.killpg(self.program, signal.SIGTERM)
        elif grace:
            for pid in find_descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM)

    def _stop_and_exit(self, *_: object) -> None:
        """Stops everything: the supervisor asked for it, or is gone."""
        self.usable = False
        self._stop(0.0)
        os.write(self.alarm.writer, b"x")

    def _has_left_the_group(self) -> bool:
        """Returns whether the program and its group are gone: the rest was never asked to end."""
        if self.status is None:
            return False
        try:
            os.killpg(self.program, 0)
        except OSError:
            return not self.reported
        return False

    def _reap(self) -> bool:
        """Reaps children. Returns whether no child, and therefore no descendant, is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid == self.program and self.status is None:
                self.status = os.waitstatus_to_exitcode(status)
                self.settled_at = time.monotonic() + SETTLE

    def _empty(self, pipe: int) -> None:
        try:
            if not os.read(pipe, PIECE):
                self._forget(pipe)
        except BlockingIOError:
            pass
        except OSError:
            self._forget(pipe)

    def _forget(self, pipe: int) -> None:
        self.poll.unregister(pipe)
        self.pipes.discard(pipe)
        os.close(pipe)

    def _send(self, *message: Any) -> None:
        with contextlib.suppress(OSError):  # the connection is closed
            self.forge.send(pack(message))


class Alarm:
    """Wakes a poll when a child ends."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.reader, PIECE)

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self.reader)
        os.close(self.writer)


def _name_left() -> list[str]:
    """Names the descendants. The first process of a namespace is the sandbox itself; a layer may have one, too."""
    left = sorted(find_descendants(os.getpid()))
    return [f"{pid} {describe_process(pid)}" for pid in left if not is_first_of_namespace(pid) and not is_fuse(pid)]


def _spawn_program(
    work: dict[str, Any], given: list[int], defaults: Iterable[signal.Signals], cgroup: Cgroup | None, layers: Layers
) -> int:
    """Starts the program in its own session. Without a cgroup, or layers in a user namespace, it does not fork, which
    would copy this process.
    """
    split = len(given) - len(work["opened"])
    streams, opened = given[:split], given[split:]
    nothing = -1
    if not work["reads"]:
        nothing = os.open(os.devnull, os.O_RDONLY)
        streams.insert(0, nothing)
    if len(streams) == 2:
        streams.append(streams[1])  # both kinds of output in one pipe
    enters = work["layers"] and cgroup is None and can_be_entered(work["layers"])
    if cgroup is not None or (work["layers"] and not enters):
        try:
            pid = _fork_program(cgroup, work, streams)
        finally:
            if nothing >= 0:
                os.close(nothing)
        if work["layers"]:
            layers.hold(pid)
        return pid
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(streams)]
    actions += [(os.POSIX_SPAWN_OPEN, number, path, flags, 0) for number, path, flags in work["files"]]
    moved = [_move_above(one) for one in opened]
    actions += [(os.POSIX_SPAWN_DUP2, *pair) for pair in zip(moved, work["opened"], strict=True)]
    actions += [(os.POSIX_SPAWN_DUP2, source, target) for source, target in work.get("inherits", ())]
    try:
        if enters:
            layers.enter(work["layers"], work["cwd"])
        return os.posix_spawn(
            work["path"],
            work["argv"],
            work["env"],
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=defaults,
        )
    finally:
        layers.leave()
        for one in (*moved, *([nothing] if nothing >= 0 else ())):
            os.close(one)


def _move_above(descriptor: int) -> int:
    """Returns a copy of a descriptor whose number is none that a program is started with."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_FILES)


def _fork_program(cgroup: Cgroup | None, work: dict[str, Any], streams: list[int]) -> int:
    """Starts the program in its cgroup, with its layers. Raises `OSError` if it cannot be started.

    The child does little: each page that it writes is copied first. So its signals are reset here.
    """
    problem, low = os.pipe()
    report = _move_above(low)
    os.close(low)
    changed = [one for one in _find_changed_signals() if one != signal.SIGTERM or not work["ignores_term"]]
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, changed)
        before = [(one, signal.signal(one, signal.SIG_DFL)) for one in changed]
        try:
            pid = fork_and_wait() if cgroup is None else cgroup.fork()
            if pid < 0:
                pid = os.fork()
            if not pid:
                try:
                    if cgroup is not None:
                        cgroup.enter()
                    _become_program(work, streams)
                except OSError as error:
                    kind = b"layer" if isinstance(error, LayerError) else b""
                    os.write(report, b"%d %s" % (error.errno or 0, kind))
                finally:
                    os._exit(127)
        finally:
            for one, handler in before:
                signal.signal(one, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, changed)
            os.close(report)
        said = os.read(problem, 16)
    finally:
        os.close(problem)
    if said:
        os.waitpid(pid, 0)
        number, kind = said.split(b" ")
        raise (LayerError if kind else OSError)(int(number), os.strerror(int(number)))
    return pid


@cache
def _find_changed_signals() -> list[signal.Signals]:
    """Returns the signals that a program must not inherit as they are here.

    SIGCHLD has a handler, which no program inherits, and none of these signals must be lost here.
    """
    found = [one for one in _DEFAULT_SIGNALS if signal.getsignal(one) is not signal.SIG_DFL]
    return [one for one in found if one != signal.SIGCHLD]


def _become_program(work: dict[str, Any], streams: list[int]) -> None:
    os.setsid()
    for target, source in enumerate(streams):
        os.dup2(source, target)
    for number, path, flags in work["files"]:
        opened = os.open(path, flags)
        if opened == number:
            os.set_inheritable(opened, True)
        else:
            os.dup2(opened, number)
            os.close(opened)
    if work["layers"]:  # after the files are open: another user namespace may not open those of Forge
        enter_layers(work["layers"], work["cwd"])
    for source, number in work.get("inherits", ()):
        os.dup2(source, number)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execve(work["path"], work["argv"], work["env"])  # noqa: S606


def _ignore_signal(*_: object) -> None:
    return None
