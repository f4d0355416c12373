"""Would it be denied, or asked about? Said without asking anyone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.secrets import Secrets
from forge.core.spec import Permission
from forge.core.tool import tool
from forge.permissions.gate import Answer, Grant, PolicyGate
from forge.permissions.policy import Decision, PermissionRequest, rules
from tests.permissions.test_gate import Person, context, launch, merge, plain, refusal, save


@tool(optional_permissions={"read"}, target="path")
def peek(path: str = "") -> str:
    """Peek."""
    return path


def judged(gate: PolicyGate, ctx: Any) -> str:
    return str(gate.judge(ctx).decision)


def test_the_strictest_ruling_over_all_a_call_declares_counts():
    gate = PolicyGate(rules("allow write", "ask write b", "deny write c"), Person(Answer.ONCE))
    assert judged(gate, context(save, path="a")) == "allow"
    assert judged(gate, context(merge, sources=["a", "b"], destination="d")) == "ask"
    assert judged(gate, context(merge, sources=["a", "b", "c"], destination="d")) == "deny"
    assert gate.judge(context(save, path="c")).rule == "deny write c"
    assert judged(gate, context(plain)) == "allow"


async def test_it_says_what_authorize_does_and_asks_nobody():
    person = Person(Answer.ONCE)
    gate = PolicyGate(rules("deny write secret/**"), person)
    assert judged(gate, context(save, path="a")) == "ask"
    assert judged(gate, context(save, path="secret/a")) == "deny"
    assert judged(gate, context(launch, what="a")) == "ask"
    assert person.asked == []
    await gate.authorize(context(save, path="a"))
    await refusal(gate, context(save, path="secret/a"))


async def test_what_a_person_allowed_already_is_allowed():
    gate = PolicyGate(approve=Person(Answer.ALWAYS))
    await gate.authorize(context(save, path="a"))
    assert judged(gate, context(save, path="a")) == "allow"
    assert judged(gate, context(save, path="b")) == "ask"
    granted = await PolicyGate(approve=Person(Answer.ONCE)).authorize(context(save, path="a"))
    assert isinstance(granted.gate, Grant)
    assert granted.gate.judge(granted, Permission.WRITE, "a").decision is Decision.ALLOW
    assert granted.gate.judge(granted, Permission.WRITE, "b").decision is Decision.ASK
    assert granted.gate.judge(granted).decision is Decision.ALLOW


def test_one_permission_can_be_judged_on_its_own():
    gate = PolicyGate(rules("deny read secret/**"))
    assert gate.judge(context(plain), Permission.READ, "secret/a").decision is Decision.DENY
    assert gate.judge(context(plain), Permission.READ, "public/a").decision is Decision.ALLOW
    assert gate.judge(context(plain), Permission.WRITE, "public/a").decision is Decision.ASK


def test_what_authorize_would_refuse_to_judge_is_denied():
    many = context(merge, sources=[f"f{n}" for n in range(1_001)], destination="x")
    assert judged(PolicyGate(rules("allow *")), many) == "deny"

    class Stubborn:
        def __deepcopy__(self, memo: object) -> Any:
            raise RuntimeError

    odd = context(save, path="a")
    odd.arguments = {"path": "a", "text": Stubborn()}
    assert judged(PolicyGate(lambda request: Decision.ALLOW), odd) == "deny"
    assert judged(PolicyGate(rules("allow *")), odd) == "allow"


async def test_an_optional_permission_is_asked_for_once_up_front_and_can_be_edited():
    person = Person(Answer.edit({"path": "b"}))
    gate = PolicyGate(rules("ask read"), person)
    granted = await gate.authorize(context(peek, path="a"))
    assert granted.arguments == {"path": "b"}
    await granted.require("read", "b")
    assert [(request.permission, request.target, request.editable) for request in person.asked] == [("read", "a", True)]
    await refusal(PolicyGate(rules("deny read b"), person), context(peek, path="b"))
    await PolicyGate(rules("ask read", "ask tool:peek"), person).authorize(context(peek, path="b"))
    assert len(person.asked) == 2
    assert len(person.asked[1].parts) == 1


async def test_an_optional_permission_nobody_needs_is_not_asked_for():
    person = Person(Answer.NO)
    await PolicyGate(rules("deny read"), person).authorize(context(peek))
    await PolicyGate(rules("ask read"), person).authorize(context(peek, path=""))
    assert person.asked == []
    await refusal(PolicyGate(rules("deny tool:peek"), person), context(peek))


async def test_a_question_that_no_edit_can_answer_says_so():
    person = Person(Answer.ONCE)
    gate = PolicyGate(approve=person)
    granted = await gate.authorize(context(plain))
    await granted.require("write", "x")
    await gate.confirm(context(plain), "go on?")
    assert [request.editable for request in person.asked] == [False, False]
    await gate.authorize(context(save, path="a"))
    assert person.asked[-1].editable


SECRET = "hunter2-hunter2"


class HunterError(Exception):
    pass


@pytest.mark.parametrize("who", ["policy", "approver"])
async def test_what_a_policy_or_an_approver_raises_is_logged_without_its_words(who, caplog):
    def fail(request: PermissionRequest) -> Any:
        raise HunterError(f"cannot judge {request.arguments['text']}")

    ctx = context(save, path="a", text=SECRET)
    gate = PolicyGate(fail) if who == "policy" else PolicyGate(approve=Person(fail))
    with caplog.at_level(logging.DEBUG):
        error = await refusal(gate, ctx)
    assert SECRET not in caplog.text
    assert "cannot judge" not in caplog.text
    assert "HunterError (test_policy_decision.py, line " in caplog.text
    assert f"the {who} failed on save" in caplog.text
    assert "HunterError" in f"{error.message}"


async def test_what_is_logged_of_a_failure_is_masked(caplog):
    ctx = context(save, path="a")
    masking = ctx.replace(activity=ActivityStream(Secrets([HunterError.__name__])))
    for gate in (PolicyGate(approve=Person(HunterError())), PolicyGate(approve=Person(lambda request: HunterError()))):
        await refusal(gate, masking)
    assert "HunterError" not in caplog.text
    assert "the approver failed on save" in caplog.text


async def test_an_answer_that_is_none_is_logged_by_its_type(caplog):
    await refusal(PolicyGate(approve=Person(lambda request: SECRET)), context(save, path="a"))
    assert SECRET not in caplog.text
    assert "answered with str" in caplog.text
