"""Runs a script in a process of its own that has no files, no network and no other programs.

The interpreter is Monty, a Python interpreter made for this. It can reach nothing but the functions it is given. A
script does the same each time it is run with the same answers: its clock stands still, its random numbers have a seed,
and all calls that it waits for are answered together.

A script that does not use asyncio makes one call after the other. Its functions are then small ones inside the
interpreter, which ask for the result at once: a call needs one message and its answer, not two.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import Pace, in_thread

if TYPE_CHECKING:  # loaded by the first script
    from pydantic_monty import FunctionSnapshot, FutureSnapshot, Monty, MontyComplete, MontySession, SyncSnapshot

    Waits = FunctionSnapshot | FutureSnapshot

SECONDS = 10.0  # of computing, without the calls
MEMORY = 64 * 1024 * 1024  # bytes
MOST_CALLS = 200
LONGEST_SLEEP = 60.0  # seconds of all sleeps together
MOST_PRINTED = 100_000  # characters
QUICK_ROUND_TRIP = 150e-6  # seconds: the loop waits for the interpreter, for a moment, if it answered so fast last time
PROCESSES = 8  # scripts at the same time; others wait
IMPORTS = "from typing import Any, Literal\n"
# exceptions that a script can catch and its type checker does not know
_EXCEPTIONS = "".join(f"class {name}(OSError): ...\n" for name in ("PermissionError", "FileNotFoundError"))
_AT_ONCE = "_call_"  # before the name of a function whose result is asked for at once
_FUNCTION = "async def {name}(*values, **named):\n    return {at_once}{name}(*values, **named)\n"
_FRAME_OF_FUNCTION = re.compile(r'^  File "<python-input-0>", .*\n(?:    .*\n)*', re.MULTILINE)
_SNIPPET = re.compile(r'"<python-input-\d+>"')  # the interpreter's name of a script in a traceback
_TOO_MUCH = re.compile(r"^TimeoutError: .*limit|^MemoryError", re.MULTILINE)


class CallFailed(Exception):
    """An exception that a call raises in the script."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class ScriptCall(NamedTuple):
    """A call that a script makes."""

    number: int
    function: str
    values: tuple[Any, ...]
    named: dict[str, Any]


Answer = Callable[[ScriptCall], Awaitable[Any]]
"""Makes a call for the script. Raises `CallFailed` for an exception in the script; `ToolError` ends the script."""


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """The limits of one script.

    Args:
        seconds: of computing, without the calls.
        memory: in bytes.
        calls: how many it may make.

    Example:
        >>> ScriptLimits(seconds=1).calls
        200
    """

    seconds: float = SECONDS
    memory: int = MEMORY
    calls: int = MOST_CALLS


@dataclass(slots=True)
class Printed:
    """The printed text, up to a limit."""

    pieces: list[str] = field(default_factory=list)
    length: int = 0

    def take(self, _stream: str, text: str) -> None:
        if self.length < MOST_PRINTED:
            self.pieces.append(text[: MOST_PRINTED - self.length])
        self.length += len(text)

    @property
    def text(self) -> str:
        cut = f"\n[cut: {MOST_PRINTED} of {self.length} characters shown]" if self.length > MOST_PRINTED else ""
        return "".join(self.pieces) + cut


