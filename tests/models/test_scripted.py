"""The scripted model says what it is told, complains about what is left or missing, and stays flat for ever."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forge.core.errors import ErrorKind
from forge.core.events import TextDelta
from forge.core.messages import Message, ToolCall, Usage
from forge.core.provider import ModelRequest, Provider, ProviderError, StreamPart
from forge.models.scripted import MOST_REQUESTS, PIECES, Scripted, Turn, scripted_file


def asking(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=list(messages) or [Message("user", "Hi")], **more)


async def ask(provider: Provider, request: ModelRequest | None = None) -> tuple[list[str], Message]:
    """One turn: the pieces of its text, and the message."""
    parts = [part async for part in provider.stream(request or asking())]
    assert isinstance(parts[-1], Message)
    return [part.text for part in parts[:-1] if isinstance(part, TextDelta)], parts[-1]


CALL = ToolCall("file_read", '{"path": "a"}', id="one")


async def test_a_text_is_streamed_in_pieces():
    pieces, message = await ask(Scripted("A text of some length, to be cut."))
    assert 1 < len(pieces) <= PIECES
    assert "".join(pieces) == message.text == "A text of some length, to be cut."
    assert (message.role, message.finish, message.tool_calls) == ("assistant", "stop", ())
    assert len((await ask(Scripted("x" * 100_000)))[0]) == PIECES


@pytest.mark.parametrize(
    ("turn", "text", "calls"),
    [
        (CALL, "", (CALL,)),
        ([CALL, ToolCall("b", id="two")], "", (CALL, ToolCall("b", id="two"))),
        (("Let me see.", CALL), "Let me see.", (CALL,)),
        (Message("assistant", "Whole", (CALL,), finish="length"), "Whole", (CALL,)),
        (lambda request: f"You said {request.messages[-1].text}", "You said Hi", ()),
        (lambda request: [CALL], "", (CALL,)),
    ],
    ids=["call", "calls", "text and call", "message", "function", "function of calls"],
)
async def test_a_turn_may_be(turn: Turn, text: str, calls: tuple[ToolCall, ...]):
    pieces, message = await ask(Scripted(turn))
    assert ("".join(pieces), message.text, message.tool_calls) == (text, text, calls)
    assert message.finish == ("length" if isinstance(turn, Message) else "calls" if calls else "stop")


async def test_a_function_may_be_async():
    async def answer(request: ModelRequest) -> str:
        return "later"

    assert (await ask(Scripted(answer)))[1].text == "later"


@pytest.mark.parametrize("error", [ProviderError("overloaded", passing=True), ValueError, KeyboardInterrupt()])
async def test_an_exception_is_raised(error):
    with pytest.raises(error if isinstance(error, type) else type(error)):
        await ask(Scripted(error))


async def test_an_exception_may_come_after_some_text():
    stream = Scripted(["Some text", ProviderError("reset")]).stream(asking())
    heard = [await anext(stream), await anext(stream)]
    assert "".join(part.text for part in heard if isinstance(part, TextDelta)) == "Some text"
    with pytest.raises(ProviderError, match="reset"):
        await anext(stream)


@pytest.mark.parametrize("turn", [7, None, [], ["a", 7], Message("user", "x"), lambda request: None])
async def test_what_is_no_turn_is_explained(turn):
    with pytest.raises(ProviderError, match="the script has an invalid turn") as caught:
        await ask(Scripted(turn))
    assert caught.value.suggestion.startswith("A turn is a text, a ToolCall")


async def test_running_out_says_how_many_turns_there_were():
    provider = Scripted("one", "two")
    await ask(provider)
    await ask(provider)
    with pytest.raises(ProviderError, match="it has 2, but the model got 3 requests") as caught:
        await ask(provider)
    assert (caught.value.kind, bool(caught.value.suggestion)) == (ErrorKind.CONFIG, True)


async def test_leftovers_are_complained_about():
    with pytest.raises(ProviderError, match="2 of the script's 3 turns were not used; the next is a call of file_read"):
        async with Scripted("one", CALL, "three") as provider:
            await ask(provider)


async def test_nothing_left_is_nothing_to_complain_about():
    async with Scripted("one") as provider:
        await ask(provider)
    provider.check()
    assert (provider.left, repr(provider)) == (0, "<Scripted, 0 of 1 turns left>")


async def test_leftovers_do_not_hide_another_error():
    with pytest.raises(ZeroDivisionError):
        async with Scripted("one"):
            raise ZeroDivisionError


async def test_requests_show_the_history_as_it_was():
    provider = Scripted("one", "two")
    history = [Message("user", "Hi")]
    await ask(provider, ModelRequest(messages=history, options={"seed": 1}))
    history += [Message("assistant", "one"), Message("user", "And?")]
    await ask(provider, ModelRequest(messages=history))
    first, second = provider.requests
    assert (first.messages, first.options) == ([Message("user", "Hi")], {"seed": 1})
    assert (len(second.messages), second.messages[-1].text, second.messages[1:]) == (3, "And?", history[1:])
    assert (provider.asked, provider.last) == (2, second)
    assert first.messages != second.messages
    with pytest.raises(IndexError):
        first.messages[1]


async def test_usage_is_estimated_unless_it_is_given():
    usage = (await ask(Scripted("x" * 400), asking(Message("user", "y" * 4000))))[1].usage
    assert usage == Usage(1004, 104)
    given = Message("assistant", "x", usage=Usage(1, 2, 1))
    assert (await ask(Scripted(given)))[1].usage == Usage(1, 2, 1)


async def test_usage_follows_a_history_that_was_replaced():
    provider = Scripted(*["x"] * 4)
    history = [Message("user", "y" * 400), Message("assistant", "z" * 400)]
    sizes = []
    for messages in (history[:1], history, [Message("user", "s" * 40)], history):
        sizes.append((await ask(provider, ModelRequest(messages=messages)))[1].usage.input)
    assert sizes == [104, 208, 14, 208]


async def test_the_same_call_said_again_gets_another_id():
    provider = Scripted(*[CALL] * 3, [CALL, CALL])
    ids = [call.id for _ in range(4) for call in (await ask(provider))[1].tool_calls]
    assert (ids[0], len(set(ids))) == ("one", 5)


async def test_ten_thousand_turns_leave_nothing_behind():
    provider = Scripted(*[lambda request: ToolCall("file_read", '{"path": "a"}')] * 10_000)
    looked_at = 0

    class Counting(list[Message]):
        def __getitem__(self, index: Any) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(index)

    history = Counting([Message("user", "Hi")])
    for turn in range(10_000):
        message = (await ask(provider, ModelRequest(messages=history)))[1]
        history += [message, Message("tool", "text", call_id=message.tool_calls[0].id)]
        if turn == 1_000:
            gc.collect()
            held = _size(provider)
    assert looked_at < 10_000 * 10  # a few a turn, however long the history
    assert (len(provider.requests), provider.asked) == (MOST_REQUESTS, 10_000)
    assert _size(provider) <= held
    provider.check()


def _size(provider: Scripted) -> int:
    """Of what the provider holds itself, without the script and the histories, which are others'."""
    own = [value for name, value in vars(provider).items() if name != "_left"]
    return sum(map(sys.getsizeof, own))


