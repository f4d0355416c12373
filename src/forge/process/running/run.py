"""Runs a program to its end: output as it comes and within bounds, and nothing left of it when time is up."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.process.running.limits import Resources
from forge.process.running.output import OFTEN, Capture, Kept, Shown, read_piece, waiting_bytes
from forge.process.running.slots import slots
from forge.process.running.supervisor import GRACE, Program, start
from forge.process.running.whole_output import Whole
from forge.process.sandbox.command import Command
from forge.process.sandbox.layout import Confinement
from forge.process.sandbox.put_back import watched

if TYPE_CHECKING:  # only where programs are confined
    from forge.process.sandbox import Boxed, Tier

__all__ = ["Capture", "Confined", "Confinement", "Finished", "confine", "run", "signal_name", "tier_of"]

_tiers: dict[str | bool, Tier] = {}  # what confines programs in this process, by setting
DEFAULT = Capture(256 * 1024, 768 * 1024)
_UNKILLABLE = 6.0  # seconds after the kill, until we stop waiting for what cannot even be killed
_SCARCE = 5.0  # seconds to wait for descriptors that others hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a program ended, and what it wrote."""

    output: str  # with what it wrote as errors, where the two were merged
    errors: str = ""
    exit_code: int | None = None  # None: a signal ended it, or it could not be killed
    signal: str = ""  # such as "SIGKILL"; in bubblewrap with an exit code such as 137
    duration: float = 0.0
    timed_out: bool = False
    cut: int = 0  # bytes left out of `output`
    errors_cut: int = 0
    whole: Whole | None = None  # all of `output`, where something was left out and all of it was wanted
    left: tuple[str, ...] = ()  # what it had started and still runs, each with its process number
    killed: tuple[str, ...] = ()  # what it had started and was killed after it ended
    put_back: tuple[str, ...] = ()  # what it changed although it may not, in words
    sandbox: str = "none"


async def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout: float | None = None,
    merge: bool = False,
    capture: Capture = DEFAULT,
    wants_whole: bool = False,
    on_output: Callable[[str], None] | None = None,
    on_errors: Callable[[str], None] | None = None,
    limits: Resources | None = None,
    leave: str | None = None,
    confinement: Confinement | None = None,
    sandbox: str | bool = "auto",
) -> Finished:
    """Returns when the program exits, whoever still holds its pipes. Cancelled, it kills the whole tree first.

    With `wants_whole`, all that it writes to its output is kept in a file, too, where `capture` does not hold it.
    `on_output` is told what it writes while it runs, `on_errors` only what it writes to its standard error.
    `leave` names an owner: what the program leaves running goes on until `end_left(owner)` or the end of this process;
    without one it is killed when the program has ended. With a `confinement` it runs inside the `sandbox` that is
    wanted and can be had. Raises `ToolError` for what cannot be started. A cancellation leaves with what the program
    wrote until then as its `finished`.
    """
    async with slots:
        confined = await confine(argv, confinement, sandbox, env)
        try:
            began = asyncio.get_running_loop().time()
            program = await _started(confined.command, cwd, env, bool(stdin), merge, limits, leave is not None)
            shown = {"output": on_output, "errors": on_errors or on_output}
            watch = _Watch(program, began, stdin, capture, shown, wants_whole)
            said: list[str] = []
            try:
                try:
                    await watch.ended(timeout)
                except asyncio.CancelledError as error:
                    with contextlib.suppress(ToolError):  # it had not even begun
                        vars(error)["finished"] = watch.finished(None, confined.tier, argv[0], cwd)
                    raise
                finally:
                    said += confined.settle()
                finished = watch.finished(leave, confined.tier, argv[0], cwd)
            finally:
                watch.close()
            if problem := confined.problem(finished.exit_code, finished.errors or finished.output):
                raise problem
            confined.still_used = bool(finished.left)
            ended_by = finished.signal or confined.signal(finished.exit_code)
            return replace(finished, signal=ended_by, put_back=tuple(said))
        finally:
            confined.close()


