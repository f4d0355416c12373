"""Provides a model that follows a script: for tests, demonstrations and trying Forge without a key."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from operator import eq
from pathlib import Path
from typing import Any, Self, overload

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, Retrying, TextDelta, ToolArgumentsDelta
from forge.core.messages import Message, ToolCall, Usage
from forge.core.plain_values import brief
from forge.core.provider import ModelRequest, ProviderError, StreamPart

MOST_REQUESTS = 100  # requests, and at least so many calls' ids, that are remembered
PIECES = 16  # a text is streamed in at most so many
_SHORTEST_PIECE = 8

_Shown = ReasoningDelta | ToolArgumentsDelta | Retrying  # streamed as they are
ReplyPart = str | ToolCall | BaseException | _Shown
Reply = ReplyPart | Message | Sequence[ReplyPart]
Turn = Reply | Callable[[ModelRequest], Reply | Awaitable[Reply]]
"""A text, a call, an exception to raise, several of these in order, a whole message, or a function of the request."""


def scripted(turns: Iterable[Turn]) -> Scripted:
    """Makes a model that says these things, one per turn.

    Args:
        turns: the turns, as for `Scripted`.

    Example:
        >>> Agent(scripted(["Hello!"])).run_sync("Hi").text
        'Hello!'
    """
    return Scripted(*turns)


def scripted_file(path: str | Path) -> Scripted:
    """Makes a model from a YAML or JSON file: a list of turns, as `script_file` describes them."""
    from forge.models.scripted.script_file import read_script  # reads YAML: only where a script is a file

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
            ModelRequest(messages=_Prefix(history), tools=request.tools, options=request.options, spell=request.spell)
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
