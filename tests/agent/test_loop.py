"""Model, tools, model, tools: until an answer, a hand-over or a limit, and every call gets its result."""

import asyncio

import pytest

from forge import (
    Limits,
    Message,
    Price,
    Scope,
    Scripted,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolRegistry,
    ToolResult,
    Usage,
    register_all,
    rules,
    text_calls,
    tool,
)
from forge.agent import LoopSettings, run_loop
from forge.cli.terminal.exit_codes import Ending
from forge.core.messages import export_message, import_message
from forge.events import (
    ReasoningDelta,
    Retrying,
    RunFinished,
    TextDelta,
    ToolArgumentsDelta,
    ToolFailed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from forge.models import ProviderError
from forge.models.http.outgoing import BrokeOff
from forge.pipeline import standard_executor


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def fails(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@tool(permissions={"write"})
def writes(path: str) -> str:
    """Write."""
    return f"wrote {path}"


def executor_of(*tools, policy=None):
    registry = ToolRegistry(tools)
    register_all(registry)
    return standard_executor(registry, policy=policy or rules("allow *"))


def call(name, arguments=None, id=""):
    return ToolCall(name, arguments or {}, id) if id else ToolCall(name, arguments or {})


async def run(*turns, tools=(add, fails, writes), history=None, policy=None, **more):
    provider = Scripted(*turns)
    executor = executor_of(*tools, policy=policy)
    messages = history if history is not None else [Message("user", "go")]
    limits = more.pop("limits", None)
    return await run_loop(provider, executor, messages, Scope(), limits, LoopSettings(**more))


def tool_texts(result):
    return [message.text for message in result.messages if message.role == "tool"]


async def test_an_answer_without_calls_is_the_end():
    result = await run("hello")
    assert (result.text, result.reason, result.turns, result.calls) == ("hello", "answer", 1, 0)
    assert (result.content, result.iterations) == ("hello", 1)


async def test_results_come_back_in_call_order_with_their_ids():
    calls = [call("add", {"a": n, "b": 1}, f"c{n}") for n in range(5)]
    result = await run(calls, "done")
    answered = [(m.call_id, m.text) for m in result.messages if m.role == "tool"]
    assert answered == [(f"c{n}", str(n + 1)) for n in range(5)]
    assert result.turns == 2


async def test_the_history_knows_which_results_are_failures():
    result = await run([call("add", {"a": 1, "b": 1}, "a"), call("fails", {"why": "broken"}, "b")], "done")
    assert {m.call_id: m.is_error for m in result.messages if m.role == "tool"} == {"a": False, "b": True}
    assert [import_message(export_message(m)).is_error for m in result.messages] == [
        m.is_error for m in result.messages
    ]


async def test_a_failed_call_never_loses_its_siblings_and_goes_back_in_words():
    calls = [call("add", {"a": 1, "b": 1}), call("fails", {"why": "broken"}), call("nope"), ToolCall("add", '{"a": 1,')]
    result = await run(calls, "done")
    good, failed, unknown, broken = tool_texts(result)
    assert good == "2"
    assert "broken" in failed
    assert "no such tool" in unknown
    assert "not valid JSON" in broken
    assert result.reason == "answer"


@pytest.mark.parametrize(
    ("name", "arguments", "reason", "text"),
    [
        ("task_completion", {"result": "all done"}, "task_completion", "all done"),
        ("ask_question", {"question": "Which one?"}, "question", "Which one?"),
        ("converse", {"message": "hi"}, "converse", "hi"),
    ],
)
async def test_a_conversation_tool_hands_over(name, arguments, reason, text):
    result = await run(call(name, arguments))
    assert result.reason == reason
    assert text in result.text


async def test_siblings_of_a_call_that_ends_the_turn_run_first():
    result = await run([call("task_completion", {"result": "done"}), call("add", {"a": 1, "b": 2})])
    assert result.reason == "task_completion"
    assert tool_texts(result)[1] == "3"


async def test_an_ending_call_that_fails_does_not_end():
    result = await run(call("task_completion", {"result": " "}), "then this")
    assert (result.reason, result.text) == ("answer", "then this")


async def test_a_history_that_ends_in_open_calls_resumes_with_them():
    history = [Message("user", "1+2?"), Message("assistant", tool_calls=(call("add", {"a": 1, "b": 2}, "c1"),))]
    result = await run("3", history=history)
    assert tool_texts(result) == ["3"]
    assert result.messages is history, "the history is appended to, never copied"


async def test_an_open_call_that_may_have_happened_is_not_silently_repeated():
    history = [Message("user", "x"), Message("assistant", tool_calls=(call("writes", {"path": "a"}, "c1"),))]
    result = await run("ok", history=list(history))
    assert "state is unknown" in tool_texts(result)[0]
    certain = await run("ok", history=list(history), not_started={"c1"})
    assert tool_texts(certain) == ["wrote a"]


async def test_turns_calls_tokens_cost_and_time_are_limited_with_a_reason_and_words():
    def forever(request):
        return Message(
            "assistant", "thinking", (call("add", {"a": len(request.messages), "b": 1}),), usage=Usage(100, 50)
        )

    endless = [forever] * 50
    price = Price(input=1e4, output=1e4)
    for limits, reason in [
        (Limits(turns=3), "max_turns"),
        (Limits(calls=4), "max_calls"),
        (Limits(tokens=400), "max_tokens"),
        (Limits(cost=2.0, price=price), "max_cost"),
    ]:
        result = await run(*endless, limits=limits)
        assert (result.reason, result.text) == (reason, "thinking")
        assert [m for m in result.messages if m.role == "tool"], "every call has its result"
    assert (await run(*endless, limits=Limits(turns=3))).usage == Usage(300, 150)


async def test_calls_beyond_the_limit_are_answered_but_not_run():
    calls = [call("add", {"a": n, "b": 0}) for n in range(5)]
    result = await run(calls, "what I have", limits=Limits(calls=2))
    assert tool_texts(result)[:2] == ["0", "1"]
    assert all("may make 2 calls" in text for text in tool_texts(result)[2:])
    assert (result.reason, result.text, result.calls) == ("max_calls", "what I have", 2)


async def test_after_the_last_call_the_model_may_answer_and_no_more():
    one = call("add", {"a": 1, "b": 1})
    answered = await run(one, call("add", {"a": 2, "b": 2}), "four", limits=Limits(calls=2))
    assert (answered.reason, answered.text, answered.calls) == ("answer", "four", 2)
    completion = call("task_completion", {"result": "done"})
    completed = await run(one, completion, limits=Limits(calls=1))
    assert completed.reason == "task_completion"
    told = await run(one, one, "two", limits=Limits(calls=1))
    assert (told.reason, told.text, told.turns, told.calls) == ("max_calls", "two", 3, 1), "it could not know before"
    insists = await run(one, one, one, "never asked for", limits=Limits(calls=1))
    assert (insists.reason, insists.turns, insists.calls) == ("max_calls", 3, 1)
    short = await run([one, call("add", {"a": 2, "b": 2}), completion], limits=Limits(calls=1))
    assert short.reason == "max_calls", "an answer that did without is not an ordinary one"


async def test_calls_that_the_loop_refuses_are_told_like_any_other():
    cut = Message("assistant", "", (call("add", '{"a": 1', "cut"),), finish="length")
    elsewhere = Message("assistant", "", (ToolCall("add", {"a": 1, "b": 2}, "elsewhere", "moon"),))
    unreadable = Message("assistant", "", (call("add", "{", "unreadable"),), extra={"refused": {"unreadable": "no"}})
    several = Message("assistant", "", tuple(call("add", {"a": n, "b": 0}, f"c{n}") for n in range(2)))
    heard: list = []
    executor = executor_of(add)
    executor.activity.subscribe(heard.append, ToolStarted, ToolFailed, ToolFinished)
    script = Scripted(cut, elsewhere, unreadable, several, "done")
    await run_loop(script, executor, [Message("user", "x")], Scope(), Limits(calls=1))
    told: dict = {}
    for event in heard:
        told.setdefault(event.call.id, []).append(event.type)
    refused = ["tool_call_start", "error", "tool_call_end"]
    assert told == {
        "cut": refused,
        "elsewhere": refused,
        "unreadable": refused,
        "c0": ["tool_call_start", "tool_call_end"],
        "c1": refused,
    }


async def test_time_is_limited_while_the_model_speaks():
    class Slow:
        async def stream(self, request):
            yield TextDelta("a")
            await asyncio.Event().wait()

    executor = executor_of()
    result = await run_loop(Slow(), executor, [Message("user", "x")], Scope(), Limits(seconds=0.05))
    assert result.reason == "max_time"


def test_reading_from_and_writing_to_the_cache_have_their_own_prices():
    used = Usage(input=1_000_000, output=0, cached=600_000, cache_writes=300_000)
    assert Price(input=3, output=15).of(used) == 3
    assert Price(input=3, output=15, cached=0.3, cache_writes=3.75).of(used) == pytest.approx(0.3 + 0.18 + 1.125)


async def test_a_cost_limit_without_a_known_price_is_refused():
    result = await run("never", limits=Limits(cost=1.0))
    assert (result.reason, result.turns) == ("error", 0)
    assert result.error is not None
    assert "the price of the model Scripted is unknown" in result.error.text()
    assert "Limits(price=" in result.error.text()


async def test_a_call_cut_by_length_is_not_run_and_the_second_time_is_the_end():
    cut = Message("assistant", "", (call("add", '{"a": 1, "b": 2}'),), finish="length")
    result = await run(cut, "fine")
    assert "was cut" in tool_texts(result)[0]
    assert result.reason == "answer"
    result = await run(cut, Message("assistant", "", (call("add", '{"a": 1'),), finish="length"), "never")
    assert result.reason == "error"
    assert result.error is not None
    assert "twice" in result.error.message


async def test_a_provider_that_fails_ends_the_run_with_its_words():
    result = await run(call("add", {"a": 1, "b": 1}), ProviderError("the model is on fire", suggestion="Wait."))
    assert result.reason == "error"
    assert result.error is not None
    assert result.error.text() == "the model is on fire\nWait."
    assert result.text == "", "an error is never the answer"
    assert result.turns == 2


async def test_a_provider_of_somebodys_own_making_may_fail_in_any_way():
    class Odd:
        def __init__(self, *parts):
            self.parts = parts

        async def stream(self, request):
            for part in self.parts:
                yield part
            raise KeyError("oops")

    for odd, words in [(Odd(), "KeyError"), (Odd(TextDelta("x")), "KeyError")]:
        result = await run_loop(odd, executor_of(), [Message("user", "x")])
        assert result.reason == "error"
        assert result.error is not None
        assert words in result.error.message


async def test_going_in_circles_ends_the_run():
    result = await run(*[call("add", {"a": 1, "b": 1})] * 10)
    assert result.reason == "loop"
    assert result.error is not None
    assert "same call" in result.error.message


async def test_the_text_protocol_asks_for_a_call_and_explains_a_broken_one():
    provider = text_calls(
        Scripted(
            "I will think.",
            "<tool>{oops}</tool>",
            '<tool>{"server_name": "local", "tool_name": "add", "arguments": {"a": 1, "b": 2}}</tool>',
            '<tool>{"tool_name": "task_completion", "arguments": {"result": "three"}}</tool>',
        )
    )
    result = await run_loop(provider, executor_of(add), [Message("user", "1+2?")])
    assert (result.reason, result.text) == ("task_completion", "three")
    assert any("held no tool call" in message.text for message in result.messages)
    assert "JSON" in tool_texts(result)[0]
    assert tool_texts(result)[1] == "3"


async def test_a_call_for_another_server_is_refused():
    result = await run(ToolCall("add", {"a": 1, "b": 1}, "c1", "elsewhere"), "ok")
    assert "no server 'elsewhere'" in tool_texts(result)[0]


async def test_cancelling_answers_every_open_call_and_keeps_what_was_finished():
    started = asyncio.Event()

    @tool
    async def hangs() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    history = [Message("user", "go")]
    calls = [call("add", {"a": 1, "b": 1}, "c1"), call("hangs", {}, "c2")]
    task = asyncio.create_task(run(calls, "never", tools=(add, hangs), history=history))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(m.call_id, m.text) for m in history if m.role == "tool"] == [
        ("c1", "2"),
        ("c2", "hangs: cancelled before it ended."),
    ]
    resumed = await run("went on", tools=(add, hangs), history=history)
    assert resumed.text == "went on"


async def test_background_results_are_heard_once_and_can_be_waited_for():
    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            await asyncio.sleep(0.01)
            return "the index is ready"

        return ctx.background(work(), "started")

    result = await run(call("later"), "waiting", "heard it", tools=(later,), wait_for_background=True)
    assert result.text == "heard it"
    told = [m.text for m in result.messages if m.role == "user" and "index is ready" in m.text]
    assert len(told) == 1


async def test_events_tell_the_turns_and_the_end_last():
    provider, executor = Scripted(call("add", {"a": 1, "b": 1}), "done"), executor_of(add)
    seen: list = []
    executor.activity.subscribe(seen.append)
    await run_loop(provider, executor, [Message("user", "go")])
    assert [event.turn for event in seen if isinstance(event, TurnFinished)] == [1, 2]
    assert isinstance(seen[-1], RunFinished)
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "done"


async def test_having_no_tools_is_legal_and_options_reach_the_provider():
    provider = Scripted("hi")
    await run_loop(
        provider, standard_executor([]), [Message("user", "x")], settings=LoopSettings(options={"temperature": 0.5})
    )
    assert provider.requests[-1].options == {"temperature": 0.5}
    assert list(provider.requests[-1].tools) == []


async def test_a_barrier_holds_for_its_tool_alone():
    order: list = []

    class Slow(Tool, parallel=False):
        """Alone."""

        async def run(self, n: int) -> int:
            order.append(f"in {n}")
            await asyncio.sleep(0)
            order.append(f"out {n}")
            return n

    await run([call("slow", {"n": n}) for n in range(3)], "done", tools=(Slow(),))
    assert order == ["in 0", "out 0", "in 1", "out 1", "in 2", "out 2"]


async def test_a_failed_run_never_returns_an_earlier_answer():
    history = [Message("user", "a"), Message("assistant", "OLD ANSWER"), Message("user", "b")]
    result = await run(ProviderError("boom"), history=history)
    assert result.reason == "error"
    assert result.error is not None
    assert result.error.message == "boom"
    assert result.text == ""


async def test_the_limit_of_time_holds_for_tools_and_background_work():
    @tool
    async def slow() -> str:
        """Slow."""
        await asyncio.Event().wait()
        return ""

    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""
        return ctx.background(asyncio.Event().wait, "started")

    result = await run(call("slow"), "never", tools=(slow,), limits=Limits(seconds=0.1))
    assert result.reason == "max_time"
    assert tool_texts(result) == ["slow: cancelled before it ended."]
    waits = await run(call("later"), "x", tools=(later,), limits=Limits(seconds=0.1), wait_for_background=True)
    assert waits.reason == "max_time"


async def test_what_was_shown_of_an_answer_is_kept_when_it_is_stopped():
    class Half:
        async def stream(self, request):
            yield TextDelta("half of ")
            yield TextDelta("the answer")
            await asyncio.Event().wait()

    history = [Message("user", "x")]
    result = await run_loop(Half(), executor_of(), history, Scope(), Limits(seconds=0.1))
    assert (result.reason, result.text) == ("max_time", "half of the answer")
    assert history[-1].text == "half of the answer"


async def test_results_are_in_call_order_after_a_cancel_too():
    started = asyncio.Event()

    @tool
    async def hangs() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    history = [Message("user", "go")]
    calls = [call("add", {"a": 1, "b": 1}, "c1"), call("hangs", {}, "c2"), call("add", {"a": 2, "b": 2}, "c3")]
    task = asyncio.create_task(run(calls, tools=(add, hangs), history=history))
    await started.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [m.call_id for m in history if m.role == "tool"] == ["c1", "c2", "c3"]


async def test_two_calls_with_one_id_both_get_their_result():
    calls = (ToolCall("add", {"a": 1, "b": 1}, "x"), ToolCall("add", {"a": 2, "b": 2}, "x"))
    result = await run(Message("assistant", tool_calls=calls), "done")
    assert tool_texts(result) == ["2", "4"]
    assert len({m.call_id for m in result.messages if m.role == "tool"}) == 2


async def test_recoveries_count_only_in_a_row():
    ask = '<tool>{{"tool_name": "add", "arguments": {{"a": {}, "b": 1}}}}</tool>'
    turns = [text for n in range(5) for text in ("let me think", ask.format(n))]
    end = '<tool>{"tool_name": "task_completion", "arguments": {"result": "ok"}}</tool>'
    result = await run_loop(text_calls(Scripted(*turns, end)), executor_of(add), [Message("user", "x")])
    assert result.reason == "task_completion"


async def test_tokens_of_summaries_and_sub_agents_count():
    from forge.agent.conversation import Conversation

    conversation = Conversation([Message("user", "x")])
    conversation.paid = Usage(10_000, 0)
    result = await run_loop(Scripted("never"), executor_of(), conversation, Scope(), Limits(tokens=5_000))
    assert (result.reason, result.usage.input) == ("max_tokens", 10_000)


async def test_a_summary_is_counted_by_one_run_only():
    from forge.agent.conversation import Conversation

    conversation = Conversation([Message("user", "x")])
    conversation.paid = Usage(10_000, 0)
    first = await run_loop(Scripted("one"), executor_of(), conversation)
    conversation.append(Message("user", "y"))
    second = await run_loop(Scripted("two"), executor_of(), conversation)
    assert first.usage.input > 10_000 > second.usage.input > 0


async def test_the_end_tells_calls_cost_and_the_error():
    executor = executor_of(add)
    seen: list = []
    executor.activity.subscribe(seen.append, RunFinished)
    limits = Limits(price=Price(input=1.0, output=2.0))
    await run_loop(
        Scripted(call("add", {"a": 1, "b": 1}), ProviderError("boom")), executor, [Message("user", "x")], limits=limits
    )
    [end] = seen
    assert (end.calls, end.error) == (1, "boom")
    assert end.cost is not None


async def test_an_answer_that_breaks_off_is_asked_for_again_and_said():
    seen: list = []
    executor = executor_of()
    executor.activity.subscribe(seen.append, TextDelta, Retrying)
    provider = Scripted(["half", BrokeOff("the connection broke", passing=True)], "whole")
    result = await run_loop(provider, executor, [Message("user", "x")])
    assert (result.text, result.turns) == ("whole", 1)
    assert [event.type for event in seen] == ["text_delta", "retrying", "text_delta"]
    assert (seen[1].reason, seen[1].attempt) == ("the connection broke", 1)


async def test_reasoning_and_arguments_of_a_model_are_events_and_no_text():
    seen: list = []
    executor = executor_of()
    executor.activity.subscribe(seen.append, ReasoningDelta, ToolArgumentsDelta)
    written = ToolArgumentsDelta(ToolCall("add", id="c1"), '{"a": 1')
    result = await run_loop(Scripted([ReasoningDelta("hm"), written, "done"]), executor, [Message("user", "x")])
    assert result.text == "done"
    assert [event.text for event in seen] == ["hm", '{"a": 1']


def test_usage_of_an_earlier_version_is_read():
    old = {"role": "assistant", "text": "x", "usage": {"input": 5, "output": 2, "cached": 1}}
    assert import_message(old).usage == Usage(5, 2, 1)
    new = Message("assistant", usage=Usage(5, 2, 1, 3, 1))
    assert import_message(export_message(new)).usage == new.usage


async def test_the_model_reads_in_one_line_what_was_repaired_and_the_result_is_unchanged():
    heard: list = []
    executor = executor_of(add, fails)
    executor.activity.subscribe(heard.append, ToolFinished)
    provider = Scripted(
        [call("add", '{"A": "1", "b": 2,}'), call("fails", {"Why": "no"}), call("add", {"a": 1, "b": 2})], "done"
    )
    result = await run_loop(provider, executor, [Message("user", "go")], Scope())
    repaired, failed, right = tool_texts(result)
    assert repaired.splitlines() == [
        "3",
        '[arguments repaired: removed a comma after the last item; A → a; a: "1" → 1]',
    ]
    assert failed.splitlines()[-1] == "[arguments repaired: Why → why]"
    assert right == "3"
    assert heard[0].result.for_llm == "3"


async def test_the_line_about_repairs_stays_short_and_on_one_line():
    names = {f"name_{number}" * 8: {"type": "integer"} for number in range(40)}
    schema = {"type": "object", "properties": {"content": {"type": "string"}, **names}, "required": ["content"]}
    made = Tool.from_schema("take", "Take.", schema, lambda content, **_: content)
    sent = {"conten\nt": "a", **dict.fromkeys(names, "5")}
    (text,) = tool_texts(await run([call("take", sent)], "done", tools=(made,)))
    first, second = text.split("\n")
    assert first == "a"
    assert second.startswith("[arguments repaired: conten t → content; ")
    assert len(second) < 300


async def test_the_text_of_a_run_is_what_the_model_said_and_nothing_else():
    one = call("add", {"a": 1, "b": 1})
    silent = await run(one, one, limits=Limits(turns=1))
    assert (silent.reason, silent.text, silent.error) == ("max_turns", "", None)
    nothing = await run("")
    assert (nothing.reason, nothing.text, nothing.error) == ("answer", "", None)
    spoken = await run(Message("assistant", "I add.", (one,)), one, limits=Limits(turns=1))
    assert (spoken.reason, spoken.text) == ("max_turns", "I add.")


async def test_the_models_own_limit_of_tokens_is_told_apart_from_the_runs():
    cut = Message("assistant", "half an ans", finish="length", usage=Usage(100, 20))
    own = await run(cut)
    assert (own.reason, own.text) == ("length", "half an ans")
    assert Ending.of(own, 0).exit_code == 4
    assert "max_tokens" in Ending.of(own, 0).message
    ours = await run(call("add", {"a": 1, "b": 1}), "never", limits=Limits(tokens=1))
    assert ours.reason == "max_tokens"


async def test_a_turn_that_is_cut_by_time_counts_its_tokens_as_an_estimate():
    heard: list = []

    class Half:
        async def stream(self, request):
            if len(request.messages) == 1:
                yield Message("assistant", "", (call("add", {"a": 1, "b": 1}),), usage=Usage(100, 50))
                return
            yield TextDelta("half of the answer")
            await asyncio.Event().wait()

    executor = executor_of(add)
    executor.activity.subscribe(heard.append, RunFinished)
    limits = Limits(seconds=0.2, price=Price(input=1e6, output=1e6))
    result = await run_loop(Half(), executor, [Message("user", "Count. " * 1_000)], Scope(), limits)
    assert (result.reason, result.text) == ("max_time", "half of the answer")
    assert result.estimated.input > 1_000
    assert 1 < result.estimated.output < 20
    assert result.usage == Usage(100, 50).plus(result.estimated)
    assert result.cost == pytest.approx(result.usage.total)
    assert [one.estimated for one in heard] == [result.estimated.total]
    counted = await run("whole", limits=Limits(seconds=60))
    assert counted.estimated == Usage()


async def test_a_run_counts_the_tokens_that_a_tool_reports_if_the_tool_says_so():
    class AskModel(Tool):
        """Ask another model."""

        reports_usage = True

        async def run(self) -> ToolResult:
            return ToolResult(for_llm="42", data={"usage": {"input": 1_000, "output": 10}, "cost": 0.5})

    class Task(AskModel):
        """Return data that looks like a report."""

        reports_usage = False

        async def run(self) -> ToolResult:
            return await super().run()

    async def spend(made: Tool) -> Usage:
        model = Scripted([ToolCall(made.spec.name)], "done")
        return (await run_loop(model, standard_executor([made]), [Message("user", "go")], Scope())).usage

    assert (await spend(AskModel())).input >= 1_000
    assert (await spend(Task())).input < 1_000
