"""Provides a model that follows a script, from Python or a file: for tests, demonstrations and first steps."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, Retrying, TextDelta, ToolArgumentsDelta
from forge.core.messages import Message, ToolCall, Usage
from forge.core.plain_values import brief
from forge.core.provider import ModelRequest, ProviderError, StreamPart
from forge.core.yaml import Bounds, Unreadable, bounded_text, bounded_yaml, safe_loader

MOST_REQUESTS = 100  # requests, and at least so many calls' ids, that are remembered
PIECES = 16  # a text is streamed in at most so many
_SHORTEST_PIECE = 8

_Shown = ReasoningDelta | ToolArgumentsDelta | Retrying  # streamed as they are
ReplyPart = str | ToolCall | BaseException | _Shown
Reply = ReplyPart | Message | Sequence[ReplyPart]
Turn = Reply | Callable[[ModelRequest], Reply | Awaitable[Reply]]
"""A text, a call, an exception to raise, several of these in order, a whole message, or a function of the request."""


def scripted_file(path: str | Path) -> Scripted:
    """Makes a model from a YAML or JSON file: a list of turns."""

    script = read_script(Path(path).expanduser())
    return Scripted(*script.turns, title=script.title)


class Scripted:
    """A model that follows a script: one turn for each request. For tests, demonstrations and trying rules.

    It raises an error if it gets more requests or, in `check`, fewer; `async with` checks at the end. `asked` counts
    the requests; `requests` are the latest hundred, each with the history as it was then, and `last` is the latest.

    Args:
        turns: each a text, a `ToolCall`, a list of both, an exception to raise, or a function of the request. A list
            may also have a `ReasoningDelta` and other parts of a stream.
        title: the title that the model gives a session; empty: it gives none.

    Example:
        >>> model = Scripted("Hello!", lambda request: f"You said {request.messages[-1].text}.")
        >>> agent = Agent(model)
        >>> agent.run_sync("Hi").text, agent.run_sync("Bye").text
        ('Hello!', 'You said Bye.')
    """

    def __init__(self, *turns: Turn, title: str = "") -> None:
        self.turns = len(turns)
        self.title = title
        self.asked = 0
        self._turns = turns
        self._left = deque(turns)
        self._requests: deque[ModelRequest] = deque(maxlen=MOST_REQUESTS)
        self._weight = _Weight()
        self._ids: dict[str, None] = {}  # of the latest calls, oldest first

    def __repr__(self) -> str:
        return f"<Scripted, {len(self._left)} of {self.turns} turns left>"

    @property
    def requests(self) -> list[ModelRequest]:
        return list(self._requests)

    @property
    def last(self) -> ModelRequest:
        return self._requests[-1]

    @property
    def left(self) -> int:
        """The number of turns not yet requested."""
        return len(self._left)

    def again(self, after: int = 0) -> Scripted:
        """Return the script from its start, with `after` turns already said, for example in another process."""
        return Scripted(*self._turns[after:], title=self.title)

    def check(self) -> None:
        """Raise `ProviderError` if turns are left over."""
        if self._left:
            raise ProviderError(
                f"{len(self._left)} of the script's {self.turns} turns were not used; the next is"
                f" {_render_turn(self._left[0])}",
                ErrorKind.CONFIG,
                "Remove the extra turns, or find out why the model got fewer requests.",
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.check()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams the text of the next turn in pieces, then the message. Raises the script's errors."""
        self.asked += 1
        history = request.messages
        self._requests.append(
            ModelRequest(
                messages=_Prefix(history),
                tools=request.tools,
                options=request.options,
                definitions_for=request.definitions_for,
                search=request.search,
                found=tuple(request.found),
                server_tools=request.server_tools,
                session=request.session,
            )
        )
        paid = self._weight.of(history)
        said = await self._next(request)
        parts = _parts(said)
        for part in parts:
            if isinstance(part, str):
                for piece in _pieces(part):
                    yield TextDelta(piece)
            elif isinstance(part, _Shown):
                yield replace(part)
            elif not isinstance(part, ToolCall):
                raise part
        yield self._message(said, parts, paid)

    async def _next(self, request: ModelRequest) -> Any:
        if not self._left:
            raise ProviderError(
                f"the script has no turn left: it has {self.turns}, but the model got {self.asked} requests",
                ErrorKind.CONFIG,
                "Add the missing turn, or a call of task_completion to end the run.",
            )
        turn = self._left.popleft()
        if not callable(turn) or isinstance(turn, type):
            return turn
        said: Any = turn(request)
        return await said if hasattr(said, "__await__") else said

    def _message(self, said: Any, parts: Sequence[ReplyPart], paid: int) -> Message:
        text = "".join([part for part in parts if isinstance(part, str)])
        if not isinstance(said, Message):
            calls = self._make_unique([part for part in parts if isinstance(part, ToolCall)])
            usage = Usage(paid, _weight(text, calls))
            return Message("assistant", text, calls, finish="calls" if calls else "stop", usage=usage)
        calls = self._make_unique(said.tool_calls)
        usage = said.usage if said.usage.total else Usage(paid, _weight(text, calls))
        return replace(said, tool_calls=calls, finish=said.finish or ("calls" if calls else "stop"), usage=usage)

    def _make_unique(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """Returns the calls with new ids for repeated ones: a script may say the same call twice."""
        ids, found = self._ids, []
        for call in calls:
            if call.id in ids:
                call = ToolCall(call.name, call.arguments, server=call.server)
            ids[call.id] = None
            found.append(call)
        while len(ids) > MOST_REQUESTS + len(calls):
            del ids[next(iter(ids))]
        return tuple(found)


class _Prefix(Sequence[Message]):
    """A view of a history at its earlier length, without a copy: histories are only appended to."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [self._messages[at] for at in range(*index.indices(self._length))]
        return self._messages[range(self._length)[index]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class _Weight:
    """Estimates the tokens of a history that grows, counting each message once."""

    def __init__(self) -> None:
        self._first: Message | None = None
        self._latest: Message | None = None
        self._count = 0
        self._tokens = 0

    def of(self, messages: Sequence[Message]) -> int:
        count = self._count
        goes_on = 0 < count <= len(messages) and messages[0] is self._first and messages[count - 1] is self._latest
        if not goes_on:
            self._count = self._tokens = 0
        for at in range(self._count, len(messages)):
            self._tokens += _weight(messages[at].text, messages[at].tool_calls)
        if messages:
            self._first, self._latest, self._count = messages[0], messages[-1], len(messages)
        return self._tokens


def _weight(text: str, calls: Sequence[ToolCall]) -> int:
    """Estimates about four characters per token, and a few tokens for the message itself."""
    characters = len(text)
    for call in calls:
        characters += len(call.name) + len(str(call.arguments))
    return 4 + characters // 4


def _parts(said: Any) -> Sequence[ReplyPart]:
    if isinstance(said, Message) and said.role == "assistant":
        return [said.text]
    parts = said if isinstance(said, list | tuple) else [said]
    if parts and all(map(_is_part, parts)):
        return parts
    raise ProviderError(
        f"the script has an invalid turn: {_render_turn(said)}",
        ErrorKind.CONFIG,
        "A turn is a text, a ToolCall, an exception, a list of these, an assistant's Message, or a function of the "
        "request that returns one of these.",
    )


def _is_part(value: Any) -> bool:
    is_exception = isinstance(value, type) and issubclass(value, BaseException)
    return isinstance(value, str | ToolCall | BaseException | _Shown) or is_exception


def _pieces(text: str) -> list[str]:
    size = max(_SHORTEST_PIECE, -(-len(text) // PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _render_turn(turn: Any) -> str:
    if isinstance(turn, ToolCall):
        return f"a call of {turn.name}"
    if isinstance(turn, Message):
        return f"a message of role {turn.role}"
    return brief(turn)


# --- Reads a script for the scripted model: YAML or JSON, a list of turns.
#
# - Just a text.
# - {reasoning: The file may say., text: Let me look., call: file_read, arguments: {path: a.txt}}
# - calls: [{call: file_read, arguments: {path: a.txt}, id: first}, datetime_now]
# - error: {message: overloaded, kind: system_error, suggestion: Wait., passing: true, status: 529}
# - title: The title of the session; this is not a turn.
#
# `arguments` may be a text, which is sent unchanged; use it to send broken JSON.


LARGEST_SCRIPT = 1024 * 1024  # bytes
BOUNDS = Bounds(levels=50, aliases=0, values=100_000)

ScriptPart = str | ToolCall | BaseException | ReasoningDelta

_TURN = ("reasoning", "text", "call", "arguments", "id", "calls", "error")
_CALL = ("call", "arguments", "id")
_ERROR = ("message", "kind", "suggestion", "passing", "status")
_BOOLEAN = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_FORMS = "A turn is a text, {call: NAME, arguments: {…}}, {text: …, calls: […]} or {error: …}."


class _Wrong(Exception):
    """The location of a problem in the file, the problem, and what to write instead."""

    def __init__(self, location: str, problem: str, advice: str) -> None:
        self.location = location
        self.problem = problem
        self.advice = advice


class _LocatedTurn(NamedTuple):
    location: str
    value: Any


class ModelScript(NamedTuple):
    """The turns of a script, and the title that its model gives a session."""

    turns: list[list[ScriptPart]]
    title: str


def read_script(path: Path) -> ModelScript:
    """Returns the script in a file. Raises `ProviderError` that names the line or the turn."""
    try:
        text = bounded_text(path, LARGEST_SCRIPT)
        turns = list(_from_json(text)) if path.suffix.lower() == ".json" else _from_yaml(text)
        titles = [turn for turn in turns if isinstance(turn.value, dict) and turn.value.keys() == {"title"}]
        turns = [turn for turn in turns if turn not in titles]
        if not turns:
            raise _Wrong("", "it has no turns", _FORMS)
        return ModelScript([_parts_of_turn(turn) for turn in turns], _title(titles))
    except _Wrong as error:
        where = f", {error.location}" if error.location else ""
        raise _script_error(path, where, error) from None
    except Unreadable as error:
        raise _script_error(path, f", line {error.line}" if error.line else "", error) from None


def _title(titles: list[_LocatedTurn]) -> str:
    for location, value in titles:
        if not isinstance(value["title"], str):
            raise _Wrong(location, f"title is {brief(value['title'])}", "Write a text, in quotes.")
    return str(titles[-1].value["title"]) if titles else ""


def _script_error(path: Path, where: str, error: _Wrong | Unreadable) -> ProviderError:
    message = f"reading the script {str(path)[:200]!r}{where}: {error.problem}"
    return ProviderError(message, ErrorKind.CONFIG, error.advice)


def _from_json(text: str) -> Iterator[_LocatedTurn]:
    try:
        turns = json.loads(text)
    except json.JSONDecodeError as error:
        raise _Wrong(f"line {error.lineno}", f"not valid JSON: {error.msg}", "Fix the file.") from None
    except (ValueError, RecursionError) as error:
        raise _Wrong("", f"not valid JSON: {str(error)[:200]}", "Fix the file.") from None
    if not isinstance(turns, list):
        raise _Wrong("", "it is not a list of turns", "Write a list of turns: [ … ].")
    for number, value in enumerate(turns, 1):
        yield _LocatedTurn(f"turn {number}", value)


def _from_yaml(text: str) -> list[_LocatedTurn]:
    try:
        turns: list[_LocatedTurn] = bounded_yaml(text, "", _turns, BOUNDS)
        return turns
    except Unreadable as error:
        if not error.is_syntax:
            raise
        location = f"line {error.line}" if error.line else ""
        raise _Wrong(
            location, error.problem, "Put texts that contain : # * { [ or similar characters in quotes."
        ) from None


def _turns(yaml: Any, text: str) -> list[_LocatedTurn]:
    class Loader(safe_loader()):  # type: ignore[misc]
        """Reads dates, and `yes`, `no`, `on` and `off`, as texts."""

        yaml_implicit_resolvers = {  # noqa: RUF012
            letter: [(tag, pattern) for tag, pattern in known if not tag.endswith((":timestamp", ":bool"))]
            for letter, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("tTfF"))
    node = yaml.compose(text, Loader=Loader)
    if not isinstance(node, yaml.SequenceNode):
        raise _Wrong("", "it is not a list of turns", "Begin every turn with a dash: - text, or - {call: NAME}.")
    return [
        _LocatedTurn(f"line {turn.start_mark.line + 1}, turn {number}", Loader("").construct_document(turn))
        for number, turn in enumerate(node.value, 1)
    ]


def _parts_of_turn(turn: _LocatedTurn) -> list[ScriptPart]:
    location, value = turn
    if isinstance(value, str):
        return [value]
    if not isinstance(value, dict):
        raise _Wrong(
            location,
            f"{brief(value)} is not a turn",
            f"{_FORMS} Put a text in quotes if YAML would read it as another type.",
        )
    _check_keys(value, _TURN, location)
    parts: list[ScriptPart] = []
    for key in ("reasoning", "text"):
        text = value.get(key, "")
        if not isinstance(text, str):
            advice = "Write a text, in quotes if YAML would read it as another type."
            raise _Wrong(location, f"{key} is {brief(text)}", advice)
        if key in value:
            parts.append(text if key == "text" else ReasoningDelta(text))
    calls = value.get("calls", [])
    if not isinstance(calls, list):
        raise _Wrong(location, f"calls is {brief(calls)}", "Write a list: calls: [{call: NAME, arguments: {…}}].")
    if "call" in value:
        calls = [{key: value[key] for key in _CALL if key in value}, *calls]
    elif "arguments" in value or "id" in value:
        raise _Wrong(location, "arguments or id without a call", "Write {call: NAME, arguments: {…}}.")
    parts += [_call(call, location) for call in calls]
    if "error" in value:
        parts.append(_error(value["error"], location))
    if not parts:
        raise _Wrong(location, "the turn is empty", _FORMS)
    return parts


def _call(value: Any, location: str) -> ToolCall:
    if isinstance(value, str):
        value = {"call": value}
    if not isinstance(value, dict):
        raise _Wrong(location, f"{brief(value)} is not a call", "Write {call: NAME, arguments: {…}}.")
    _check_keys(value, _CALL, location)
    name, arguments, id = value.get("call"), value.get("arguments"), value.get("id")
    if not isinstance(name, str) or not name:
        raise _Wrong(location, f"the call's name is {brief(name)}", "Write call: NAME, the name of a tool.")
    if id is not None and (not isinstance(id, str) or not id):
        raise _Wrong(location, f"the call's id is {brief(id)}", "Write a text in quotes, or remove the id.")
    if not isinstance(arguments, dict | str | None):
        raise _Wrong(location, f"arguments is {brief(arguments)}", "Write an object: arguments: {path: a.txt}.")
    try:
        sent = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _Wrong(
            location, f"arguments cannot be written as JSON: {str(error)[:200]}", "Use plain values."
        ) from None
    return ToolCall(name, sent, id=id) if id else ToolCall(name, sent)


def _error(value: Any, location: str) -> ProviderError:
    value = {"message": value} if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise _Wrong(location, f"error is {brief(value)}", "Write error: TEXT, or error: {message: TEXT, kind: …}.")
    _check_keys(value, _ERROR, location)
    message, suggestion = value.get("message", ""), value.get("suggestion", "")
    if not isinstance(message, str) or not message or not isinstance(suggestion, str):
        raise _Wrong(location, "the error's message or suggestion is not a string", "Write error: {message: TEXT}.")
    kind, status = value.get("kind", ErrorKind.SYSTEM.value), value.get("status", 0)
    if kind not in [known.value for known in ErrorKind]:
        raise _Wrong(location, f"there is no error kind {brief(kind)}", f"Use one of {', '.join(ErrorKind)}.")
    if not isinstance(status, int):
        raise _Wrong(location, f"status is {brief(status)}", "Write an HTTP status, such as 503.")
    return ProviderError(message, kind, suggestion, passing=value.get("passing") is True, status=status)


def _check_keys(value: dict[Any, Any], known: tuple[str, ...], location: str) -> None:
    for key in value:
        if key not in known:
            hint = near(str(key), known, 1)
            advice = f'Did you mean "{hint[0]}"?' if hint else f"Use one of {', '.join(known)}."
            raise _Wrong(location, f"unknown key {brief(key)}", advice)
