"""Runs programs in the background: keeps their output and ends them with their session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.session_programs import at_session_end
from forge.core.secrets import Secrets
from forge.process.running.limits import Resources
from forge.process.running.output import (
    Capture,
    CapturedOutput,
    WholeOutput,
    count_waiting_bytes,
    drop_partial_start,
    read_piece,
)
from forge.process.running.run import ConfinedCommand, signal_name
from forge.process.running.supervisor import GRACE, Program, start
from forge.process.sandbox.layout import CommandLine

MOST_JOBS = 50  # of one session
MOST_LOGGED = 10 * 1024 * 1024  # bytes of each, the newest
_LAST = 4_096  # bytes at the end of a log to search for the sandbox's error


class Job:
    """A program in the background. A thread reads its output, independently of event loops."""

    def __init__(
        self,
        name: str,
        owner: str,
        command: str,
        program: Program,
        stdin: bytes,
        log: int,
        confined: ConfinedCommand | None = None,
    ) -> None:
        self.id = name
        self.file_name = f"{name}-{os.urandom(4).hex()}"  # of the file with its whole output
        self.owner = owner
        self.command = command
        self.log = CapturedOutput(Capture(0, log), wants_whole=True)
        self.looked = 0  # position up to which the log was shown
        self._seen = 0  # … and up to which it was looked at: the beginning of a secret is not shown
        self.status = "running"  # or "ended", "killed"
        self.exit_code: int | None = None
        self.signal = ""
        self.left: tuple[str, ...] = ()
        self.sandbox = "none"
        self.program = program
        self._confined = confined
        self._stdin = memoryview(stdin)
        self._began = time.monotonic()
        self._ended: float | None = None
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    @property
    def network(self) -> tuple[Mapping[str, Any], ...]:
        """The hosts that it tried so far, where rules limit them."""
        return () if self._confined is None else self._confined.network

    @property
    def runs(self) -> bool:
        return self._ended is None

    @property
    def duration(self) -> float:
        return (self._ended or time.monotonic()) - self._began

    def new_output(self, since: int | None = None, secrets: Secrets | None = None) -> tuple[bytes, int]:
        """Returns the output since a position, or since the last call, and the number of bytes dropped before it.

        No output begins or ends inside one of the secrets, while more may come.
        """
        with _jobs.lock:
            start = self.looked if since is None else min(since, self.log.total)
            if secrets is not None and since is not None:
                near, lost = self.log.since(max(start - secrets.longest, 0))
                place = min(start, secrets.longest) - lost
                start -= place - secrets.find_whole(near[: place + secrets.longest], place) if place > 0 else 0
            content, gone = self.log.since(start)
            self.looked = self._seen = self.log.total
            if secrets is not None and self.runs and content:
                end = content[-secrets.longest - 1 :].decode(errors="ignore")
                waiting = len(end[secrets.find_beginning(end) :].encode())
                content, self.looked = content[: len(content) - waiting], self.looked - waiting
        return content, gone

    def whole_output(self, position: int) -> WholeOutput:
        """Returns the output for the file that all results of the job share: from its first byte on.

        If nothing from `position` on is stored there, it is the log in memory, which has a file of its own.
        """
        with _jobs.lock:
            stored = self.log.whole
            if stored is not None and position < stored.stored_bytes:
                return stored.snapshot(self.file_name)
            content, gone = self.log.since(0)
            if not gone:
                return WholeOutput.of(content, self.file_name)
            newest = WholeOutput.of(drop_partial_start(content), f"{self.file_name}-newest")
            newest.problem = f"only the newest {len(content)} bytes of the log are kept"
            return newest

    async def wait(self, seconds: float, *, for_end: bool = False) -> None:
        """Waits until the program wrote something that was not shown yet, or ended; at most `seconds`."""
        end = time.monotonic() + seconds
        while True:
            loop = asyncio.get_running_loop()
            news: asyncio.Future[None] = loop.create_future()
            with _jobs.lock:
                if not self.runs or (not for_end and self.log.total > self._seen):
                    return
                self._waiting.append((loop, news))
            try:
                await asyncio.wait_for(news, max(0.0, end - time.monotonic()))
            except TimeoutError:
                return
            finally:
                with _jobs.lock, contextlib.suppress(ValueError):
                    self._waiting.remove((loop, news))

    async def kill(self) -> bool:
        """Kills the whole process tree; returns False if it had ended before."""
        with _jobs.lock:
            if not self.runs:
                return False
            self.status = "killed"
            self.program.stop()
        await self.wait(GRACE + 1.0, for_end=True)
        return True

    def notify_waiters(self) -> None:
        for loop, news in self._waiting:
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(_wake, news)

    def write(self) -> None:
        try:
            self._stdin = self._stdin[os.write(self.program.given, self._stdin) :]
        except BlockingIOError:
            return
        except OSError:  # the program reads no more
            self._stdin = self._stdin[:0]

    @property
    def has_input(self) -> bool:
        return bool(self._stdin)

    def end(self, message: tuple[Any, ...]) -> None:
        """Records the end of the program from its keeper's message."""
        pipe = self.program.output
        left = count_waiting_bytes(pipe) if pipe >= 0 else 0
        while left > 0 and (piece := read_piece(pipe, left)):
            left -= len(piece)
            self.log.add(piece)
        if message[0] == "ended":
            _, status, running, nanny, *_ = message
            self.exit_code = status if status is not None and status >= 0 else None
            self.signal = signal_name(-status) if status is not None else ""
            if nanny:
                self.left = tuple(running)
                self.program.leave(self.owner)
        elif self.status == "running":
            self.log.add(memoryview(b"[it could not be started, or what watched over it was killed]\n"))
        self._close_sandbox()
        if self.status == "running":
            self.status = "ended"
        self._ended = time.monotonic()

    def _close_sandbox(self) -> None:
        """Restores protected files and logs it, also if the sandbox could not be made."""
        if self._confined is None:
            return
        words = self._confined.settle()
        said = self.log.since(max(0, self.log.total - _LAST))[0].decode(errors="replace")
        if problem := self._confined.problem(self.exit_code, said):
            words.append(f"{problem.message}. {problem.suggestion}")
        self.signal = self.signal or self._confined.signal(self.exit_code)
        failed = self.exit_code != 0 or bool(self.signal)
        words += self._confined.explain_reached_limits(said, failed=failed, counted=self.program.reached)
        self._confined.still_used = bool(self.left)
        self._confined.close()
        for word in words:
            self.log.add(memoryview(f"[{word}]\n".encode()))