class TestFile:
    def write(self, folder: Path, text: str, name: str = "script.yaml") -> Path:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    async def test_yaml_holds_every_kind_of_turn(self, tmp_path):
        path = self.write(
            tmp_path,
            "# a script\n"
            "- Just a text.\n"
            "- {call: file_read, arguments: {path: a.txt, since: 2026-01-01, on: yes, off: true, n: 1.5}, id: first}\n"
            "- text: Two at once.\n"
            "  calls:\n"
            "    - {call: bash, arguments: {command: 'ls'}}\n"
            "    - datetime_now\n"
            "- {text: Hm., call: broken, arguments: '{oops'}\n"
            "- |\n"
            "  Several\n"
            "  lines.\n"
            "- error: {message: overloaded, kind: rate_limited, suggestion: Wait., passing: true, status: 529}\n"
            "- error: broken\n",
        )
        provider = scripted_file(path)
        said = [(await ask(provider))[1] for _ in range(5)]
        assert [message.text for message in said] == ["Just a text.", "", "Two at once.", "Hm.", "Several\nlines.\n"]
        assert said[1].tool_calls == (
            ToolCall(
                "file_read", '{"path": "a.txt", "since": "2026-01-01", "on": "yes", "off": true, "n": 1.5}', id="first"
            ),
        )
        assert [(call.name, call.arguments) for call in said[2].tool_calls] == [
            ("bash", '{"command": "ls"}'),
            ("datetime_now", "{}"),
        ]
        assert said[3].tool_calls[0].arguments == "{oops"
        with pytest.raises(ProviderError) as caught:
            await ask(provider)
        error = caught.value
        assert (error.message, error.kind, error.suggestion) == ("overloaded", ErrorKind.RATE_LIMITED, "Wait.")
        assert (error.passing, error.status) == (True, 529)
        with pytest.raises(ProviderError, match=r"^broken$"):
            await ask(provider)
        provider.check()

    async def test_json_does_too(self, tmp_path):
        path = self.write(tmp_path, '["one", {"call": "b",\t"arguments": {"n": null}}]', "script.json")
        provider = scripted_file(str(path))
        assert (await ask(provider))[1].text == "one"
        assert (await ask(provider))[1].tool_calls[0].arguments == '{"n": null}'

    @pytest.mark.parametrize(
        ("text", "place", "problem", "advice"),
        [
            ("- one\n- 7\n", "line 2, turn 2", "7 is not a turn", "Put a text in quotes"),
            ("- True\n", "line 1, turn 1", "true is not a turn", "Put a text in quotes"),
            ("-\n", "line 1, turn 1", "null is not a turn", "A turn is"),
            ("- one\n- {cal: a}\n", "line 2, turn 2", 'unknown key "cal"', 'Did you mean "call"?'),
            ("- {call: a, arguments: [1]}\n", "line 1, turn 1", "arguments is [1]", "Write an object"),
            ("- {call: a, arguments: {x: !!binary aGk=}}\n", "turn 1", "cannot be written as JSON", "Use plain values"),
            ("- {call: 7}\n", "turn 1", "the call's name is 7", "Write call: NAME"),
            ("- {call: a, id: 7}\n", "turn 1", "the call's id is 7", "in quotes"),
            ("- {id: a}\n", "turn 1", "arguments or id without a call", "Write {call"),
            ("- {calls: a}\n", "turn 1", 'calls is "a"', "Write a list"),
            ("- {calls: [7]}\n", "turn 1", "7 is not a call", "Write {call"),
            ("- {}\n", "turn 1", "the turn is empty", "A turn is"),
            ("- {text: 7}\n", "turn 1", "text is 7", "in quotes"),
            ("- {error: 7}\n", "turn 1", "error is 7", "Write error: TEXT"),
            ("- {error: {kind: x, message: a}}\n", "turn 1", 'no error kind "x"', "Use one of validation_error"),
            ("- {error: {}}\n", "turn 1", "message or suggestion is not a string", "Write error"),
            ("- {error: {message: a, status: x}}\n", "turn 1", 'status is "x"', "an HTTP status"),
            ("turns: []\n", "", "it is not a list of turns", "Begin every turn with a dash"),
            ("", "", "it is not a list of turns", "Begin every turn with a dash"),
            ("[]", "", "it has no turns", "A turn is"),
            ("- one\n- {a: b: c}\n", "line 2", "not valid YAML", "Put texts"),
            ("- &a one\n- *a\n", "line 2", "aliases are not supported", "Write it without aliases"),
            ("- &a [*a]\n", "line 1", "aliases are not supported", "Write it without aliases"),
            ("- !!python/object:os.system x\n", "line 1", "not valid YAML", "Put texts"),
            ("- " + "[" * 60 + "]" * 60, "line 1", "more than 50 levels deep", "Write it without aliases"),
            ("- [" + "1," * 200_000 + "]", "line 1", "more than 100,000 values", "Write it without aliases"),
            ("- " + "x" * (1024 * 1024), "", "larger than 1024 KiB", "Make it smaller"),
        ],
    )
    def test_mistakes_are_named_with_their_place(self, tmp_path, text, place, problem, advice):
        path = self.write(tmp_path, text)
        with pytest.raises(ProviderError) as caught:
            scripted_file(path)
        error = caught.value
        assert error.message.startswith(f"reading the script '{path}'")
        assert place in error.message
        assert problem in error.message
        assert advice in error.suggestion
        assert error.kind is ErrorKind.CONFIG

    @pytest.mark.parametrize(
        ("text", "place", "problem"),
        [
            ('["a",\n"b"', "line 2", "not valid JSON"),
            ('{"a": 1}', "", "it is not a list of turns"),
            ('["a", 7]', "turn 2", "7 is not a turn"),
            ("[" * 100_000, "", "not valid JSON"),
        ],
    )
    def test_mistakes_in_json_too(self, tmp_path, text, place, problem):
        with pytest.raises(ProviderError) as caught:
            scripted_file(self.write(tmp_path, text, "a.json"))
        assert place in caught.value.message
        assert problem in caught.value.message

    def test_what_is_no_file_is_explained(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "latin.yaml").write_bytes(b"- caf\xe9\n")
        for name, problem in {
            "missing.yaml": "No such file",
            ".": "not a regular file",
            "pipe": "not a regular file",
            "latin.yaml": "byte 5 is not UTF-8",
            "nul\0": "null (?:byte|character)",
        }.items():
            with pytest.raises(ProviderError, match=problem) as caught:
                scripted_file(tmp_path / name)
            assert caught.value.suggestion


async def test_a_scripted_model_is_a_provider():
    provider: Provider = Scripted("x")
    stream: AsyncIterator[StreamPart] = provider.stream(asking())
    assert [part async for part in stream]
