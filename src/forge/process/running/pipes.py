"""Runs a program beside the event loop: its output arrives in pieces, and it ends with its reader."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.process.running.limits import Resources
from forge.process.running.run import ConfinedCommand, confine, signal_name, start_error
from forge.process.running.supervisor import Program, start
from forge.process.sandbox.layout import Confinement

PIECE = 64 * 1024  # bytes read at once: the size of a pipe
PAUSE = 0.003  # seconds between two smaller reads: a program that writes often must not wake us each time
LONGEST_PAUSE = 0.012  # … while it goes on like that; its end is noticed at once
LONGEST_LINE = 1024 * 1024  # bytes of a line; the rest of it is dropped
LINES_AHEAD = 4 * 1024 * 1024  # bytes of input buffered before `write` waits
MOST_ERRORS = 16 * 1024  # bytes of error output kept; the rest is read and dropped

_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE")


class StreamedProgram:
    """A running program. Read until there is nothing more; then `wait_ended` returns its exit code."""

    def __init__(self, process: asyncio.subprocess.Process, output: int) -> None:
        assert process.stderr is not None
        self._process = process
        self._output = output
        self._rest = b""
        self._next = 0.0  # time of the next read
        self._pause = PAUSE
        self._reads_at_end = 0
        self._errors = b""
        self._listening = asyncio.create_task(self._collect_errors(process.stderr))
        if process.stdin is not None:
            process.stdin.transport.set_write_buffer_limits(high=LINES_AHEAD)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def read(self, seconds: float | None = None) -> bytes | None:
        """Returns new output, at least a byte; b"" at the end; None if nothing came in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._read()
        except TimeoutError:
            return None

    async def lines(self, seconds: float | None = None) -> list[bytes] | None:
        """Returns new whole lines without their ends; [] at the end; None if none came in time."""
        piece = await self.read(seconds)
        if piece is None:
            return None
        if not piece:
            rest, self._rest = self._rest, b""
            return [rest] if rest else []
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[:LONGEST_LINE]
        return lines or None

    async def write(self, piece: bytes) -> None:
        """Writes to the program's input. Drops it if the program reads no more."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(piece)
            await self._process.stdin.drain()

    def end_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def wait_ended(self) -> tuple[int, str]:
        """Waits for the end. Returns the exit code (negative: the signal) and the beginning of the error output."""
        await self._listening
        return await self._process.wait(), self._errors.decode(errors="replace")

    async def kill(self) -> None:
        """Kills its whole group at once and waits for its end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS raises the latter for a dead process
            os.killpg(self._process.pid, signal.SIGKILL)
        self._listening.cancel()
        self.end_input()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(self._process.wait())

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        if (early := self._next - loop.time()) > 0:
            await self._wait_for_more(early)
        while True:
            try:
                piece = os.read(self._output, PIECE)
            except BlockingIOError:
                self._pause = PAUSE
                await self._wait_readable(loop)
                continue
            if len(piece) < PIECE // 2:
                self._next = loop.time() + self._pause
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
            else:
                self._next, self._pause = 0.0, PAUSE
            return piece

    async def _wait_for_more(self, seconds: float) -> None:
        """Waits before the next read. The program's end is noticed at once: its error output is closed then.

        A program may also close it and go on: after two reads, which are enough for what is left at the end, it is
        waited for as before.
        """
        if not self._listening.done():
            await asyncio.wait({self._listening}, timeout=seconds)
        elif self._reads_at_end < 2:
            self._reads_at_end += 1
        else:
            await asyncio.sleep(seconds)

    async def _wait_readable(self, loop: asyncio.AbstractEventLoop) -> None:
        something = asyncio.Event()
        loop.add_reader(self._output, something.set)
        try:
            await something.wait()
        finally:
            loop.remove_reader(self._output)

    async def _collect_errors(self, stream: asyncio.StreamReader) -> None:
        while piece := await stream.read(PIECE):
            self._errors += piece[: MOST_ERRORS - len(self._errors)]


@asynccontextmanager
async def run_streamed(
    command: Sequence[str], directory: Path, *, reads: bool = False
) -> AsyncIterator[StreamedProgram]:
    """Runs the program as the leader of its own session, which is killed as a whole when the block is left.

    Its environment has only PATH and the language; it has no standard input unless it `reads`. Raises `ToolError` if it
    cannot be started.
    """
    output, theirs = os.pipe()
    try:
        os.set_blocking(output, False)
        try:
            process = await _start(command, directory, theirs, reads=reads)
        finally:
            os.close(theirs)
        program = StreamedProgram(process, output)
        try:
            yield program
        finally:
            await program.kill()
    finally:
        os.close(output)


async def _start(command: Sequence[str], directory: Path, output: int, *, reads: bool) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            stdin=asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        )
    except OSError as error:
        problem = f"{os.path.basename(command[0])} cannot be started in {directory}: {error.strerror}"
        hint = "Try again. If it keeps failing, tell the person."
        raise ToolError(problem, ErrorKind.SYSTEM, hint, passing=error.errno in _PASSING) from None


# Runs programs with open pipes: two output streams, one input, and no process left at the end.