class Confined:
    """A command line to start instead of another, and the tier that confines it. It must be closed."""

    def __init__(self, command: Command, settle: Callable[[], list[str]] = list, boxed: Boxed | None = None) -> None:
        self.command = command
        self.settle = settle  # to be called once, when it has ended: what was put back, in words
        self.tier = "none" if boxed is None else str(boxed.tier)
        self.still_used = False  # what it left running still uses its home
        self._boxed = boxed

    def problem(self, exit_code: int | None, said: str) -> ToolError | None:
        """Why the program never ran, though its sandbox ended; None if it did run."""
        return None if self._boxed is None else self._boxed.problem(exit_code, said)

    def signal(self, exit_code: int | None) -> str:
        """The signal that an exit code stands for; "" if the program chose the code itself, or nobody knows."""
        return "" if self._boxed is None else signal_name(self._boxed.signal(exit_code))

    def close(self) -> None:
        if self._boxed is not None:
            self._boxed.close(still_used=self.still_used)


async def confine(
    argv: Sequence[str], confinement: Confinement | None, sandbox: str | bool, env: Mapping[str, str]
) -> Confined:
    """Confine a command line in the sandbox that is wanted and can be had; the same line where none is."""
    if confinement is None:
        return Confined(Command(list(argv)))
    from forge.process.sandbox import Boxed, Tier  # only where programs are confined

    tier = await in_thread(lambda: tier_of(sandbox)) if sandbox not in _tiers else _tiers[sandbox]
    if tier is Tier.NONE:
        return Confined(Command(list(argv)))
    boxed = Boxed(argv, confinement, tier, env)
    try:
        return Confined(boxed.command, watched(confinement, str(tier)), boxed)
    except BaseException:
        boxed.close()
        raise


def tier_of(sandbox: str | bool) -> Tier:
    """The tier that confines programs under a setting. It is found by trying, once, which takes a moment."""
    from forge.process.sandbox import choose  # only where programs are confined

    if sandbox not in _tiers:
        _tiers[sandbox] = choose(sandbox)
    return _tiers[sandbox]


async def _started(
    command: Command,
    cwd: Path,
    env: Mapping[str, str],
    reads: bool,
    merge: bool,
    limits: Resources | None,
    leave: bool,
) -> Program:
    """Started, when there are descriptors for it: others may hold them for a moment."""
    end = asyncio.get_running_loop().time() + _SCARCE
    while True:
        try:
            return start(command, cwd=cwd, env=env, reads=reads, merge=merge, limits=limits, leave=leave)
        except OSError as error:
            if asyncio.get_running_loop().time() > end:
                raise ToolError(
                    f"no program can be started now: {error.strerror}",
                    ErrorKind.SYSTEM,
                    "Run fewer at once.",
                    passing=True,
                ) from None
        await asyncio.sleep(0.05)


