"""The step before every tool that touches something: through the executor, as a model's call goes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import PermissionAnswered, PermissionAsked, ToolCompleted
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import Attachment, ToolResult
from forge.core.spec import Permission
from forge.core.tool import Tool, tool
from forge.permissions.gate import Answer, PolicyGate
from forge.permissions.policy import PermissionRequest, Policy, rules
from forge.permissions.questions import request_text
from forge.pipeline.authorize import Authorize
from forge.tools.csv_parse import CsvParse

SCOPE = Scope(workspace=Path("/nowhere"))


def answering(*answers: Answer) -> Any:
    left = list(answers)

    async def approve(request: PermissionRequest) -> Answer:
        approve.asked.append(request)  # type: ignore[attr-defined]
        return left.pop(0)

    approve.asked = []  # type: ignore[attr-defined]
    return approve


def guarded(*tools: Any, policy: Policy | None = None, approve: Any = None) -> ToolExecutor:
    gate = PolicyGate(policy, approve) if approve else PolicyGate(policy)
    return ToolExecutor(ToolRegistry(tools), [Authorize(gate)])


ran: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


@tool(permissions={"write"}, target="path")
async def save(path: str, text: str = "") -> str:
    """Save a text."""
    ran.append(path)
    return f"saved {path}"


@tool
async def plain(text: str = "") -> str:
    """Touch nothing."""
    return text


async def test_what_asks_does_not_run_until_somebody_says_yes():
    refused = await guarded(save).execute(ToolCall("save", {"path": "a"}), SCOPE)
    assert refused.failure is not None
    assert refused.failure.kind is ErrorKind.PERMISSION
    assert refused.for_llm.startswith('save(path="a"): write a needs a person')
    assert ran == []
    done = await guarded(save, approve=answering(Answer.ONCE)).execute(ToolCall("save", {"path": "a"}), SCOPE)
    assert (done.for_llm, ran) == ("saved a", ["a"])


async def test_a_deny_is_a_refusal_with_words():
    executor = guarded(save, policy=rules("allow write", "deny write secrets/**"))
    refused = await executor.execute(ToolCall("save", {"path": "./src/../secrets/x"}), SCOPE)
    assert "`deny write secrets/**`" in refused.for_llm
    assert (await executor.execute(ToolCall("save", {"path": "src/x"}), SCOPE)).success
    assert ran == ["src/x"]


async def test_arguments_as_json_text_are_judged_like_any_other():
    executor = guarded(save, policy=rules("allow write", "deny write secrets/**"))
    assert not (await executor.execute(ToolCall("save", '{"path": "secr\\u0065ts/x"}'), SCOPE)).success
    assert (await executor.execute(ToolCall("save", '{"path": "src/x"}'), SCOPE)).success


async def test_the_person_hears_the_arguments_that_run_not_those_that_were_sent():
    @tool(permissions={"write"}, target="path", argument_aliases={"file": "path"})
    async def put(path: str, mode: str = "x") -> str:
        """Put."""
        return path

    approve = answering(Answer.ONCE)
    await guarded(put, approve=approve).execute(ToolCall("put", {"file": "a"}), SCOPE)
    assert dict(approve.asked[0].arguments) == {"path": "a", "mode": "x"}
    assert approve.asked[0].target == "a"


async def test_edited_arguments_run_and_the_model_is_told():
    approve = answering(Answer.edit({"path": "b", "text": ""}, "a is taken"))
    done = await guarded(save, approve=approve).execute(ToolCall("save", {"path": "a"}), SCOPE)
    assert ran == ["b"]
    assert done.for_llm.startswith("saved b\n")
    assert "The person approved this and said: a is taken" in done.for_llm
    assert "the call ran with {" in done.for_llm
    assert '"path":"b"' in done.for_llm
    assert done.data["edited_arguments"] == {"path": "b", "text": ""}


async def test_a_plain_yes_leaves_the_result_alone():
    done = await guarded(save, approve=answering(Answer.ONCE)).execute(ToolCall("save", {"path": "a"}), SCOPE)
    assert done == ToolResult(for_llm="saved a")


async def test_a_result_can_be_withheld_after_it_was_seen():
    @tool(permissions={"read"}, target="path")
    async def look(path: str) -> ToolResult:
        """Look."""
        return ToolResult(
            for_llm="PIN 1234", for_user="x", data={"pin": 1234}, attachments=(Attachment("a/b", b"1234"),)
        )

    approve = answering(Answer("once", review=True), Answer.no("not the PIN"))
    withheld = await guarded(look, policy=rules("ask read"), approve=approve).execute(
        ToolCall("look", {"path": "a"}), SCOPE
    )
    assert approve.asked[1].result.for_llm == "PIN 1234"
    assert "not the PIN" in withheld.for_llm
    assert "1234" not in str(withheld.to_dict())
    assert withheld.attachments == ()
    approve = answering(Answer("once", review=True), Answer.ONCE)
    shown = await guarded(look, policy=rules("ask read"), approve=approve).execute(
        ToolCall("look", {"path": "a"}), SCOPE
    )
    assert shown.for_llm == "PIN 1234"


async def test_the_result_of_a_failure_is_reviewed_too():
    @tool(permissions={"write"})
    async def fail() -> None:
        """Fail."""
        raise ToolError("PIN 1234")

    approve = answering(Answer("once", review=True), Answer.NO)
    withheld = await guarded(fail, approve=approve).execute(ToolCall("fail"), SCOPE)
    assert "1234" not in str(withheld.to_dict())


@pytest.mark.parametrize("answer", [Answer.no("mine"), Answer.ONCE])
async def test_the_result_of_background_work_is_reviewed_when_it_comes(answer):
    @tool(permissions={"execute"})
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            return "PIN 1234"

        return ctx.background(work, "started")

    approve = answering(Answer("once", review=True), answer)
    executor = guarded(later, approve=approve)
    completed: list[ToolCompleted] = []
    executor.activity.subscribe(completed.append, ToolCompleted)
    started = await executor.execute(ToolCall("later"), SCOPE)
    assert (started.for_llm, started.pending) == ("started", True)
    await executor.background.settled(10)
    await executor.background.settled(10)
    assert len(approve.asked) == 2
    assert ("1234" in completed[0].result.for_llm) is (answer.kind == "once")


async def test_background_work_nobody_wants_to_see_is_not_asked_about():
    class Report(Tool, permissions={"execute"}):
        """Report later."""

        async def run(self, ctx: ToolContext) -> ToolResult:
            tell = ctx.completion()
            asyncio.get_running_loop().call_soon(tell, "done")
            return ToolResult.started("started")

    approve = answering(Answer.ONCE)
    executor = guarded(Report(), approve=approve)
    completed: list[ToolCompleted] = []
    executor.activity.subscribe(completed.append, ToolCompleted)
    await executor.execute(ToolCall("report"), SCOPE)
    for _ in range(5):
        await asyncio.sleep(0)
    await executor.background.settled(10)
    assert [event.result.for_llm for event in completed] == ["done"]
    assert len(approve.asked) == 1


async def test_a_refused_call_is_asked_about_once():
    approve = answering(Answer.NO)
    refused = await guarded(save, approve=approve).execute(ToolCall("save", {"path": "a"}), SCOPE)
    assert "refused" in refused.for_llm
    assert len(approve.asked) == 1


async def test_a_tool_can_require_what_its_arguments_did_not_reveal():
    @tool(optional_permissions={"read"})
    async def peek(path: str, ctx: ToolContext) -> str:
        """Peek."""
        await ctx.require("read", path)
        return path

    executor = guarded(peek, policy=rules("deny read secrets/**"))
    assert (await executor.execute(ToolCall("peek", {"path": "a"}), SCOPE)).for_llm == "a"
    assert "`deny read secrets/**`" in (await executor.execute(ToolCall("peek", {"path": "secrets/a"}), SCOPE)).for_llm


async def test_a_file_that_a_call_names_is_asked_about_once_and_may_be_another(tmp_path):
    for name, text in (("a.csv", "x\n1\n"), ("b.csv", "x\n2\n")):
        (tmp_path / name).write_text(text)
    approve = answering(Answer.edit({"path": "b.csv"}))
    executor = guarded(CsvParse(), policy=rules("ask read"), approve=approve)
    scope = Scope(workspace=tmp_path)
    done = await executor.execute(ToolCall("csv_parse", {"path": "a.csv"}), scope)
    assert done.data["records"] == [{"x": "2"}]
    assert (await executor.execute(ToolCall("csv_parse", {"data": "x\n3"}), scope)).success
    (request,) = approve.asked
    assert (request.permission, request.target, request.editable) == ("read", "a.csv", True)


async def test_a_file_that_is_denied_is_refused_before_the_tool_runs(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    executor = guarded(CsvParse(), policy=rules("deny read *.csv"))
    scope = Scope(workspace=tmp_path)
    assert "`deny read *.csv`" in (await executor.execute(ToolCall("csv_parse", {"path": "a.csv"}), scope)).for_llm
    assert (await executor.execute(ToolCall("csv_parse", {"data": "x\n1"}), scope)).success
    (tmp_path / "a.txt").write_text("x\n1\n")
    assert (await executor.execute(ToolCall("csv_parse", {"path": "a.txt"}), scope)).success


async def test_a_question_while_the_tool_runs_cannot_be_edited():
    @tool(optional_permissions={"write"})
    async def poke(path: str, ctx: ToolContext) -> str:
        """Poke."""
        await ctx.require("write", path)
        return path

    approve = answering(Answer.ONCE)
    assert (await guarded(poke, approve=approve).execute(ToolCall("poke", {"path": "a"}), SCOPE)).success
    assert [request.editable for request in approve.asked] == [False]
    shown = request_text(approve.asked[0])
    assert "The tool asks for this during its call, so its arguments can no longer be changed." in shown
    assert "already running" not in shown, "it has done nothing yet"


async def test_a_tool_that_declares_nothing_keeps_the_closed_gate():
    @tool
    async def sneak(ctx: ToolContext) -> str:
        """Sneak."""
        await ctx.require("read", "x")
        return "in"

    refused = await guarded(sneak, policy=rules("allow *")).execute(ToolCall("sneak"), SCOPE)
    assert "nothing guards this call" in refused.for_llm


def test_the_step_is_left_out_where_it_has_nothing_to_say():
    step = Authorize(PolicyGate(rules("deny tool:other")))
    assert not step.applies(plain.spec)
    assert step.applies(save.spec)
    assert Authorize(PolicyGate(rules("deny tool:pl*"))).applies(plain.spec)


async def test_a_rule_that_names_a_tool_without_permissions_stops_it():
    refused = await guarded(plain, policy=rules("deny tool:plain")).execute(ToolCall("plain"), SCOPE)
    assert not refused.success
    assert (await guarded(plain, policy=rules("deny *")).execute(ToolCall("plain"), SCOPE)).success


async def test_clearing_a_session_forgets_what_always_covered():
    approve = answering(Answer.ALWAYS, Answer.NO)
    executor = guarded(save, approve=approve)
    call = ToolCall("save", {"path": "a"})
    assert (await executor.execute(call, SCOPE)).success
    assert (await executor.execute(call, SCOPE)).success
    executor.clear_state(SCOPE.session_id)
    assert not (await executor.execute(call, SCOPE)).success


async def test_one_always_answers_the_same_calls_of_a_turn():
    approve = answering(Answer.ALWAYS)
    results = await guarded(save, approve=approve).execute_all([ToolCall("save", {"path": "a"})] * 5, SCOPE)
    assert all(result.success for result in results)
    assert len(approve.asked) == 1


async def test_asked_and_answered_are_heard_between_start_and_end():
    executor = guarded(save, approve=answering(Answer("once", by="ann")))
    heard: list[Any] = []
    executor.activity.subscribe(heard.append)
    await executor.execute(ToolCall("save", {"path": "a"}), SCOPE)
    assert [event.type for event in heard] == [
        "tool_call_start",
        "permission_asked",
        "permission_answered",
        "tool_call_end",
    ]
    assert isinstance(heard[1], PermissionAsked)
    assert isinstance(heard[2], PermissionAnswered)
    assert heard[2].to_dict()["by"] == "ann"


async def test_a_listener_cannot_change_what_was_approved():
    @tool(permissions={"write"}, target="paths")
    async def save_all(paths: list[str]) -> str:
        """Save."""
        return ",".join(paths)

    sent = {"paths": ["a"]}
    executor = guarded(save_all, approve=answering(Answer.ONCE))
    executor.activity.subscribe(lambda event: sent["paths"].append("secrets"), PermissionAnswered)
    assert (await executor.execute(ToolCall("save_all", sent), SCOPE)).for_llm == "a"


class Counting:
    """A gate that knows only `require`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Permission, str]] = []

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        self.asked.append((permission, target))
        if target == "no":
            raise ToolError("no", ErrorKind.PERMISSION)


async def test_any_gate_will_do():
    gate = Counting()
    executor = ToolExecutor(ToolRegistry([save]), [Authorize(gate)])
    assert (await executor.execute(ToolCall("save", {"path": "a"}), SCOPE)).success
    assert not (await executor.execute(ToolCall("save", {"path": "no"}), SCOPE)).success
    assert gate.asked == [("write", "a"), ("write", "no")]
    executor.clear_state()


async def test_any_gate_is_asked_for_the_optional_permission_of_a_named_target():
    gate = Counting()
    executor = ToolExecutor(ToolRegistry([CsvParse()]), [Authorize(gate)])
    assert not (await executor.execute(ToolCall("csv_parse", {"path": "no"}), SCOPE)).success
    assert (await executor.execute(ToolCall("csv_parse", {"data": "x\n1"}), SCOPE)).success
    assert gate.asked == [("read", "no")]
