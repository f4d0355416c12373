"""Finds tool calls with their arguments and results, and asserts on them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, SupportsIndex, overload

from forge.core.arguments.names import near
from forge.core.events import Event, ToolFinished
from forge.core.messages import Message, ToolCall, render_call
from forge.core.plain_values import brief
from forge.core.result import ToolResult

SHOWN = 20  # calls, in the message of an assertion
RAW = "_raw"  # the one argument of a call whose arguments are no object


class Called(NamedTuple):
    """One call. `arguments` are those that were sent, before any repair.

    `result` exists for calls that were seen as they ran: on a bench, by a server or as events. A history holds only
    the text.
    """

    name: str
    arguments: Mapping[str, Any]
    text: str | None = None  # what the model read as the answer; None: none came
    result: ToolResult | None = None
    id: str = ""

    def __str__(self) -> str:
        return render_call(ToolCall(self.name, self.arguments, self.id or "-"))

    @classmethod
    def of(cls, call: ToolCall, text: str | None = None, result: ToolResult | None = None) -> Called:
        return cls(str(call.name), _arguments(call), result.for_llm if result is not None else text, result, call.id)


class Calls(Sequence[Called]):
    """Calls in their order. The sequence grows while its source works."""

    def __init__(self, found: Iterable[Called] = ()) -> None:
        self._found = list(found)

    def note(self, called: Called) -> None:
        self._found.append(called)

    def to(self, name: str, /, **arguments: Any) -> Calls:
        """Returns the calls of a tool (`git__*` matches several) with these arguments, among others."""
        return Calls(one for one in self._found if fnmatchcase(one.name, name) and not _differences(one, arguments))

    @property
    def names(self) -> list[str]:
        return [one.name for one in self._found]

    @property
    def last(self) -> Called:
        return self._found[-1]

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Called: ...
    @overload
    def __getitem__(self, index: slice) -> Calls: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Called | Calls:
        return Calls(self._found[index]) if isinstance(index, slice) else self._found[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calls | list | tuple) and self._found == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Calls: {', '.join(map(str, self._found[:SHOWN])) or 'none'}>"


def calls_of(where: Any) -> Calls:
    """Returns the calls of a run's result, a history, a list of events, a bench or a server."""
    if isinstance(where, Calls):
        return where
    if isinstance(found := getattr(where, "calls", None), Calls):
        return found
    items = getattr(where, "messages", where)
    if isinstance(items, Iterable) and not isinstance(items, str | bytes | Mapping):
        items = list(items)
        if any(isinstance(item, Event) for item in items):
            return Calls(Called.of(one.call, result=one.result) for one in items if isinstance(one, ToolFinished))
        if all(isinstance(item, Message) for item in items):
            return _of_history(items)
    raise TypeError(
        f"calls_of({brief(where)}): pass a RunResult, messages, events, a bench or a server; "
        "collect the events of `agent.stream(…)` in a list first"
    )


def assert_called(where: Any, name: str, /, **arguments: Any) -> Calls:
    """Asserts that a tool was called with these arguments, among others. Returns the calls, so that they can be
    counted.

    A value is compared; or it is a function that says whether it is right, a compiled regular expression that has to
    be found in it, or `...` for whatever it is. `git__*` means any tool whose name begins like that.
    """
    __tracebackhide__ = True
    found = calls_of(where)
    if matching := found.to(name, **arguments):
        return matching
    raise AssertionError(_explain_missing(found, name, arguments))


def assert_not_called(where: Any, name: str, /, **arguments: Any) -> None:
    """Asserts that no call of a tool had these arguments; without arguments, that it was not called at all."""
    __tracebackhide__ = True
    found = calls_of(where)
    if matching := found.to(name, **arguments):
        times = "once" if len(matching) == 1 else f"{len(matching)} times"
        raise AssertionError(f"{_describe_call(name, arguments)} was called {times}:\n{_list_calls(matching)}")


