"""Runs programs with open pipes: two output streams, one input, and no process left at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.process.running.limits import Resources
from forge.process.running.run import ConfinedCommand, confine, signal_name, start_error
from forge.process.running.supervisor import Program, start
from forge.process.sandbox.layout import Confinement

AHEAD = 256 * 1024  # bytes of output that are read ahead
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
        self.output = asyncio.StreamReader(limit=AHEAD)
        self.errors = asyncio.StreamReader(limit=AHEAD)
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
        sandbox: str | bool = "auto",
    ) -> Piped:
        """Starts a program; with a `confinement` inside the wanted `sandbox`. Raises `ToolError` for a bad command
        line, a missing program or a missing sandbox; `wait_ended` and `explain_failed_start` report other failures.
        """
        confined = await confine(argv, confinement, sandbox, env, limits)
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
