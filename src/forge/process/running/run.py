"""Runs a program to its end: bounded output as it comes, and no process left when time is up."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import resource
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forge.core.errors import ErrorKind, ToolError, add_until_then
from forge.core.execution.threads import in_thread
from forge.process.running.cgroups import find_delegated
from forge.process.running.limits import Resources
from forge.process.running.output import (
    OFTEN,
    CapturedOutput,
    LiveOutput,
    OutputPlan,
    WholeOutput,
    count_waiting_bytes,
    read_piece,
)
from forge.process.running.supervisor import GRACE, Program, start
from forge.process.sandbox import SandboxedCommand, Tier, choose_tier
from forge.process.sandbox.layout import CommandLine, Confinement, NetworkProxy
from forge.process.sandbox.restore_files import watch_protected_files

__all__ = ["ConfinedCommand", "FinishedProgram", "confine", "find_tier", "run", "signal_name"]

NOT_BEGUN = "the trial could not begin, so nothing was run"

_UNKILLABLE = 6.0  # seconds after the kill until we stop waiting for an unkillable process
_MOST_REFUSED = 5  # hosts that are named
_ASK_AGAIN = 1.0  # seconds until we look again whether a program still waits for a person
_SCARCE = 5.0  # seconds to wait for descriptors that others hold


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedProgram:
    """The exit and the output of a program."""

    output: str  # with its error output, if merged
    errors: str = ""
    exit_code: int | None = None  # None: a signal ended the program, or it could not be killed
    signal: str = ""  # such as "SIGKILL"; in bubblewrap with an exit code such as 137
    duration: float = 0.0
    timed_out: bool = False
    cut: int = 0  # bytes left out of `output`
    errors_cut: int = 0
    whole: WholeOutput | None = None  # all of `output`, if some was left out and all was wanted
    left: tuple[str, ...] = ()  # descendants that still run, each with its process number
    killed: tuple[str, ...] = ()  # descendants that were killed after the program ended
    put_back: tuple[str, ...] = ()  # descriptions of protected files that were restored
    sandbox: str = "none"
    limits: Mapping[str, str] = field(default_factory=dict)  # of the sandbox: memory, processes, …
    network: tuple[Mapping[str, Any], ...] = ()  # the hosts that it tried, where rules limit them
    reached: tuple[str, ...] = ()  # explanations of the limits that it reached, or seems to have reached

    @property
    def sandbox_facts(self) -> dict[str, Any]:
        """Returns the sandbox part of a result's data: the tier, its limits, and the hosts that were tried."""
        limits = {"sandbox_limits": dict(self.limits)} if self.limits else {}
        network = {"network": [dict(one) for one in self.network]} if self.network else {}
        return {"sandbox": self.sandbox, **limits, **network}

    @property
    def refused_hosts(self) -> list[str]:
        """Says of each host that it was not allowed to reach why."""
        return describe_refusals(self.network)


def describe_refusals(network: Iterable[Mapping[str, Any]]) -> list[str]:
    """Says why hosts were not reached; of the first ones, since a program may try many."""
    refused = [one for one in network if one.get("refused")]
    said = [
        f"{'a request to ' if one.get('connections') else ''}{one['host']}:{one['port']}"
        f" {'was refused' if one.get('connections') else 'was not reached'}: {one['refused']}"
        for one in refused[:_MOST_REFUSED]
    ]
    left = len(refused) - _MOST_REFUSED
    return [*said, f"{left} more hosts were not reached"] if left > 0 else said


