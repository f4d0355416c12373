"""What guardrails deny is not run, and what they block is seen nowhere."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import pytest

from forge.core.context import Scope, ToolContext
from forge.core.errors import ToolError, add_until_then
from forge.core.execution.chain import Step
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import Attachment, ToolResult
from forge.core.tool import tool
from forge.permissions.gate import PolicyGate
from forge.permissions.policy import rules
from forge.permissions.questions import Answer
from forge.pipeline.authorize import Authorize
from forge.pipeline.guard import MARK, GuardCalls, GuardEdited
from forge.skills.guardrails import Guardrails

SECRET = "hush-12345"
BLOCK = Guardrails.of({"deny_output": [{"pattern": r"hush-\d+", "message": "keep quiet"}]})
REDACT = Guardrails.of({"deny_output": [{"pattern": r"hush-\d+", "action": "redact"}]})
DENY = Guardrails.of({"deny_commands": [{"pattern": "forbidden", "message": "not this"}]})


@dataclass
class Fixed:
    """The same rules for every session."""

    own: Guardrails | None
    forgotten: str = ""

    def rules(self, session_id: str) -> Guardrails | None:
        return self.own

    def forget(self, session_id: str) -> None:
        self.forgotten = session_id


@tool
def say(text: str, fail: bool = False) -> ToolResult:
    """Say."""
    if fail:
        raise ToolError(f"cannot say {text}", suggestion=f"Say {text}.")
    return ToolResult(
        for_llm=f"before {text} after",
        for_user=f"for you {text}",
        title=text,
        data={"deep": [{text: (text,)}], "number": 5, "path": Scope},
        attachments=(Attachment("text/plain", text.encode(), text), Attachment("image/png", b"\x89PNG\xff")),
    )


@tool
async def stream(ctx: ToolContext, pieces: list[str]) -> str:
    """Stream."""
    for piece in pieces:
        ctx.output(piece)
    ctx.progress(f"said {pieces[-1]}", last=pieces[-1])
    return "".join(pieces)


def run(own, call, *more):
    executor = ToolExecutor(ToolRegistry([say, stream]), [GuardCalls(Fixed(own)), *more])
    events: list = []
    executor.activity.subscribe(events.append)
    result = asyncio.run(executor.execute(call, Scope()))
    return result, events


def seen(result, events) -> str:
    told = [event.to_dict() for event in events if event.type != "tool_call_start"]
    for event in told:
        event.pop("call", None)  # what was sent is no output
    return json.dumps([result.to_dict(), told], ensure_ascii=False)


def test_a_denied_call_is_not_run():
    ran = []

    @tool
    def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return what

    executor = ToolExecutor(ToolRegistry([act]), [GuardCalls(Fixed(DENY))])
    refused = asyncio.run(executor.execute(ToolCall("act", {"what": "the \\u0066orbidden"}), Scope()))
    assert refused.failure is not None
    assert (refused.failure.kind, refused.failure.message) == ("security_error", "skill guardrail: not this")
    assert asyncio.run(executor.execute(ToolCall("act", {"what": "allowed"}), Scope())).success
    assert ran == ["allowed"]


def test_blocked_output_is_withheld_as_a_whole():
    result, events = run(BLOCK, ToolCall("say", {"text": SECRET}))
    assert result.for_llm.startswith(f"{MARK} skill guardrail: keep quiet\n")
    assert (result.failure.kind, result.data, result.attachments) == ("security_error", {"blocked": True}, ())
    assert SECRET not in seen(result, events)
    assert "before" not in seen(result, events)
    result, _ = run(BLOCK, ToolCall("say", {"text": "hello"}))
    assert result.success
    assert result.for_llm == "before hello after"


@pytest.mark.parametrize("text", ["hush\u200b-12345", "ｈush-12345", "hu\\u0073h-12345", "h'u'sh-12345"])
def test_a_disguise_does_not_help(text):
    result, _ = run(BLOCK, ToolCall("say", {"text": text}))
    assert result.failure is not None
    result, events = run(REDACT, ToolCall("say", {"text": text}))
    assert text not in seen(result, events)


def test_redacted_output_keeps_the_rest():
    result, events = run(REDACT, ToolCall("say", {"text": SECRET}))
    assert result.success
    assert result.for_llm == f"before {MARK} after"
    assert result.for_user == f"for you {MARK}"
    assert result.data["deep"] == [{MARK: [MARK]}]
    assert result.data["number"] == 5
    assert result.attachments[0].data == MARK.encode()
    assert result.attachments[1].data == b"\x89PNG\xff"
    assert SECRET not in seen(result, events)


def test_a_number_is_redacted_too():
    @tool
    def account() -> int:
        """Return the number of the account."""
        return 777123

    def call(pattern: str) -> ToolResult:
        rails = Guardrails.of({"deny_output": [{"pattern": pattern, "action": "redact"}]})
        executor = ToolExecutor(ToolRegistry([account]), [GuardCalls(Fixed(rails))])
        return asyncio.run(executor.execute(ToolCall("account", {}), Scope()))

    assert call(r"777\d+").to_dict()["data"] == {"result": MARK}
    assert call(r"888\d+").to_dict()["data"] == {"result": 777123}


def test_what_fails_is_screened_too():
    for own in (BLOCK, REDACT):
        call = ToolCall("say", {"text": SECRET, "fail": True})
        result, events = run(own, call)
        assert result.failure.kind in ("user_error", "security_error")
        assert SECRET not in seen(result, events)
    result, events = run(REDACT, ToolCall("say", {"txet": SECRET}))  # refused before any step
    assert SECRET not in seen(result, events)


def test_blocking_comes_before_redacting():
    both = Guardrails.of(
        {"deny_output": [{"pattern": "hush", "action": "redact"}, {"pattern": "hush-12345", "message": "all of it"}]}
    )
    result, _ = run(both, ToolCall("say", {"text": SECRET}))
    assert "all of it" in result.failure.message


def test_nothing_is_streamed_where_something_may_be_blocked():
    result, events = run(BLOCK, ToolCall("stream", {"pieces": ["one\n", "hush-", "12345\n", "two\n"]}))
    texts = [event.text for event in events if event.type == "tool_output_chunk"]
    assert texts == ["[Its output is shown after all of it is checked.]\n"]
    assert SECRET not in seen(result, events)
    _, events = run(None, ToolCall("stream", {"pieces": ["one\n", "two\n"]}))
    assert [event.text for event in events if event.type == "tool_output_chunk"] == ["one\n", "two\n"]


def test_what_is_redacted_is_streamed_line_by_line():
    pieces = ["one\nhu", "sh-1", "2345 two\n", "thr", "ee\nhush-", "9"]
    result, events = run(REDACT, ToolCall("stream", {"pieces": pieces}))
    texts = [event.text for event in events if event.type == "tool_output_chunk"]
    assert "".join(texts) == f"one\n{MARK} two\nthree\n{MARK}"
    assert result.for_llm == "".join(texts)
    assert "hush" not in seen(result, events)


def test_a_line_without_end_is_not_kept_for_ever():
    _, events = run(REDACT, ToolCall("stream", {"pieces": ["x" * 40_000, "x" * 40_000, "y\n"]}))
    texts = [event.text for event in events if event.type == "tool_output_chunk"]
    assert "".join(texts) == f"{MARK}\ny\n"


def test_progress_is_looked_at_too():
    for own in (BLOCK, REDACT):
        result, events = run(own, ToolCall("stream", {"pieces": [SECRET]}))
        (told,) = [event for event in events if event.type == "tool_progress"]
        assert MARK in told.title
        assert SECRET not in seen(result, events)


async def test_background_results_and_cancelled_calls_are_screened():
    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            return f"it was {SECRET}"

        return ctx.background(work(), "started")

    @tool
    async def hang() -> str:
        """Hang."""
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            until_then = ToolResult(for_llm=f"so far {SECRET}", data={"x": SECRET})
            raise add_until_then(error, until_then) from None
        return ""

    executor = ToolExecutor(ToolRegistry([later, hang]), [GuardCalls(Fixed(REDACT))])
    events: list = []
    executor.activity.subscribe(events.append)
    await executor.execute(ToolCall("later"), Scope())
    await executor.background.settled(5)
    task = asyncio.create_task(executor.execute(ToolCall("hang"), Scope()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    told = json.dumps([event.to_dict() for event in events])
    assert SECRET not in told
    assert f"it was {MARK}" in told
    assert f"so far {MARK}" in told


def test_much_output_is_looked_at_beside_the_loop():
    lines = "fine\n" * 30_000
    result, _ = run(REDACT, ToolCall("stream", {"pieces": [lines, SECRET]}))
    assert result.for_llm.endswith(f"fine\n{MARK}")


def test_what_a_person_puts_in_the_place_of_the_arguments_is_judged_too():
    @tool(permissions={"execute"}, target="what")
    def act(what: str) -> str:
        """Act."""
        return f"did {what}"

    def answered(with_what: str) -> ToolResult:
        async def person(request: object) -> Answer:
            return Answer.edit({"what": with_what})

        gate = PolicyGate(rules("ask execute"), person)
        steps: list[Step] = [GuardCalls(Fixed(DENY)), Authorize(gate), GuardEdited(Fixed(DENY))]
        executor = ToolExecutor(ToolRegistry([act]), steps)
        return asyncio.run(executor.execute(ToolCall("act", {"what": "a"}), Scope()))

    assert "security_error" in str(answered("forbidden").to_dict())
    assert "did b" in answered("b").for_llm


def test_a_session_that_begins_anew_is_told():
    fixed = Fixed(None)
    executor = ToolExecutor(ToolRegistry([say]), [GuardCalls(fixed)])
    executor.clear_state("s")
    assert fixed.forgotten == "s"


def test_without_rules_a_result_is_the_one_the_tool_gave():
    result, _ = run(None, ToolCall("say", {"text": SECRET}))
    assert result.data["path"] is Scope
