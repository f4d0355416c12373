"""What providers, tools and sources may say beside what they must: found also where a wrapper forwards it."""

from __future__ import annotations

from typing import Any

from forge.agent.guarded_model import GuardedProvider
from forge.core.provider import expects_calls, window_of
from forge.core.registry import problems_of
from forge.core.secrets import Secrets, secrets_of
from forge.models.scripted import Scripted


class Large(Scripted):
    window = 200_000
    expects_calls = True


class Source:
    secrets = ("correct horse battery",)
    problems = ("one script is no tool",)


class Unguarded:
    def rules(self, session_id: str) -> None:
        return None


class Forwards:
    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_provider_may_say_its_window_and_that_it_expects_calls() -> None:
    for provider in (Large("done"), GuardedProvider(Large("done"), Unguarded(), "s"), Forwards(Large("done"))):
        assert (window_of(provider), expects_calls(provider)) == (200_000, True)


def test_a_provider_that_says_neither_has_no_window_and_expects_nothing() -> None:
    for provider in (Scripted("done"), GuardedProvider(Scripted("done"), Unguarded(), "s"), Forwards(Scripted("done"))):
        assert (window_of(provider), expects_calls(provider)) == (0, False)


def test_the_secrets_of_a_source_are_masked_also_inside_a_wrapper() -> None:
    for source in (Source(), Forwards(Source())):
        secrets = Secrets()
        secrets.learn(secrets_of(source))
        assert secrets.mask("it is correct horse battery") == "it is [secret]"


def test_what_is_no_source_of_secrets_or_problems_has_none() -> None:
    assert list(secrets_of(len)) == []
    assert list(problems_of(Source())) == ["one script is no tool"]
    assert list(problems_of(Forwards(object()))) == []
