"""Runs a script in a process of its own that has no files, no network and no other programs.

The interpreter is Monty, a Python interpreter made for this. It can reach nothing but the functions it is given. A
script does the same each time it is run with the same answers: its clock stands still, its random numbers have a seed,
and all calls that it waits for are answered together.

The functions of a script are small ones inside the interpreter. They write their arguments as JSON there, and so does
the script's value: an object that occurs in many places is written out under the limits of the interpreter, never by
this process. Only a text of limited length is accepted from them, and nothing else that a script sends is looked at:
already the hash of a nested tuple can take years.

A script that does not use asyncio makes one call after the other. Its functions then ask for the result at once: a call
needs one message and its answer, not two.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import json
import os
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import DEEPEST_DATA

if TYPE_CHECKING:  # loaded by the first script
    from pydantic_monty import FunctionSnapshot, FutureSnapshot, Monty, MontyComplete, MontySession, SyncSnapshot

    Waits = FunctionSnapshot | FutureSnapshot

COMPUTING_SECONDS = 10.0  # of computing, without the calls
MEMORY = 64 * 1024 * 1024  # bytes
MOST_CALLS = 200
LONGEST_SLEEP = 60.0  # seconds of all sleeps together
MOST_PRINTED = 100_000  # characters
MOST_WRITTEN = 5_000_000  # bytes of JSON: of a script's value, and of all arguments that wait for their calls together
MOST_VALUES = 200_000  # in one such text
PROCESSES = 8  # scripts at the same time; others wait
IMPORTS = "from typing import Any, Literal\n"
# exceptions that a script can catch and its type checker does not know
_EXCEPTIONS = "".join(f"class {name}(OSError): ...\n" for name in ("PermissionError", "FileNotFoundError"))
_CALL = "_call_"  # before the name of a function that this process answers
_VALUE = "_forge_value"  # of the last expression
_BEFORE_VALUE, _AFTER_VALUE = f"({_VALUE} := (", "))"
_GIVE, _RESULT = "_forge_give", "_forge_result"
_OWN = "<python-input-0>"  # the interpreter's name of the code below; a script cannot run code of this name
_FRAME_OF_FUNCTION = re.compile(rf'^  File "{_OWN}", .*\n(?:    .*\n)*', re.MULTILINE)
_TEXT_IN_JSON = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PLACE = re.compile(r"^script\.py:(\d+):(\d+):", re.MULTILINE)
_SNIPPET = re.compile(r'"<python-input-\d+>"')  # the interpreter's name of a script in a traceback
_TOO_SLOW = re.compile(r"^TimeoutError: .*limit", re.MULTILINE)
_TOO_MUCH = re.compile(r"^TimeoutError: .*limit|^MemoryError", re.MULTILINE)

# Runs inside the interpreter, before the script. The builtins are variables of the outer function: a script can give
# their names another meaning for its own code only.
_START = """
def _forge_start(most, most_levels, attributes):
    import base64, datetime, json
    dumps, in_base64, dates = json.dumps, base64.b64encode, (datetime.date, datetime.time)
    is_a, size, has, get, in_hex, text, items = isinstance, len, hasattr, getattr, hex, str, list
    boolean, whole, real, raw, mapping, many = bool, int, float, bytes, dict, (list, tuple, set, frozenset)
    kind, wrong, unreadable = type, (TypeError, ValueError, RecursionError), Exception
    refused, too_long = ValueError, OverflowError

    def spend(amount, left):
        left[0] -= amount
        if left[0] < 0:
            raise too_long()

    def spell(value, left):
        try:
            spelt = text(value)
        except unreadable as error:
            spelt = kind(value).__name__ + " that cannot be shown: " + kind(error).__name__
        spend(size(spelt), left)
        return spelt

    def describe(value, above, left):
        spend(2, left)
        if value is None or is_a(value, boolean) or is_a(value, real):
            return value
        if is_a(value, text):
            spend(size(value), left)
            return value
        if is_a(value, whole):
            try:
                text(value)
                return value
            except wrong:
                return spell(in_hex(value), left)
        if is_a(value, raw):
            spend(size(value), left)
            return in_base64(value).decode()
        if is_a(value, dates):
            return value.isoformat()
        for one in above:
            if one is value:
                return "[the " + kind(value).__name__ + " above]"
        if size(above) > most_levels:
            return "[nested too deeply to be shown]"
        within = above + [value]
        if is_a(value, mapping):
            return {spell(key, left): describe(one, within, left) for key, one in value.items()}
        if is_a(value, many) or kind(value).__name__ == "deque":
            return [describe(one, within, left) for one in items(value)]
        spelt = spell(value, left)
        if " object at 0x" not in spelt:
            return spelt
        known = {name: describe(get(value, name), within, left) for name in attributes if has(value, name)}
        return known or "[" + kind(value).__name__ + " object]"

    def write(value):
        try:
            written = dumps(value, ensure_ascii=False)
        except wrong:
            written = dumps(describe(value, [], [most]), ensure_ascii=False)
        if size(written) > most or (not written.isascii() and size(written.encode()) > most):
            raise too_long()
        return written

    def refuse(name):
        raise refused("what " + name + " is given has more than " + text(most) + " bytes when written out")