def assert_called_in_order(where: Any, *expected: str | ToolCall) -> Calls:
    """Asserts that these calls were made one after another, with any calls between them. Returns them.

    Each is a name, or `calls(name, **arguments)` with values as in `assert_called`.
    """
    __tracebackhide__ = True
    found = calls_of(where)
    matched: list[Called] = []
    rest = iter(found)
    for one in expected:
        name, arguments = (one, {}) if isinstance(one, str) else (one.name, _arguments(one))
        for candidate in rest:
            if fnmatchcase(candidate.name, name) and not _differences(candidate, arguments):
                matched.append(candidate)
                break
        else:
            raise AssertionError(_out_of_order(found, name, arguments, matched))
    return Calls(matched)


def _of_history(messages: Sequence[Message]) -> Calls:
    answers = {message.call_id: message.text for message in messages if message.role == "tool"}
    return Calls(Called.of(call, answers.get(call.id)) for message in messages for call in message.tool_calls)


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    sent = call.arguments
    if isinstance(sent, Mapping):
        return sent
    try:
        read = json.loads(sent) if sent else {}
    except (ValueError, RecursionError):
        return {RAW: sent}
    return read if isinstance(read, dict) else {RAW: sent}


def _differences(called: Called, wanted: Mapping[str, Any]) -> list[str]:
    return [line for key, value in wanted.items() if (line := _difference(called.arguments, key, value))]


def _difference(sent: Mapping[str, Any], key: str, wanted: Any) -> str:
    if key not in sent:
        hint = near(key, sent, 1)
        return f'{key}: not given; did you mean "{hint[0]}"?' if hint else f"{key}: not given"
    return "" if _is_right(sent[key], wanted) else f"{key}: {_describe_expected(wanted)}, got {brief(sent[key])}"


def _is_right(value: Any, wanted: Any) -> bool:
    if wanted is ...:
        return True
    if isinstance(wanted, re.Pattern):
        return isinstance(value, str) and wanted.search(value) is not None
    if callable(wanted):
        return bool(wanted(value))
    is_same_kind = isinstance(value, bool) == isinstance(wanted, bool)  # 1 is not true here, as it is not in JSON
    return is_same_kind and bool(value == wanted)


def _describe_expected(wanted: Any) -> str:
    if isinstance(wanted, re.Pattern):
        return f"expected a match for /{wanted.pattern}/"
    if callable(wanted):
        return f"{getattr(wanted, '__name__', type(wanted).__name__)}(value) is not true"
    return f"expected {brief(wanted)}"


def _describe_call(name: str, arguments: Mapping[str, Any]) -> str:
    inside = ", ".join(f"{key}={'…' if value is ... else _shorten(value)}" for key, value in arguments.items())
    return f"{name}({inside})" if arguments else name


def _shorten(value: Any) -> str:
    if isinstance(value, re.Pattern):
        return f"/{value.pattern}/"
    return getattr(value, "__name__", "…") if callable(value) else brief(value)


def _explain_missing(found: Calls, name: str, arguments: Mapping[str, Any]) -> str:
    said = f"{_describe_call(name, arguments)} was not called"
    if not found:
        return f"{said}: there were no calls"
    if close := found.to(name):
        times = "once" if len(close) == 1 else f"{len(close)} times"
        return f"{said}; {name} was called {times} with other arguments:\n{_list_calls(close, arguments)}"
    hint = near(name, found.names, 1)
    meant = f'; did you mean "{hint[0]}"?' if hint else ""
    return f"{said}{meant}\nCalls:\n{_list_calls(found)}"


def _out_of_order(found: Calls, name: str, arguments: Mapping[str, Any], matched: list[Called]) -> str:
    if not matched:
        return _explain_missing(found, name, arguments)
    said = f"{_describe_call(name, arguments)} was not called after {matched[-1]}"
    before = " (but before it)" if found.to(name, **arguments) else ""
    close = found.to(name)
    why = f"\nCalls of {name}:\n{_list_calls(close, arguments)}" if arguments and close and not before else ""
    return f"{said}{before}.{why}\nThe calls, in their order:\n{_list_calls(found)}"


def _list_calls(found: Calls, arguments: Mapping[str, Any] | None = None) -> str:
    lines = []
    for number, one in enumerate(found[:SHOWN], 1):
        wrong = "; ".join(_differences(one, arguments)) if arguments else ""
        lines.append(f"  {number}. {one}" + (f"\n     {wrong}" if wrong else ""))
    return "\n".join([*lines, *([f"  … and {len(found) - SHOWN} more"] if len(found) > SHOWN else [])])