async def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout: float | None = None,
    output: OutputPlan = OutputPlan(),  # noqa: B008 - it cannot be changed
    limits: Resources | None = None,
    leave: str | None = None,
    confinement: Confinement | None = None,
) -> FinishedProgram:
    """Runs a program. Returns when it exits, even if others hold its pipes. If cancelled, kills the whole tree first.

    `leave` names an owner: processes that the program leaves running continue until `end_left(owner)` or the end of
    this process; without one they are killed when the program has ended. With a `confinement` it runs inside the
    sandbox that this wants. Raises `ToolError` if it cannot be started. A cancellation carries the output so far:
    `find_until_then`.
    """
    async with slots:
        confined = await confine(argv, confinement, env, limits)
        try:
            began = asyncio.get_running_loop().time()
            program = await _start(confined.command, cwd, env, bool(stdin), output.merge, limits, leave is not None)
            watch = _ProgramWatch(program, began, stdin, output, confined.seconds_waited)
            said: list[str] = []
            try:
                try:
                    await watch.wait_ended(timeout)
                except asyncio.CancelledError as error:
                    try:
                        until_then = watch.make_result(None, confined.tier, argv[0], cwd)
                    except ToolError:  # the program had not begun
                        raise error from None
                    raise add_until_then(error, until_then) from None
                finally:
                    said += confined.settle()
                finished = watch.make_result(leave, confined.tier, argv[0], cwd)
            finally:
                watch.close()
            if problem := confined.problem(finished.exit_code, finished.errors or finished.output):
                raise problem
            confined.still_used = bool(finished.left)
            ended_by = finished.signal or confined.signal(finished.exit_code)
            failed = finished.exit_code != 0 or bool(ended_by)
            said_all = f"{finished.output}\n{finished.errors}"
            reached = confined.explain_reached_limits(said_all, failed=failed, counted=program.reached)
            return replace(
                finished,
                signal=ended_by,
                put_back=tuple(said),
                limits=confined.limits,
                network=confined.network,
                reached=tuple(reached),
            )
        finally:
            confined.close()


class ConfinedCommand:
    """A command line that replaces another, and the sandbox tier that confines it. It must be closed."""

    def __init__(
        self,
        command: CommandLine,
        settle: Callable[[], list[str]] = list,
        boxed: SandboxedCommand | None = None,
        proxy: NetworkProxy | None = None,
    ) -> None:
        self.command = command
        self._proxy = proxy
        self.settle = settle  # call it once, after the end: restores protected files and describes them
        self.tier = "none" if boxed is None else str(boxed.tier)
        self.still_used = False  # processes left running still use its home
        self._boxed = boxed

    def problem(self, exit_code: int | None, said: str) -> ToolError | None:
        """Returns why the program never ran, though its sandbox ended; None if it ran."""
        return None if self._boxed is None else self._boxed.problem(exit_code, said)

    def signal(self, exit_code: int | None) -> str:
        """Returns the signal that an exit code stands for; "" if the program chose the code itself, or it is
        unknown.
        """
        return "" if self._boxed is None else signal_name(self._boxed.signal(exit_code))

    @property
    def limits(self) -> dict[str, str]:
        """Describes the limits of the program; empty without a sandbox."""
        return {} if self._boxed is None else self._boxed.limits

    @property
    def network(self) -> tuple[Mapping[str, Any], ...]:
        """The hosts that the program tried, where rules limit them."""
        return () if self._proxy is None else tuple(self._proxy.report())

    def seconds_waited(self) -> float:
        """Returns how long the program waited for a person's answer about a host; infinite while it waits."""
        return 0.0 if self._proxy is None else self._proxy.waited

    def explain_reached_limits(self, said: str, *, failed: bool, counted: Mapping[str, int]) -> list[str]:
        """Explains the limits that the program reached, or seems to have reached. `counted`: by its cgroup."""
        return [] if self._boxed is None else self._boxed.explain_reached_limits(said, failed=failed, counted=counted)

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.close()
        if self._boxed is not None:
            self._boxed.close(still_used=self.still_used)