def start_job(
    argv: Sequence[str] | CommandLine,
    *,
    cwd: Path,
    env: Mapping[str, str],
    owner: str,
    command: str,
    stdin: bytes = b"",
    limits: Resources | None = None,
    most_jobs: int = MOST_JOBS,
    most_logged: int = MOST_LOGGED,
    confined: ConfinedCommand | None = None,
) -> Job:
    """Starts a job. Raises `ToolError` if the owner has too many, or the program cannot be started.

    `confined` is the confined command that `argv` comes from. It is closed when the job has ended; restored files are
    reported in the log.
    """
    with _jobs.lock:
        _make_room(owner, most_jobs)
        try:
            program = start(argv, cwd=cwd, env=env, reads=bool(stdin), merge=True, limits=limits, leave=True)
        except OSError as error:
            raise ToolError(f"no program can be started now: {error.strerror}", passing=True) from None
        number = _jobs.numbers[owner] = _jobs.numbers.get(owner, 0) + 1
        job = Job(f"job_{number}", owner, command, program, stdin, most_logged, confined)
        _jobs.by_name[owner, job.id] = job
        _jobs.pump.add(job)
    return job


def list_jobs(owner: str) -> list[Job]:
    with _jobs.lock:
        return [job for job in _jobs.by_name.values() if job.owner == owner]


