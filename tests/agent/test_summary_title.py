"""Titles of sessions: written by the model, cleaned, bounded, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from forge import Agent, Message, Price, Scripted, SessionStore, Usage, text_calls
from forge.agent import summary as session_title
from forge.agent.limits import Limits
from forge.agent.summary import write_title
from forge.core.untrusted import clean_title
from forge.events import SessionTitled
from forge.models import ModelRequest
from forge.project.runs.sessions import title_session

TALK = [
    Message("system", "Rules."),
    Message("user", "Refund order 7, please."),
    Message("assistant", "It is refunded."),
]


class Model:
    """A model that answers every request with the same text, and remembers the requests."""

    def __init__(self, text: str, error: Exception | None = None) -> None:
        self.text, self.error = text, error
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Message]:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        yield Message("assistant", self.text, usage=Usage(40, 6))


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Refund of order 7", "Refund of order 7"),
        ("\n\n  Refund\tof   order 7\nand more\n", "Refund of order 7"),
        ("Refund\x1b[2J \u202eof\u200b order", "Refund [2J of order"),
        ("a" * 100, "a" * 59 + "…"),
        ("\x07\x1b", ""),
        ("half \ud800 pair", "half ? pair"),
    ],
)
def test_a_title_is_one_short_line_without_control_characters(text, title):
    assert clean_title(text) == title


@pytest.mark.parametrize(
    "text", ["Refund of order 7", '"Refund of order 7"', "Title: Refund of order 7", "**Refund of order 7**\nIt …"]
)
def test_the_model_is_asked_once_with_the_first_messages(text):
    model = Model(text)
    written = asyncio.run(write_title(model, TALK))
    assert written == ("Refund of order 7", Usage(40, 6))
    (request,) = model.requests
    assert [message.role for message in request.messages] == ["system", "user"]
    assert "Refund order 7" in request.messages[1].text
    assert not request.tools


def test_much_text_is_not_sent():
    model = Model("Long")
    asyncio.run(write_title(model, [Message("user", "a" * 100_000), Message("assistant", "b" * 100_000)]))
    assert len(model.requests[0].messages[1].text) < 5_000


@pytest.mark.parametrize("model", [Model("", RuntimeError("no network")), Model("  \n")])
def test_a_failure_is_logged_and_gives_no_title(model, caplog):
    assert asyncio.run(write_title(model, TALK)).text == ""
    assert "title" in caplog.text


def test_a_model_that_hangs_is_left(monkeypatch, caplog):
    class Hanging(Model):
        async def stream(self, request):
            await asyncio.Event().wait()
            yield Message("assistant", "late")

    monkeypatch.setattr(session_title, "PATIENCE", 0.01)
    assert asyncio.run(write_title(Hanging(""), TALK)).text == ""
    assert "TimeoutError" in caplog.text


def test_a_scripted_model_is_not_asked_unless_it_scripts_a_title():
    silent, titled = Scripted("Hi."), Scripted("Hi.", title="A greeting")
    for model in (silent, text_calls(silent)):
        assert asyncio.run(write_title(model, TALK)).text == ""
    for model in (titled, titled.again(), text_calls(titled)):
        assert asyncio.run(write_title(model, TALK)).text == "A greeting"
    assert (silent.asked, titled.asked) == (0, 0)


def test_the_title_is_stored_and_its_cost_is_an_event(tmp_path):
    agent = Agent(Model("Refund of order 7"), limits=Limits(price=Price(input=1_000_000, output=0)))
    seen: list = []
    agent.activity.subscribe(seen.append, SessionTitled)
    with SessionStore(tmp_path / "sessions.db") as store:
        session = store.open("a")
        session.append(*TALK)
        assert not session.has_given_title
        asyncio.run(title_session(agent, session))
        assert (session.info.title, session.has_given_title) == ("Refund of order 7", True)
    assert [(one.title, one.cost, one.session) for one in seen] == [("Refund of order 7", 40.0, "a")]


def test_a_title_of_a_person_stays(tmp_path):
    with SessionStore(tmp_path / "sessions.db") as store:
        session = store.open("a")
        session.append(*TALK)
        assert store.rename("a", "Mine\x1b[0m\nsecond") == "Mine [0m"
        session.suggest_title("The model's")
        assert session.info.title == "Mine [0m"
        assert store.rename("a", "Another") == session.info.title == "Another"
        with pytest.raises(Exception, match="cannot be the title"):
            store.rename("a", " \n")