"""
_CALL_AT_ONCE = """
    async def {name}(*values, **named):
        try:
            written = write([values, named])
        except too_long:
            refuse("{name}")
        return {call}{name}(written)
"""
_CALL_IN_TASK = _CALL_AT_ONCE.replace("async def", "def")  # returns what the script awaits
_END = """
    def {give}(value):
        {result}(write(value))

    return {names}

{names} = _forge_start({most}, {levels}, {attributes})
"""


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
    size: int = 0  # characters of its arguments
    refusal: str = ""  # why it is not made


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

    seconds: float = COMPUTING_SECONDS
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
        self._is_writing = False  # the script's value
        self._script: _FedScript | None = None
        self._open: dict[int, ScriptCall] = {}  # calls that the script made and that are not answered, by their id

    async def run(self, code: str) -> Any:
        """Runs a script and returns the value of its last expression. Raises `ToolError` for whatever is wrong."""
        import pydantic_monty as monty

        self._script = script = _FedScript.read(code)
        try:
            session = await in_thread(self._open_session)
            try:
                return await self._drive(session, script)
            finally:
                await asyncio.shield(in_thread(lambda: session.__exit__(None, None, None)))
        except monty.MontySyntaxError as error:
            raise _script_error(f"it is not valid Python: {error.display('msg')}") from None
        except monty.MontyTypingError as error:
            raise _script_error(
                f"its types are wrong, so nothing was run:\n{script.restore_places(error.display()[:4_000]).rstrip()}"
            ) from None
        except monty.MontyRuntimeError as error:
            raise self._runtime_error(error.display()[-4_000:]) from None
        except monty.MontyConversionError as error:
            raise _script_error(f"its value cannot be returned: {str(error)[:500]}") from None
        except monty.MontyCrashedError as error:
            raise self._limit_error(str(error)[:500]) from None

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

    async def _drive(self, session: MontySession, script: _FedScript) -> Any:
        from pydantic_monty import FunctionSnapshot, MontyComplete

        at = await in_thread(lambda: self._start(session, script))
        while not isinstance(at, MontyComplete):
            if isinstance(at, FunctionSnapshot):
                answer = await self._settle(self._note_call(at))
                resume: Callable[[], SyncSnapshot] = partial(at.resume, answer)
            else:
                resume = partial(at.resume, await self._answer_calls(at))
            at = await in_thread(partial(self._advance, resume))
        return await in_thread(lambda: self._take_value(session)) if script.has_value else None

    def _start(self, session: MontySession, script: _FedScript) -> Waits | MontyComplete:
        self._is_sequential = "asyncio" not in script.code  # nothing else lets two calls run beside each other
        session.feed_start(_write_start(self._functions, script.attributes, self._is_sequential), skip_type_check=True)
        if script.unreadable:
            _check_syntax(session, script)
        return self._advance(lambda: session.feed_start(script.fed, print_callback=self.printed.take))

    def _advance(self, resume: Callable[[], SyncSnapshot]) -> Waits | MontyComplete:
        """Runs the script, in a thread, until it waits for calls or is over. Notes the calls that it makes."""
        from pydantic_monty import FunctionSnapshot, NameLookupSnapshot

        at = resume()
        while True:
            if isinstance(at, FunctionSnapshot):
                if at.is_os_function:
                    at = at.resume_not_handled()
                elif not _is_ours(at, _CALL):
                    at = at.resume(_undefined(at.function_name))
                elif self._is_sequential:
                    return at
                else:
                    at = self._open_call(at)
            elif isinstance(at, NameLookupSnapshot):  # a name that is nobody's
                at = at.resume()
            else:
                return at

    def _open_call(self, at: FunctionSnapshot) -> SyncSnapshot:
        """Keeps a call until the script waits for it."""
        call = self._note_call(at)
        if call.size + sum(one.size for one in self._open.values()) > MOST_WRITTEN:
            message = (
                f"what the calls that wait together are given has more than {MOST_WRITTEN:,} bytes: make fewer at once"
            )
            return at.resume({"exc_type": "ValueError", "message": message})
        self._open[at.call_id] = call
        return at.resume({"future": ...})

    def _note_call(self, at: FunctionSnapshot) -> ScriptCall:
        self.made += 1
        name = at.function_name.removeprefix(_CALL)
        (text,) = at.args
        try:
            values, named = _read_json(text)
        except ValueError as error:
            return ScriptCall(self.made, name, (), {}, len(text), f"what {name} is given {error}")
        return ScriptCall(self.made, name, tuple(values), named, len(text))

    def _take_value(self, session: MontySession) -> Any:
        """Has the interpreter write the value of the script, and reads it."""
        from pydantic_monty import FunctionSnapshot, MontyComplete

        self._is_writing = True
        at = session.feed_start(f"{_GIVE}({_VALUE})", skip_type_check=True, print_callback=self.printed.take)
        while not isinstance(at, MontyComplete):
            if isinstance(at, FunctionSnapshot) and _is_ours(at, _RESULT):
                try:
                    return _read_json(at.args[0])
                except ValueError as error:
                    raise self._value_error(f"it {error}") from None
            if not isinstance(at, FunctionSnapshot):
                break
            at = at.resume(_undefined(at.function_name))
        raise self._value_error(f"the script gave {_GIVE} or {_RESULT} another meaning")

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
            message = f"a script may make {self._limits.calls} calls; go on in another one"
            return {"exc_type": "RuntimeError", "message": message}
        if call.refusal:
            return {"exc_type": "ValueError", "message": call.refusal}
        try:
            return {"return_value": await self._answer(call)}
        except CallFailed as error:
            return {"exc_type": error.name, "message": str(error)}

    def _runtime_error(self, trace: str) -> ToolError:
        if self._is_writing and not _TOO_SLOW.search(trace):
            return self._value_error(f"it has more than {MOST_WRITTEN:,} bytes when it is written out")
        trace = _FRAME_OF_FUNCTION.sub("", trace)
        trace = _SNIPPET.sub('"script.py"', trace)
        if self._script is not None:
            trace = self._script.restore_lines(trace)
        if _TOO_MUCH.search(trace):
            return self._limit_error(trace)
        hint = "Correct the script and call run_code again."
        if self.made:
            hint = "Calls before the error were made: correct the script so that it does not repeat them."
        return ToolError(f"the script failed:\n{trace}", ErrorKind.USER, hint)

    def _limit_error(self, message: str) -> ToolError:
        bounds = f"{self._limits.seconds:g} s of computing and {self._limits.memory // 1024 // 1024} MB"
        hint = f"A script has {bounds}: do less in one script."
        if self.made:
            hint += " Calls before the end were made: do not repeat them."
        return ToolError(f"the script was ended by its limits:\n{message}", ErrorKind.USER, hint)

    def _value_error(self, message: str) -> ToolError:
        hint = "End the script with a smaller value: a part, a count or a summary."
        if self.made:
            hint += " Its calls were made: do not repeat them."
        return ToolError(f"the value of the script cannot be returned: {message}", ErrorKind.USER, hint)


@dataclass(frozen=True, slots=True)
class _FedScript:
    """A script as it is given to the interpreter: with a name for the value of its last expression."""

    code: str
    fed: str
    has_value: bool = False
    attributes: tuple[str, ...] = ()  # that the script sets on objects
    start: tuple[int, int] = (0, 0)  # line and column of what stands before the value
    end: tuple[int, int] = (0, 0)
    unreadable: str = ""  # why this Python cannot read the script

    @classmethod
    def read(cls, code: str) -> _FedScript:
        code = code.replace("\r\n", "\n").replace("\r", "\n")
        try:
            tree = ast.parse(code)
            attributes = tuple(dict.fromkeys(_find_attributes(tree)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return cls(code, code, unreadable=str(error) or type(error).__name__)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr) or last.end_lineno is None or last.end_col_offset is None:
            return cls(code, code, attributes=attributes)
        lines = code.split("\n")
        start, end = (last.lineno, last.col_offset), (last.end_lineno, last.end_col_offset)
        for (line, column), added in ((end, _AFTER_VALUE), (start, _BEFORE_VALUE)):
            raw = lines[line - 1].encode()
            lines[line - 1] = (raw[:column] + added.encode() + raw[column:]).decode()
        return cls(code, "\n".join(lines), True, attributes, start, end)

    def restore_lines(self, trace: str) -> str:
        """Shows the lines of the script in a traceback as the script has them."""
        if not self.has_value:
            return trace
        written, fed = self.code.split("\n"), self.fed.split("\n")
        shown: list[str] = []
        for line in trace.split("\n"):
            before = shown[-1] if shown else ""
            for number in {self.start[0], self.end[0]}:
                if line == f"    {fed[number - 1].strip()}" and f"line {number}," in before:
                    line = f"    {written[number - 1].strip()}"
                elif (
                    before == f"    {written[number - 1].strip()}" and number == self.start[0] and not line.strip(" ~^")
                ):
                    indent = len(written[number - 1]) - len(written[number - 1].lstrip())
                    column = 4 + self._start_column() - indent
                    line = line[:column] + line[column + len(_BEFORE_VALUE) :]
            shown.append(line)
        return "\n".join(shown)

    def restore_places(self, message: str) -> str:
        """Corrects the columns in messages of the type checker."""

        def correct(found: re.Match[str]) -> str:
            line, column = int(found[1]), int(found[2])
            if self.has_value and line == self.start[0] and column > self._start_column():
                column = max(column - len(_BEFORE_VALUE), self._start_column() + 1)
            return f"script.py:{line}:{column}:"

        return _PLACE.sub(correct, message)

    def _start_column(self) -> int:
        """Returns the column of the value in characters."""
        return len(self.code.split("\n")[self.start[0] - 1].encode()[: self.start[1]].decode())


def _find_attributes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.ClassDef):
            yield from (
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            )


def _write_start(functions: Collection[str], attributes: Collection[str], is_sequential: bool) -> str:
    """Writes the code that runs before the script: its functions, and what writes its value."""
    call = _CALL_AT_ONCE if is_sequential else _CALL_IN_TASK
    names = ", ".join([*functions, _GIVE])
    return "".join(
        [
            _START,
            *(call.format(name=name, call=_CALL) for name in functions),
            _END.format(
                give=_GIVE,
                result=_RESULT,
                names=f"({names},)",
                most=MOST_WRITTEN,
                levels=DEEPEST_DATA,
                attributes=list(attributes),
            ),
        ]
    )


def _check_syntax(session: MontySession, script: _FedScript) -> None:
    """Raises what the interpreter says about a script that this Python cannot read. Runs none of it."""
    from pydantic_monty import MontyRuntimeError

    with suppress(MontyRuntimeError):
        session.feed_start(f"raise SystemExit\n{script.code}", skip_type_check=True)
    raise _script_error(f"this Python cannot read it: {script.unreadable[:500]}")


def _is_ours(at: FunctionSnapshot, prefix: str) -> bool:
    """Returns whether a call comes from the code above: its argument is then one text. Others' are not looked at."""
    return at.function_name.startswith(prefix) and at.position.filename == _OWN


def _undefined(name: str) -> Any:
    return {"exc_type": "NameError", "message": f"name {name[:200]!r} is not defined"}


def _read_json(text: str) -> Any:
    """Reads JSON that the interpreter wrote. Raises `ValueError` with the rest of a sentence."""
    if len(text) > MOST_WRITTEN:
        raise ValueError(f"has more than {MOST_WRITTEN:,} bytes when it is written out")
    if _count_separators(text) > MOST_VALUES and _count_separators(_TEXT_IN_JSON.sub("", text)) > MOST_VALUES:
        raise ValueError(f"has more than {MOST_VALUES:,} values when it is written out")
    try:
        return json.loads(text, parse_constant=lambda name: name)  # as `plain` writes such numbers
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _count_separators(text: str) -> int:
    return sum(map(text.count, ",[{"))


def _script_error(message: str) -> ToolError:
    return ToolError(
        f"the script cannot be run: {message}", ErrorKind.VALIDATION, "Correct it and call run_code again."
    )


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