def find_job(owner: str, name: str) -> Job:
    with _jobs.lock:
        job = _jobs.by_name.get((owner, name.strip()))
        if job is None:
            known = ", ".join(one.id for one in list_jobs(owner))
            there = f"Known jobs: {known}." if known else "Start one with bash and background=true."
            raise ToolError(f'there is no job "{name[:80]}" in this session', ErrorKind.NOT_FOUND, there)
        return job


def _owners() -> list[str]:
    with _jobs.lock:
        return [job.owner for job in _jobs.by_name.values()]


@at_session_end(_owners)
def end_jobs(owner: str = "") -> None:
    """Kills and forgets the jobs of a session; of all sessions without one."""
    with _jobs.lock:
        for key, job in list(_jobs.by_name.items()):
            if not owner or job.owner == owner:
                if job.runs:
                    job.status = "killed"
                    job.program.stop()
                del _jobs.by_name[key]
                _jobs.numbers.pop(job.owner, None)


class _Pump(threading.Thread):
    """Reads the output of jobs and receives their ends."""

    def __init__(self) -> None:
        super().__init__(name="forge-jobs", daemon=True)
        self._selector = selectors.DefaultSelector()
        self._waker, self._bell = os.pipe()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._new: list[Job] = []
        self.start()

    def add(self, job: Job) -> None:
        self._new.append(job)
        os.write(self._bell, b"x")

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._waker:
                    os.read(self._waker, 1)
                    self._take(self._new.pop(0))
                    continue
                job, part = key.data
                with _jobs.lock:
                    getattr(self, f"_{part}")(job)
                    job.notify_waiters()

    def _take(self, job: Job) -> None:
        self._selector.register(job.program.keeper, selectors.EVENT_READ, (job, "receive"))
        self._selector.register(job.program.output, selectors.EVENT_READ, (job, "read"))
        if job.program.given >= 0:
            self._selector.register(job.program.given, selectors.EVENT_WRITE, (job, "write"))

    def _receive(self, job: Job) -> None:
        if (message := job.program.receive()) is None:
            return
        job.end(message)
        for name in ("output", "given"):
            self._close(job, name)
        self._selector.unregister(job.program.keeper)
        job.program.close()

    def _read(self, job: Job) -> None:
        if job.program.output < 0:
            return
        piece = read_piece(job.program.output)
        if piece:
            job.log.add(piece)
        elif piece is not None:
            self._close(job, "output")

    def _write(self, job: Job) -> None:
        if job.program.given < 0:
            return
        job.write()
        if not job.has_input:
            self._close(job, "given")

    def _close(self, job: Job, name: str) -> None:
        pipe = getattr(job.program, name)
        if pipe >= 0:
            self._selector.unregister(pipe)
            job.program.close_pipe(name)


def _make_room(owner: str, most: int) -> None:
    """Removes the oldest finished job if the owner has too many."""
    mine = list_jobs(owner)
    if len(mine) < most:
        return
    finished = [job for job in mine if not job.runs]
    if not finished:
        raise ToolError(
            f"{most} jobs are already running", ErrorKind.USER, "End one with bash_kill, or wait for one to end."
        )
    del _jobs.by_name[owner, finished[0].id]


def _wake(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)


class _Jobs:
    """The jobs of this process, and the thread that reads their output."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.by_name: dict[tuple[str, str], Job] = {}  # by session and name
        self.numbers: dict[str, int] = {}  # by session: the latest job's

    @cached_property
    def pump(self) -> _Pump:
        return _Pump()


_jobs = _Jobs()


def _reset_after_fork() -> None:
    """Forgets the jobs, which belong to the parent process."""
    global _jobs
    _jobs = _Jobs()


os.register_at_fork(after_in_child=_reset_after_fork)
