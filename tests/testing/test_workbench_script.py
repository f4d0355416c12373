"""Turns of a scripted model, as they read in a test."""

from __future__ import annotations

import pytest

from forge import Agent, Scripted
from forge.models import ProviderError
from forge.testing import calls, fails, says


def test_a_turn_is_a_text_with_calls():
    assert says("Hi.") == ["Hi."]
    call = calls("add", a=1)
    assert (call.name, call.arguments) == ("add", {"a": 1})
    assert says("Look.", call) == ["Look.", call]


@pytest.mark.parametrize("wrong", [(), (1,), (fails(),)])
def test_a_turn_of_anything_else_is_refused(wrong):
    with pytest.raises(TypeError, match="says"):
        says(*wrong)


def test_arguments_may_have_any_name_and_may_be_broken():
    assert calls("add", name="x", arguments=2).arguments == {"name": "x", "arguments": 2}
    assert calls("add", {"not a name": 1}, b=2).arguments == {"not a name": 1, "b": 2}
    assert calls("add", "{broken").arguments == "{broken"
    with pytest.raises(TypeError, match="text"):
        calls("add", "{broken", b=1)


def test_a_model_may_fail():
    result = Agent(Scripted(fails("overloaded", "rate_limited", status=529))).run_sync("go")
    assert result.reason == "error"
    assert isinstance(fails(), ProviderError)
