"""Programs that are talked to for as long as they run: two streams out, one in, and nothing left of them at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.process.running.run import not_started, signal_name
from forge.process.running.supervisor import Program, start

AHEAD = 256 * 1024  # bytes of output that are read before anybody asks for them
_UNKILLABLE = 1.0  # seconds after the kill until we stop waiting for what cannot even be killed


class Piped:
    """One that runs. `output` and `errors` are read as they come; a slow reader makes the program wait.

    It must be stopped: its whole tree ends then, as it does when this process ends, however that happens.
    """

    def __init__(self, program: Program, name: str, directory: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._program = program
        self._name = name
        self._directory = directory
        self._transports: list[asyncio.BaseTransport] = []
        self._input: asyncio.StreamWriter | None = None
        self.output = asyncio.StreamReader(limit=AHEAD)
        self.errors = asyncio.StreamReader(limit=AHEAD)
        self._message: asyncio.Future[tuple[Any, ...]] = self._loop.create_future()
        self._loop.add_reader(program.keeper.fileno(), self._hear)

    @classmethod
    async def start(cls, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Piped:
        """Raises `ToolError` for what can be no command line or is not found; other failures are told by `ended`."""
        try:
            program = start(argv, cwd=cwd, env=env, reads=True)
        except OSError as error:
            raise ToolError(
                f"no program can be started now: {error.strerror}", ErrorKind.SYSTEM, "Try again.", passing=True
            ) from None
        piped = cls(program, argv[0], cwd)
        try:
            await piped._connect()
        except BaseException:
            program.stop(0.0)
            piped._close()
            raise
        return piped

    async def write(self, content: bytes) -> None:
        """Give it something to read, and wait while much is still unread; ConnectionError when it reads no more."""
        if self._input is None or self._input.is_closing():
            raise ConnectionResetError
        self._input.write(content)
        await self._input.drain()

    async def ended(self) -> str:
        """How it ended, as in `exit code 1` or `SIGKILL`. Raises `ToolError` if it never began."""
        match await asyncio.shield(self._message):
            case ("failed", number, stage, _):
                raise not_started(number, stage, self._name, self._directory)
            case ("ended", int(status), *_):
                return f"exit code {status}" if status >= 0 else signal_name(-status)
            case _:
                return "killed"

    async def stop(self, patience: float, grace: float) -> None:
        """Nothing more to read for it; after `patience` seconds it is asked to end, `grace` later its tree is killed.

        Cancelled, it kills the tree at once.
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
            reading, _ = await loop.connect_read_pipe(_protocol(reader), file)
            self._transports.append(reading)
        given, program.given = os.fdopen(program.given, "wb", 0), -1
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        writing, _ = await loop.connect_write_pipe(lambda: protocol, given)
        self._transports.append(writing)
        self._input = asyncio.StreamWriter(writing, protocol, None, loop)

    def _hear(self) -> None:
        message = self._program.hear()
        if message is not None and not self._message.done():
            self._message.set_result(message)
            self._loop.remove_reader(self._program.keeper.fileno())

    def _close(self) -> None:
        """All that it still keeps is killed by its keeper, which loses its connection with us."""
        with contextlib.suppress(ValueError, OSError):
            self._loop.remove_reader(self._program.keeper.fileno())
        for one in self._transports:
            if isinstance(one, asyncio.WriteTransport) and one.get_write_buffer_size():
                one.abort()  # what it did not read by now stays unread
            else:
                one.close()
        self._program.close()


def _protocol(reader: asyncio.StreamReader) -> Any:
    return lambda: asyncio.StreamReaderProtocol(reader)