async def confine(
    argv: Sequence[str],
    confinement: Confinement | None,
    env: Mapping[str, str],
    limits: Resources | None = None,
) -> ConfinedCommand:
    """Confines a command line in the sandbox that the confinement wants; returns the same line if none is available.

    `limits`: those that the program is started with. They replace the sandbox's own limits of the same kind.
    """
    if confinement is None:
        return ConfinedCommand(CommandLine(list(argv)))

    sandbox = confinement.sandbox
    tier: Tier = await in_thread(lambda: find_tier(sandbox))
    if confinement.layers and tier is not Tier.BUBBLEWRAP:
        raise ToolError(
            f"{NOT_BEGUN}: it needs bubblewrap, and the sandbox is {tier}",
            ErrorKind.CONFIG,
            "Run it outside a trial, after asking the person.",
        )
    if tier is Tier.NONE:
        return ConfinedCommand(CommandLine(list(argv)))
    delegated = find_delegated()
    cgroups = (delegated.folder, delegated.controllers) if delegated is not None else ("", ())
    boxed = SandboxedCommand(argv, _without_given(confinement, limits), tier, env, cgroups)
    try:
        proxy = confinement.proxy if boxed.command.listens else None
        return ConfinedCommand(boxed.command, watch_protected_files(confinement, str(tier)), boxed, proxy)
    except BaseException:
        boxed.close()
        raise


def _without_given(confinement: Confinement, limits: Resources | None) -> Confinement:
    if limits is None:
        return confinement
    given = {"memory": limits.data or limits.memory, "processes": limits.processes, "open_files": limits.open_files}
    unlimited = {name: 0 for name, value in given.items() if value}
    return replace(confinement, limits=confinement.limits._replace(**unlimited))


def find_tier(sandbox: str | bool) -> Tier:
    """Returns the tier that confines programs under a setting. The first call tries the tiers, which takes a moment."""
    tier = choose_tier(sandbox)
    find_delegated()
    return tier


async def _start(
    command: CommandLine,
    cwd: Path,
    env: Mapping[str, str],
    reads: bool,
    merge: bool,
    limits: Resources | None,
    leave: bool,
) -> Program:
    """Starts a program, waiting a moment for free file descriptors."""
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


