"""Keeps one started program ready for the next page, for a short while."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from forge.core.errors import ToolError
from forge.process.running.pipes import StreamedProgram, run_streamed

IDLE = 30.0  # seconds that it waits


class _Spare:
    """A waiting program. It ends after its idle time or with its event loop, which closes the `running` context.

    Where the loop is not closed but killed, its input ends, and so does the program.
    """

    def __init__(self, command: tuple[str, ...]) -> None:
        self.command = command
        self.program: StreamedProgram | None = None  # it is being started
        self.end = AsyncExitStack()
        self.timer: asyncio.TimerHandle | None = None
        self.ending: asyncio.Task[None] | None = None

    async def start(self, directory: Path) -> None:
        self.program = await self.end.enter_async_context(run_streamed(self.command, directory, reads=True))
        self.timer = asyncio.get_running_loop().call_later(IDLE, self._expire)

    def _expire(self) -> None:
        if _spares.pop(asyncio.get_running_loop(), None) is self:
            self.ending = asyncio.create_task(self.end.aclose())
            _ending.add(self.ending)
            self.ending.add_done_callback(_ending.discard)


_spares: dict[asyncio.AbstractEventLoop, _Spare] = {}
_ending: set[asyncio.Task[None]] = set()  # a loop alone does not hold on to them


async def prepare_spare(command: tuple[str, ...], directory: Path) -> None:
    """Starts a program, unless one is waiting already."""
    for stale in [loop for loop in list(_spares) if loop.is_closed()]:
        _spares.pop(stale, None)
    loop = asyncio.get_running_loop()
    if loop in _spares:
        return
    spare = _spares[loop] = _Spare(command)
    try:
        await spare.start(directory)
    except (ToolError, OSError):  # the next page starts one of its own
        del _spares[loop]
    except BaseException:
        del _spares[loop]
        raise


def take_spare(command: tuple[str, ...]) -> tuple[StreamedProgram, AsyncExitStack] | None:
    """Returns the waiting program and the context that ends it; None if there is none for this command."""
    loop = asyncio.get_running_loop()
    spare = _spares.get(loop)
    if spare is None or spare.program is None or spare.timer is None or spare.command != command:
        return None
    if not spare.program.is_running:
        return None
    del _spares[loop]
    spare.timer.cancel()
    return spare.program, spare.end
