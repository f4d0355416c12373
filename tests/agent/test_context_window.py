"""What the model is shown stays within its window; everything that was said is kept."""

from forge import Agent, ContextRules, Limits, Message, Scripted, ToolCall, tool
from forge.agent import Conversation
from forge.agent.context_window import Shortening, shorten
from forge.agent.tokens import estimate_message
from forge.models import ProviderError
from forge.models.http.outgoing import PromptTooLong


@tool
def long_text(number: int) -> str:
    """A long text."""
    return f"number {number} " + "lorem ipsum dolor sit amet " * 200


class Busy:
    """Calls the tool with another number every turn, and summarises when it is asked to."""

    def __init__(self, turns):
        self.turns, self.shown, self.summaries = turns, [], 0

    async def stream(self, request):
        if not request.tools:
            self.summaries += 1
            yield Message("assistant", "They asked for texts and got them.")
            return
        self.shown.append(sum(map(estimate_message, request.messages)))
        number = len(self.shown)
        call = ToolCall("long_text", {"number": number}, f"c{number}")
        yield Message("assistant", "done") if number > self.turns else Message("assistant", tool_calls=(call,))


async def test_a_long_run_stays_within_the_window_and_loses_nothing():
    model = Busy(60)
    result = await Agent(model, tools=[long_text], context=ContextRules(window=20_000), limits=Limits(turns=80)).run(
        "go"
    )
    assert (result.reason, result.calls) == ("answer", 60)
    assert max(model.shown) < 20_000
    assert sum("number" in message.text for message in result.messages if message.role == "tool") == 60


async def test_a_conversation_of_words_alone_is_summarised():
    model = Busy(0)
    history = [Message(role, f"{n} " + "many words " * 300) for n in range(40) for role in ("user", "assistant")]
    result = await Agent(model, context=ContextRules(window=8_000)).run([*history, Message("user", "go on")])
    assert result.text == "done"
    assert model.summaries == 1
    assert model.shown[-1] < 8_000


async def test_a_summary_is_remembered_for_the_next_time():
    meta: dict = {}
    messages = [Message("system", "Be brief."), *[Message("user", f"{n} " + "words " * 200) for n in range(20)]]
    conversation = Conversation(messages)
    assert await Shortening(Busy(0), 4_000, meta).compact(conversation, 500)
    later = Conversation([*messages, Message("user", "the latest")])
    Shortening(Busy(0), 4_000, meta).recall(later)
    assert [message.text for message in later.shown[:2]] == ["Be brief.", conversation.shown[1].text]
    assert later.shown[-1].text == "the latest"
    assert len(later.shown) == len(conversation.shown) + 1


async def test_a_history_that_is_too_long_is_shortened_and_asked_again():
    history = [
        Message("system", "Be brief."),
        Message("user", "old question"),
        Message("assistant", "old answer " * 500),
    ]
    history += [Message("user", "more"), Message("assistant", "yes"), Message("user", "now this")]
    model = Scripted(PromptTooLong("too long"), "SUMMARY: they asked", "the answer")
    result = await Agent(model).run(history)
    assert result.text == "the answer"
    assert any("old answer" in message.text for message in result.messages), "what was said is kept"
    shown = model.requests[-1].messages
    assert not any(message.text.startswith("old answer") for message in shown)
    assert shown[-1].text == "now this"


async def test_what_cannot_be_shortened_ends_with_the_error():
    result = await Agent(Scripted(PromptTooLong("too long"))).run("hi")
    assert result.reason == "error"


async def test_a_summary_that_fails_is_made_without_the_model():
    history = [
        Message("user", "old"),
        Message("assistant", "word " * 2_000),
        Message("user", "new"),
        Message("assistant", "ok"),
    ]
    conversation = Conversation([*history, Message("user", "go")])
    assert await shorten(conversation, Scripted(ProviderError("down")), 50)
    assert len(conversation.shown) < len(conversation.messages)
    assert conversation.shown[-1].text == "go"