class _ProgramWatch:
    """Watches a program from the event loop: its output, its input, and its end."""

    def __init__(
        self,
        program: Program,
        began: float,
        stdin: bytes,
        output: OutputPlan,
        waited: Callable[[], float],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.program = program
        self.captured = {
            "output": CapturedOutput(output.capture, wants_whole=output.whole),
            "errors": CapturedOutput(output.capture),
        }
        shown = {"output": output.on_output, "errors": output.on_errors or output.on_output}
        self.shown = {name: LiveOutput(show) for name, show in shown.items() if show is not None}
        self.message: tuple[Any, ...] = ()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.timed_out = False
        self._waited, self._allowed = waited, 0.0
        self.began = began
        self.duration = 0.0
        self._stdin = memoryview(stdin)
        self._timers: list[asyncio.TimerHandle] = []
        self._showing: asyncio.TimerHandle | None = None
        self._show_at = 0.0
        self.loop.add_reader(program.keeper.fileno(), self._receive)
        for name in self.captured:
            if (pipe := getattr(program, name)) >= 0:
                self.loop.add_reader(pipe, self._read, name)
        if stdin:
            self._write()

    async def wait_ended(self, timeout: float | None) -> None:
        if timeout is not None:
            self._timers.append(self.loop.call_later(timeout, self._time_out))
        try:
            await self.done
        except asyncio.CancelledError:
            if not self.message:  # the program may have ended in this very moment
                self.done = self.loop.create_future()
                self._stop()
                await self.done
            self._show_rest()
            raise

    def make_result(self, owner: str | None, sandbox: str, name: str, cwd: Path) -> FinishedProgram:
        match self.message:
            case ("failed", number, stage, _):
                raise start_error(number, stage, name, cwd)
            case ("ended", status, left, nanny, *_):
                pass
            case _ if self.timed_out:
                status, left, nanny = None, ["a process that cannot be killed"], 1
            case _:
                raise ToolError(
                    "the supervisor of the program was killed, and the program with it", ErrorKind.SYSTEM, "Try again."
                )
        self._show_rest()
        if nanny and owner is not None:
            self.program.leave(owner)
        output, errors = self.captured["output"], self.captured["errors"]
        return FinishedProgram(
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
        """Releases everything, in any state."""
        self.loop.remove_reader(self.program.keeper.fileno())
        for name in self.captured:
            self._close(name)
        if self.program.given >= 0:
            self.loop.remove_writer(self.program.given)
        for timer in (*self._timers, *([self._showing] if self._showing else [])):
            timer.cancel()
        self.program.close()

    def _receive(self) -> None:
        message = self.program.receive()
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
        self.captured[name].add(piece)
        if name in self.shown:
            self.shown[name].add(piece)
            if self._showing is None:
                wait = max(0.0, self._show_at - self.loop.time())
                self._showing = self.loop.call_later(wait, self._show)

    def _drain(self, name: str) -> None:
        """Reads what was in the pipe when the program ended; does not wait for other writers."""
        pipe = getattr(self.program, name)
        left = count_waiting_bytes(pipe) if pipe >= 0 else 0
        while left > 0 and (piece := read_piece(pipe, left)):
            left -= len(piece)
            self._take(name, piece)

    def _show_rest(self) -> None:
        for name in self.captured:
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
        """Stops the program, unless it waited for a person meanwhile: that time is not its own."""
        waited = self._waited()
        if waited > self._allowed:
            longer = min(waited - self._allowed, _ASK_AGAIN)
            self._allowed += longer if waited < math.inf else 0.0
            self._timers.append(self.loop.call_later(longer, self._time_out))
            return
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
    """Returns a name such as "SIGKILL"; "" for a number that is not a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}" if 0 < number < signal.NSIG else ""


def start_error(number: int, stage: str, name: str, cwd: Path) -> ToolError:
    words = os.strerror(number) if number else "unknown"
    if stage == "directory":
        return ToolError(f'the directory "{cwd}" cannot be used: {words}', ErrorKind.NOT_FOUND, "Name one that exists.")
    if number == errno.E2BIG:
        return ToolError(
            "its arguments are too long", ErrorKind.VALIDATION, "Put long text into a file, or pass it as stdin."
        )
    if number == errno.EAGAIN:
        return ToolError(
            "too many processes are already running", ErrorKind.SYSTEM, "Wait for some to end.", passing=True
        )
    if stage == "limits":
        return ToolError(f"its limits cannot be set: {words}", ErrorKind.CONFIG, "Fix the tool's configuration.")
    if stage == "cgroup":
        return ToolError(
            f"a cgroup that limits its memory and processes cannot be made any more: {words}",
            ErrorKind.SYSTEM,
            "Tell the person: Forge has to be started again.",
        )
    if stage == "layer":
        return ToolError(
            f"{NOT_BEGUN}: a layer over the files cannot be mounted: {words}",
            ErrorKind.SYSTEM,
            "Run it outside a trial, after asking the person.",
        )
    if stage == "network":
        return ToolError(
            f"its network, which rules limit to some hosts, cannot be made here: {words}",
            ErrorKind.SYSTEM,
            "Nothing was run. Try again; if it happens again, the person can find the cause with `forge doctor`.",
        )
    kind = ErrorKind.NOT_FOUND if number == errno.ENOENT else ErrorKind.USER
    return ToolError(f'"{name[:200]}" cannot be started: {words}', kind, "Check that it is an executable program.")


# Limits the number of programs at once, since file descriptors are limited.


_RESERVED = 192  # descriptors reserved for other uses
_EACH = 4  # descriptors of one run: the keeper's socket and three pipes
_MOST_PROGRAMS = 256  # programs at once


class Slots:
    """Grants turns to any event loop and thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if self._used < count_slots():
                self._used += 1
                return
            loop = asyncio.get_running_loop()
            turn = (loop, loop.create_future())
            self._waiting.append(turn)
        try:
            await turn[1]
        except BaseException:
            with self._lock:
                waits = turn in self._waiting
                if waits:
                    self._waiting.remove(turn)
            if not waits:  # the turn was granted already
                await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._used -= 1
                    return
                loop, turn = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(_wake, turn)
                return
            except RuntimeError:  # that loop is closed
                continue


slots = Slots()


def count_slots() -> int:
    """Returns how many programs may run at once, by the descriptor limit of this process."""

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_PROGRAMS
    return max(4, min(_MOST_PROGRAMS, (soft - _RESERVED) // _EACH))


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