class Interpreter:
    """Runs one script."""

    def __init__(
        self,
        answer: Answer,
        functions: Mapping[str, str],
        limits: ScriptLimits,
        started: datetime,
        seed: str,
        alone: Collection[str] = (),
    ) -> None:
        """Prepares a script. `functions`: the signatures of the functions that it calls, by their names.

        `alone`: the functions that never run beside other calls.
        """
        self.printed = Printed()
        self.made = 0
        self._answer, self._functions, self._limits = answer, functions, limits
        self._started, self._seed, self._alone = started, seed, frozenset(alone)
        self._is_sequential = False
        self._open: dict[int, ScriptCall] = {}  # calls that the script made and that are not answered, by their id

    async def run(self, code: str) -> Any:
        """Runs a script and returns the value of its last expression. Raises `ToolError` for whatever is wrong."""
        import pydantic_monty as monty

        try:
            session = await in_thread(self._open_session)
            try:
                return await self._drive(session, code)
            finally:
                await asyncio.shield(in_thread(lambda: session.__exit__(None, None, None)))
        except monty.MontySyntaxError as error:
            raise _script_error(f"it is not valid Python: {error.display('msg')}") from None
        except monty.MontyTypingError as error:
            raise _script_error(
                f"its types are wrong, so nothing was run:\n{error.display()[:4_000].rstrip()}"
            ) from None
        except monty.MontyRuntimeError as error:
            raise self._runtime_error(error.display()[-4_000:]) from None
        except monty.MontyConversionError as error:
            raise _script_error(f"its value cannot be returned: {str(error)[:500]}") from None
        except monty.MontyCrashedError as error:
            raise _script_error(f"it took too much time or memory, and was ended: {str(error)[:500]}") from None

    def _open_session(self) -> MontySession:
        return (
            _pool()
            .checkout(
                script_name="script.py",
                limits={
                    "max_feed_duration_secs": self._limits.seconds,
                    "max_memory": self._limits.memory,
                    "max_suspensions": self._limits.calls * 2 + 1_000,
                    "max_total_sleep_secs": LONGEST_SLEEP,
                },
                type_check=True,
                type_check_stubs="\n".join([f"{IMPORTS}{_EXCEPTIONS}", *self._functions.values()]),
                type_check_format="concise",
                os_policy={"datetime": self._started, "random_start": {"seed": self._seed}},
            )
            .__enter__()
        )

    async def _drive(self, session: MontySession, code: str) -> Any:
        from pydantic_monty import FunctionSnapshot, MontyComplete

        pace = Pace(QUICK_ROUND_TRIP)
        at = await in_thread(lambda: self._start(session, code))
        while not isinstance(at, MontyComplete):
            if isinstance(at, FunctionSnapshot):
                answer = await self._settle(self._note_call(at))
                resume: Callable[[], SyncSnapshot] = partial(at.resume, answer)
            else:
                resume = partial(at.resume, await self._answer_calls(at))
            at = await in_thread(partial(self._advance, resume), pace)
        return at.output

    def _start(self, session: MontySession, code: str) -> Waits | MontyComplete:
        self._is_sequential = "asyncio" not in code  # nothing else lets two calls run beside each other
        if self._is_sequential and self._functions:
            wrappers = [_FUNCTION.format(name=name, at_once=_AT_ONCE) for name in self._functions]
            session.feed_start("".join(wrappers), skip_type_check=True)
        return self._advance(lambda: session.feed_start(code, print_callback=self.printed.take))

    def _advance(self, resume: Callable[[], SyncSnapshot]) -> Waits | MontyComplete:
        """Runs the script, in a thread, until it waits for calls or is over. Notes the calls that it makes."""
        from pydantic_monty import FunctionSnapshot, NameLookupSnapshot

        at = resume()
        while True:
            if isinstance(at, FunctionSnapshot):
                if at.is_os_function:
                    at = at.resume_not_handled()
                elif at.function_name.startswith(_AT_ONCE):
                    return at
                else:
                    self._open[at.call_id] = self._note_call(at)
                    at = at.resume({"future": ...})
            elif isinstance(at, NameLookupSnapshot):  # a name that is nobody's
                at = at.resume()
            else:
                return at

    def _note_call(self, at: FunctionSnapshot) -> ScriptCall:
        self.made += 1
        return ScriptCall(self.made, at.function_name.removeprefix(_AT_ONCE), at.args, at.kwargs)

    async def _answer_calls(self, at: FutureSnapshot) -> dict[int, Any]:
        """Makes all calls that the script waits for, in order; beside each other where the tools allow it."""
        answers: dict[int, Any] = {}
        calls = [(one, self._open.pop(one)) for one in sorted(at.pending_call_ids)]
        for is_alone, group in groupby(calls, lambda one: one[1].function in self._alone):
            together = list(group)
            for batch in [[one] for one in together] if is_alone else [together]:
                answers |= zip((key for key, _ in batch), await self._settle_together(batch), strict=True)
        return answers

    async def _settle_together(self, calls: list[tuple[int, ScriptCall]]) -> list[Any]:
        if len(calls) == 1:
            return [await self._settle(calls[0][1])]
        tasks = [asyncio.ensure_future(self._settle(call)) for _, call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _settle(self, call: ScriptCall) -> Any:
        if call.number > self._limits.calls:
            words = f"a script may make {self._limits.calls} calls; go on in another one"
            return {"exc_type": "RuntimeError", "message": words}
        try:
            return {"return_value": await self._answer(call)}
        except CallFailed as error:
            return {"exc_type": error.name, "message": str(error)}

    def _runtime_error(self, trace: str) -> ToolError:
        trace = _FRAME_OF_FUNCTION.sub("", trace) if self._is_sequential else trace
        trace = _SNIPPET.sub('"script.py"', trace)
        if _TOO_MUCH.search(trace):
            bounds = f"{self._limits.seconds:g} s of computing and {self._limits.memory // 1024 // 1024} MB"
            hint = f"A script has {bounds}: do less in one script."
            return ToolError(f"the script was ended by its limits:\n{trace}", ErrorKind.USER, hint)
        hint = "Correct the script and call run_code again."
        if self.made:
            hint = "Calls before the error were made: correct the script so that it does not repeat them."
        return ToolError(f"the script failed:\n{trace}", ErrorKind.USER, hint)


def _script_error(words: str) -> ToolError:
    return ToolError(f"the script cannot be run: {words}", ErrorKind.VALIDATION, "Correct it and call run_code again.")


_lock = threading.Lock()
_pools: dict[int, Monty] = {}  # by process: a forked one starts its own


def _pool() -> Monty:
    """Returns this process's pool of interpreters, which start with the first script and end with the program."""
    with _lock:
        pool = _pools.get(os.getpid())
        if pool is None:
            from pydantic_monty import Monty

            pool = _pools[os.getpid()] = Monty(max_processes=PROCESSES).__enter__()
            atexit.register(_close, os.getpid())
        return pool


def _close(process: int) -> None:
    if process == os.getpid() and process in _pools:
        _pools.pop(process).__exit__(None, None, None)
