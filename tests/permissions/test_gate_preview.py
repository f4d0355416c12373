"""Previews: shown to whoever is asked, made before anybody is, and a reason to refuse when they fail."""

from __future__ import annotations

import asyncio

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.tool import Tool
from forge.permissions import gate as foresight
from forge.permissions.gate import Answer, PolicyGate
from forge.permissions.policy import rules
from forge.permissions.questions import request_text
from forge.pipeline import standard_executor
from forge.pipeline.authorize import Authorize


class Paint(Tool, permissions={"write"}, target="what"):
    """Paint something."""

    def __init__(self, problem=None):
        self.problem = problem
        self.looked = 0

    async def run(self, what: str, colour: str) -> str:
        return f"{what} is {colour}"

    async def preview_call(self, arguments, ctx):
        self.looked += 1
        if self.problem is not None:
            raise self.problem
        return f"-{arguments['what']}: white\n+{arguments['what']}: {arguments['colour']}\n"


def paint(made, policy, answers):
    asked = []

    async def person(request):
        asked.append(request)
        return answers.pop(0)

    executor = ToolExecutor(ToolRegistry([made]), [Authorize(PolicyGate(policy, person))])
    call = ToolCall("paint", {"what": "door", "colour": "red " * 100})
    return asyncio.run(executor.execute(call, Scope())), asked


def test_the_person_sees_what_would_change_before_they_answer():
    made = Paint()
    result, asked = paint(made, rules(), [Answer("once")])
    assert result.success
    assert "+door: red" in asked[0].preview
    text = request_text(asked[0])
    assert "It would change:\n  │ -door: white\n  │ +door: red red" in text
    assert "colour: ⟨400 characters; their effect is shown above⟩" in text


def test_where_nobody_is_asked_nothing_is_foreseen():
    made = Paint()
    result, asked = paint(made, rules("allow write"), [])
    assert result.success
    assert made.looked == 0
    assert asked == []


def test_a_preview_that_fails_refuses_the_call_and_nobody_is_asked():
    result, asked = paint(Paint(ToolError("there is no door", ErrorKind.NOT_FOUND)), rules(), [])
    assert result.failure.message == "there is no door"
    assert result.failure.kind == "not_found"
    assert asked == []


def test_a_preview_that_breaks_refuses_the_call_too():
    result, asked = paint(Paint(KeyError("secret")), rules(), [])
    assert "preview of its changes failed: KeyError" in result.failure.message
    assert "secret" not in result.for_llm
    assert asked == []


def test_a_preview_that_hangs_ends(monkeypatch):
    monkeypatch.setattr(foresight, "PREVIEW_SECONDS", 0.01)

    class Slow(Paint, name="paint", permissions={"write"}):
        """Paint slowly."""

        async def run(self, what: str, colour: str) -> str:
            return "never"

        async def preview_call(self, arguments, ctx):
            await asyncio.Event().wait()

    result, asked = paint(Slow(), rules(), [])
    assert "preview of its changes failed: TimeoutError" in result.failure.message
    assert asked == []


def test_edited_arguments_are_foreseen_anew():
    made = Paint()
    edited = Answer.edit({"what": "door", "colour": 5}, by="x")
    result, asked = paint(made, rules(), [edited, Answer("once")])
    assert made.looked == len(asked)
    assert result.data.get("edited_arguments") or result.is_error


def test_registered_secrets_are_masked_in_what_is_shown():
    secret = "red-hunter2-hunter2"
    asked = []

    async def person(request):
        asked.append(request)
        return Answer("once")

    made = Paint()
    executor = standard_executor([made], approve=person, secrets=[secret])
    for colour in (secret, "green"):
        assert asyncio.run(executor.execute(ToolCall("paint", {"what": "door", "colour": colour}), Scope())).success
    assert [request.preview for request in asked] == [
        "-door: white\n+door: [secret]\n",
        "-door: white\n+door: green\n",
    ]
