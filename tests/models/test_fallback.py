"""When a model fails before it has said anything, another is asked; afterwards, never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from forge.core.errors import ErrorKind
from forge.core.events import TextDelta
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest, Provider, ProviderError
from forge.models.fallback import fallback
from forge.models.scripted import Scripted
from forge.models.text_calls import text_calls

REQUEST = ModelRequest(messages=[Message("user", "Hi")])
DOWN = ProviderError("HTTP 503", ErrorKind.SYSTEM, "Try later.", passing=True, status=503)


async def ask(provider: Provider, heard: list[str] | None = None) -> Message:
    """The message; the pieces of text go to `heard`."""
    pieces = heard if heard is not None else []
    async for part in provider.stream(REQUEST):
        if isinstance(part, Message):
            return part
        if isinstance(part, TextDelta):
            pieces.append(part.text)
    raise AssertionError("no message")


async def test_the_first_model_that_works_is_the_one():
    second = Scripted("second")
    assert (await ask(fallback(Scripted("first"), second))).text == "first"
    assert second.asked == 0


@pytest.mark.parametrize(
    "kind",
    [kind for kind in ErrorKind if kind not in (ErrorKind.VALIDATION, ErrorKind.PERMISSION, ErrorKind.CANCELLED)],
)
async def test_a_failure_at_the_start_asks_the_next(kind):
    heard: list[str] = []
    first, second = Scripted(ProviderError("no", kind)), Scripted(ToolCall("x"))
    message = await ask(fallback(first, second, Scripted()), heard)
    assert (heard, [call.name for call in message.tool_calls]) == ([], ["x"])
    assert second.last.messages == REQUEST.messages


@pytest.mark.parametrize("kind", [ErrorKind.VALIDATION, ErrorKind.PERMISSION, ErrorKind.CANCELLED])
async def test_what_another_model_would_not_help_is_raised(kind):
    second = Scripted("second")
    with pytest.raises(ProviderError, match=r"^no$"):
        await ask(fallback(Scripted(ProviderError("no", kind)), second))
    assert second.asked == 0


@pytest.mark.parametrize("error", [ValueError("a bug"), asyncio.CancelledError()])
async def test_other_exceptions_pass(error):
    with pytest.raises(type(error)):
        await ask(fallback(Scripted(error), Scripted("second")))


async def test_after_some_text_it_is_that_model_or_none():
    heard: list[str] = []
    second = Scripted("second")
    with pytest.raises(ProviderError) as caught:
        await ask(fallback(Scripted(["Some text", DOWN]), second), heard)
    assert ("".join(heard), caught.value, second.asked) == ("Some text", DOWN, 0)


async def test_white_space_is_no_text_yet():
    heard: list[str] = []
    message = await ask(fallback(Scripted(["\n ", DOWN]), Scripted("second")), heard)
    assert ("".join(heard), message.text) == ("second", "second")


@pytest.mark.parametrize("text", [" \n", "            text"])
async def test_white_space_of_the_model_that_answers_is_kept(text):
    heard: list[str] = []
    assert (await ask(fallback(Scripted(text), Scripted("second")), heard)).text == "".join(heard) == text


async def test_the_error_at_the_end_names_all():
    missing = ProviderError("no key", ErrorKind.CONFIG, "Set the key.")
    with pytest.raises(ProviderError) as caught:
        await ask(fallback(Scripted(DOWN), text_calls(Scripted(missing)), Scripted()))
    error = caught.value
    assert error.message.startswith(
        "none of 3 models answered: Scripted: HTTP 503; TextCalls: no key; Scripted: the script has no turn"
    )
    assert (error.kind, error.suggestion, error.passing) == (ErrorKind.CONFIG, "Try later.", True)


async def test_one_model_alone_fails_with_its_own_error():
    with pytest.raises(ProviderError) as caught:
        await ask(fallback(Scripted(DOWN)))
    assert caught.value is DOWN


class Watched:
    """Notes whether its stream was closed; ends without a message."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Message]:
        try:
            for piece in self.pieces:
                yield TextDelta(piece)
        finally:
            self.closed = True


async def test_a_stream_without_a_message_is_a_failure():
    assert (await ask(fallback(Watched(), Scripted("second")))).text == "second"
    with pytest.raises(ProviderError, match="ended without a message"):
        await ask(fallback(Watched("text"), Scripted("second")))


async def test_closing_the_stream_closes_the_models():
    model = Watched("a", "b")
    stream = fallback(model).stream(REQUEST)
    await anext(stream)
    await stream.aclose()
    assert model.closed


def test_calls_are_expected_when_every_model_is_told_to_make_them():
    native, told = Scripted(), text_calls(Scripted())
    assert fallback(told, told).expects_calls
    assert not fallback(told, native).expects_calls
