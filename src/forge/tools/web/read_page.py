"""Reads a page in a separate program, with limits on time and memory; one started program waits for the next page."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from contextlib import AsyncExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.extras import EXTRAS, missing_extra
from forge.core.plain_values import sendable
from forge.process.running.pipes import StreamedProgram, run_streamed

COMPUTING_SECONDS = 10  # of computing
MEMORY = 1024 * 1024 * 1024  # bytes of address space

_HERE = Path(__file__).parent
_START = "import sys; sys.path += sys.argv[3:]; from page_program import main; main()"  # compiled once, unlike a script
_PYTHON = (sys.executable, "-I", "-S", "-X", "utf8", "-c", _START)
_OTHER = re.compile(
    r"\.(?:json|ndjson|txt|md|xml|rss|csv|tsv|ya?ml|toml|js|css|py|pdf|png|jpe?g|gif|webp|svg|mp[34]|zip|gz|tgz|docx?|xlsx?)"
    r"(?:[?#].*)?\Z",
    re.IGNORECASE,
)


class WebPage(NamedTuple):
    title: str
    text: str


class PageReader:
    """Starts the program before the page arrives, so that it is ready in time."""

    def __init__(self, seconds: int = COMPUTING_SECONDS, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._program: StreamedProgram | None = None
        self._end = AsyncExitStack()

    async def __aenter__(self) -> PageReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end.aclose()  # kills the program

    async def start(self) -> StreamedProgram:
        if self._program is None:
            command = self._command()
            spare = take_spare(command)
            if spare is None:
                self._program = await self._end.enter_async_context(run_streamed(command, _HERE, reads=True))
            else:
                self._program, self._end = spare
        return self._program

    async def read(self, html: str, url: str, form: str) -> WebPage:
        """Converts one page to `markdown`, `text` or `html`. Raises `ToolError` if it exceeds its limits."""
        program = await self.start()
        await program.write(sendable(f"{form}\n{url}\n{html}").encode())
        program.end_input()
        answer: list[bytes] = []
        while piece := await program.read(2.0 * self.seconds):
            answer.append(piece)
        if piece is None:
            raise _unreadable_error(f"it was not read within {2 * self.seconds} s")
        code, said = await program.wait_ended()
        if code:
            raise _unreadable_error(_explain_failure(code, said, self.seconds))
        await prepare_spare(self._command(), _HERE)  # a second page often follows the first
        title, _, text = b"".join(answer).decode().partition("\n")
        return WebPage(title, text)

    def _command(self) -> tuple[str, ...]:
        return (*_PYTHON, str(self.seconds), str(self.memory), *_library_folders())


def may_be_a_page(url: str) -> bool:
    """Returns whether the URL may lead to a page, as far as it tells."""
    return not _OTHER.search(url)


@cache
def _library_folders() -> tuple[str, ...]:
    """Returns the folders of the libraries that the program needs."""
    found = [str(_HERE)]
    for name in EXTRAS["web"].modules:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise missing_extra("web", "a page cannot be read", [name])
        found.append(os.path.dirname(os.path.dirname(spec.origin)))
    return tuple(dict.fromkeys(found))


def _explain_failure(code: int, said: str, seconds: int) -> str:
    if code in (-24, -9):  # SIGXCPU, SIGKILL
        return f"it takes more than {seconds} s of computing"
    if code in (-6, -11, -7) or "MemoryError" in said:  # SIGABRT, SIGSEGV, SIGBUS
        return "it takes too much memory, or crashes the converter"
    return (said.strip().splitlines() or [f"exit code {code}"])[-1][:300]


def _unreadable_error(why: str) -> ToolError:
    return ToolError(
        f"the page cannot be read: {why}",
        ErrorKind.USER,
        "Its HTML is broken or hostile; look for the content elsewhere, or get its source with http_request.",
    )


# Keeps one started program ready for the next page, for a short while.

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

    async def start(self, directory: Path) -> None:
        self.program = await self.end.enter_async_context(run_streamed(self.command, directory, reads=True))
        self.timer = asyncio.get_running_loop().call_later(IDLE, self._expire)

    def _expire(self) -> None:
        if _spares.waiting.pop(asyncio.get_running_loop(), None) is self:
            ending = asyncio.create_task(self.end.aclose())
            _spares.ending.add(ending)
            ending.add_done_callback(_spares.ending.discard)


class _Spares:
    """The waiting programs of this process, one for each event loop."""

    def __init__(self) -> None:
        self.waiting: dict[asyncio.AbstractEventLoop, _Spare] = {}
        self.ending: set[asyncio.Task[None]] = set()  # a loop alone does not hold on to them


_spares = _Spares()


async def prepare_spare(command: tuple[str, ...], directory: Path) -> None:
    """Starts a program, unless one is waiting already."""
    for stale in [loop for loop in list(_spares.waiting) if loop.is_closed()]:
        _spares.waiting.pop(stale, None)
    loop = asyncio.get_running_loop()
    if loop in _spares.waiting:
        return
    spare = _spares.waiting[loop] = _Spare(command)
    try:
        await spare.start(directory)
    except (ToolError, OSError):  # the next page starts one of its own
        del _spares.waiting[loop]
    except BaseException:
        del _spares.waiting[loop]
        raise


def take_spare(command: tuple[str, ...]) -> tuple[StreamedProgram, AsyncExitStack] | None:
    """Returns the waiting program and the context that ends it; None if there is none for this command."""
    loop = asyncio.get_running_loop()
    spare = _spares.waiting.get(loop)
    if spare is None or spare.program is None or spare.timer is None or spare.command != command:
        return None
    if not spare.program.is_running:
        return None
    del _spares.waiting[loop]
    spare.timer.cancel()
    return spare.program, spare.end