BYTES_AHEAD = 256 * 1024  # bytes of output that are read ahead
_UNKILLABLE = 1.0  # seconds after the kill until we stop waiting for an unkillable process


class Piped:
    """A running program. `output` and `errors` are read as they come; a slow reader makes the program wait.

    It must be stopped, which ends its whole tree; so does the end of this process.
    """

    def __init__(self, program: Program, confined: ConfinedCommand, name: str, directory: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._program = program
        self._confined = confined
        self.sandbox = confined.tier
        self.put_back: tuple[str, ...] = ()  # after the end: descriptions of protected files that were restored
        self._name = name
        self._directory = directory
        self._transports: list[asyncio.BaseTransport] = []
        self._input: asyncio.StreamWriter | None = None
        self.output = asyncio.StreamReader(limit=BYTES_AHEAD)
        self.errors = asyncio.StreamReader(limit=BYTES_AHEAD)
        self._message: asyncio.Future[tuple[Any, ...]] = self._loop.create_future()
        self._loop.add_reader(program.keeper.fileno(), self._receive)

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        limits: Resources | None = None,
        confinement: Confinement | None = None,
    ) -> Piped:
        """Starts a program; with a `confinement` inside the sandbox that this wants.

        Raises `ToolError` for a bad command line, a missing program or a missing sandbox; `wait_ended` and
        `explain_failed_start` report other failures.
        """
        confined = await confine(argv, confinement, env, limits)
        try:
            program = start(confined.command, cwd=cwd, env=env, reads=True, limits=limits)
        except OSError as error:
            confined.close()
            raise ToolError(
                f"no program can be started now: {error.strerror}", ErrorKind.SYSTEM, "Try again.", passing=True
            ) from None
        except BaseException:
            confined.close()
            raise
        piped = cls(program, confined, argv[0], cwd)
        try:
            await piped._connect()
        except BaseException:
            program.stop(0.0)
            piped._close()
            raise
        return piped

    @property
    def network(self) -> tuple[Mapping[str, Any], ...]:
        """The hosts that the program tried, where rules limit them."""
        return self._confined.network

    async def write(self, content: bytes) -> None:
        """Writes to the program's input and waits while much is unread; ConnectionError if it reads no more."""
        if self._input is None or self._input.is_closing():
            raise ConnectionResetError
        self._input.write(content)
        await self._input.drain()

    async def wait_ended(self) -> str:
        """Waits for the end and describes it: `exit code 1` or `SIGKILL`. Raises `ToolError` if the program never
        began.
        """
        match await asyncio.shield(self._message):
            case ("failed", number, stage, _):
                raise start_error(number, stage, self._name, self._directory)
            case ("ended", int(status), *_):
                if status < 0:
                    return signal_name(-status)
                return self._confined.signal(status) or f"exit code {status}"
            case _:
                return "killed"

    def explain_failed_start(self, said: str) -> ToolError | None:
        """Returns why the program never ran, though its sandbox ended; None if it ran. `said`: its error output."""
        message = self._message.result() if self._message.done() else ()
        status = message[1] if message and message[0] == "ended" else None
        return self._confined.problem(status if isinstance(status, int) and status >= 0 else None, said)

    async def stop(self, patience: float, grace: float) -> None:
        """Closes the input; after `patience` seconds asks the program to end, `grace` later kills its tree.

        If cancelled, kills the tree at once.
        """
        self.end_input()
        try:
            if not await self._is_over(patience):
                self._program.stop(grace)
                await self._is_over(grace + _UNKILLABLE)
        finally:
            self._program.stop(0.0)
            self._close()

    def end_input(self) -> None:
        if self._input is not None:
            self._input.close()

    async def _is_over(self, seconds: float) -> bool:
        done, _ = await asyncio.wait([self._message], timeout=seconds)
        return bool(done)

    async def _connect(self) -> None:
        program, loop = self._program, self._loop
        for name, reader in (("output", self.output), ("errors", self.errors)):
            file = os.fdopen(getattr(program, name), "rb", 0)
            setattr(program, name, -1)  # the transport closes it
            reading, _ = await loop.connect_read_pipe(_protocol_factory(reader), file)
            self._transports.append(reading)
        given, program.given = os.fdopen(program.given, "wb", 0), -1
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        writing, _ = await loop.connect_write_pipe(lambda: protocol, given)
        self._transports.append(writing)
        self._input = asyncio.StreamWriter(writing, protocol, None, loop)

    def _receive(self) -> None:
        message = self._program.receive()
        if message is not None and not self._message.done():
            self._message.set_result(message)
            self._loop.remove_reader(self._program.keeper.fileno())

    def _close(self) -> None:
        """Closes the connection to the keeper, which kills what is left."""
        with contextlib.suppress(ValueError, OSError):
            self._loop.remove_reader(self._program.keeper.fileno())
        for one in self._transports:
            if isinstance(one, asyncio.WriteTransport) and one.get_write_buffer_size():
                one.abort()  # unread input is dropped
            else:
                one.close()
        self._program.close()
        self.put_back = self.put_back or tuple(self._confined.settle())
        self._confined.close()


def _protocol_factory(reader: asyncio.StreamReader) -> Any:
    return lambda: asyncio.StreamReaderProtocol(reader)