class _Watch:
    """A program, seen from the event loop: what it writes, what it reads, and that it ends."""

    def __init__(
        self,
        program: Program,
        began: float,
        stdin: bytes,
        capture: Capture,
        shown: Mapping[str, Callable[[str], None] | None],
        wants_whole: bool = False,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.program = program
        self.kept = {"output": Kept(capture, wants_whole=wants_whole), "errors": Kept(capture)}
        self.shown = {name: Shown(show) for name, show in shown.items() if show is not None}
        self.message: tuple[Any, ...] = ()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.timed_out = False
        self.began = began
        self.duration = 0.0
        self._stdin = memoryview(stdin)
        self._timers: list[asyncio.TimerHandle] = []
        self._showing: asyncio.TimerHandle | None = None
        self._show_at = 0.0
        self.loop.add_reader(program.keeper.fileno(), self._hear)
        for name in self.kept:
            if (pipe := getattr(program, name)) >= 0:
                self.loop.add_reader(pipe, self._read, name)
        if stdin:
            self._write()

    async def ended(self, timeout: float | None) -> None:
        if timeout is not None:
            self._timers.append(self.loop.call_later(timeout, self._time_out))
        try:
            await self.done
        except asyncio.CancelledError:
            if not self.message:  # it may have ended in this very moment
                self.done = self.loop.create_future()
                self._stop()
                await self.done
            self._show_rest()
            raise

    def finished(self, owner: str | None, sandbox: str, name: str, cwd: Path) -> Finished:
        match self.message:
            case ("failed", number, stage, _):
                raise not_started(number, stage, name, cwd)
            case ("ended", status, left, nanny, _):
                pass
            case _ if self.timed_out:
                status, left, nanny = None, ["something that cannot be killed"], 1
            case _:
                raise ToolError(
                    "what watched over the program was killed, and the program with it", ErrorKind.SYSTEM, "Try again."
                )
        self._show_rest()
        if nanny and owner is not None:
            self.program.leave(owner)
        output, errors = self.kept["output"], self.kept["errors"]
        return Finished(
            output=output.text(),
            errors=errors.text(),
            exit_code=status if status is not None and status >= 0 else None,
            signal=signal_name(-status) if status is not None else "",
            duration=self.duration,
            timed_out=self.timed_out,
            cut=output.cut,
            errors_cut=errors.cut,
            whole=output.whole,
            left=tuple(left) if nanny else (),
            killed=() if nanny else tuple(left),
            sandbox=sandbox,
        )

    def close(self) -> None:
        """Whatever state it is in: nothing of it stays behind."""
        self.loop.remove_reader(self.program.keeper.fileno())
        for name in self.kept:
            self._close(name)
        if self.program.given >= 0:
            self.loop.remove_writer(self.program.given)
        for timer in (*self._timers, *([self._showing] if self._showing else [])):
            timer.cancel()
        self.program.close()

    def _hear(self) -> None:
        message = self.program.hear()
        if message is None or self.message:
            return
        self.message = message
        self.duration = self.loop.time() - self.began
        self.loop.remove_reader(self.program.keeper.fileno())
        self._finish()

    def _read(self, name: str) -> None:
        piece = read_piece(getattr(self.program, name))
        if piece is None:
            return
        if not piece:
            self._close(name)
            return
        self._take(name, piece)

    def _take(self, name: str, piece: memoryview) -> None:
        self.kept[name].add(piece)
        if name in self.shown:
            self.shown[name].add(piece)
            if self._showing is None:
                wait = max(0.0, self._show_at - self.loop.time())
                self._showing = self.loop.call_later(wait, self._show)

    def _drain(self, name: str) -> None:
        """What was in the pipe when the program ended; what others still write there is not waited for."""
        pipe = getattr(self.program, name)
        left = waiting_bytes(pipe) if pipe >= 0 else 0
        while left > 0 and (piece := read_piece(pipe, left)):
            left -= len(piece)
            self._take(name, piece)

    def _show_rest(self) -> None:
        for name in self.kept:
            self._drain(name)
        self._show(last=True)

    def _show(self, *, last: bool = False) -> None:
        self._showing = None
        self._show_at = self.loop.time() + OFTEN
        for shown in self.shown.values():
            shown.flush(last=last)

    def _write(self) -> None:
        pipe = self.program.given
        try:
            self._stdin = self._stdin[os.write(pipe, self._stdin) :]
        except BlockingIOError:
            pass
        except OSError:  # it reads no more
            self._stdin = self._stdin[:0]
        if self._stdin:
            self.loop.add_writer(pipe, self._write)
        else:
            self.loop.remove_writer(pipe)
            self.program.close_pipe("given")

    def _time_out(self) -> None:
        self.timed_out = True
        self._stop()

    def _stop(self) -> None:
        self.program.stop()
        self._timers.append(self.loop.call_later(GRACE + _UNKILLABLE, self._finish))

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _close(self, name: str) -> None:
        pipe = getattr(self.program, name)
        if pipe >= 0:
            self.loop.remove_reader(pipe)
            self.program.close_pipe(name)


def signal_name(number: int) -> str:
    """Such as "SIGKILL"; "" for what is no signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those in real time has no name
        return f"signal {number}" if 0 < number < signal.NSIG else ""


def not_started(number: int, stage: str, name: str, cwd: Path) -> ToolError:
    words = os.strerror(number) if number else "unknown"
    if stage == "directory":
        return ToolError(f'the directory "{cwd}" cannot be used: {words}', ErrorKind.NOT_FOUND, "Name one that exists.")
    if number == errno.E2BIG:
        return ToolError("its arguments are too long", ErrorKind.VALIDATION, "Put what is long into a file, or stdin.")
    if number == errno.EAGAIN:
        return ToolError("too many processes run already", ErrorKind.SYSTEM, "Wait for some to end.", passing=True)
    if stage == "limits":
        return ToolError(f"its limits cannot be set: {words}", ErrorKind.CONFIG, "Fix the tool's configuration.")
    kind = ErrorKind.NOT_FOUND if number == errno.ENOENT else ErrorKind.USER
    return ToolError(f'"{name[:200]}" cannot be started: {words}', kind, "Check that it is an executable program.")
