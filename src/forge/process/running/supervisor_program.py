"""Runs the one process beside Forge that owns all others: makes their keepers, and kills all when Forge ends.

It starts with the standard library alone, without importing `forge` itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket

from forge.process.running.cgroups import remove_all
from forge.process.running.keeper_messages import CGROUPS, NEW, Messages
from forge.process.running.keeper_program import Alarm, Keeper
from forge.process.running.process_tree import adopt_orphans, find_descendants, follow_parent, kill_below

TYPE_CHECKING = False
if TYPE_CHECKING:  # not loaded at run time: this process has to start fast
    from typing import NoReturn


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
