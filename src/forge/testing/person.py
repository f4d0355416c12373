"""A person for tests: gives prepared answers and records the questions."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from forge.core.plain_values import text_of
from forge.permissions.questions import Answer, PermissionRequest

Said = Answer | bool | str | Callable[[PermissionRequest], Any]
"""`True` and "yes" (once), "always", `False` and "no", an `Answer`, or a function of the request that returns one.

Any approver is such a function."""

_WORDS = {"yes": Answer.ONCE, "once": Answer.ONCE, "always": Answer.ALWAYS, "no": Answer.NO}


class Person:
    """An approver: `Agent(model, approve=Person("yes", "no"))`.

    Gives the answers in turn, then `otherwise`. Without an answer left it says no, and `check` fails; `check` fails
    for unused answers, too; `with` checks at the end. `questions` are the requests, `asked` has them as texts.
    """

    def __init__(self, *answers: Said, otherwise: Said | None = None) -> None:
        for said in (*answers, *(() if otherwise is None else (otherwise,))):
            if not callable(said):
                _answer(said)  # a wrong one is an error here, not when it is asked for
        self.questions: list[PermissionRequest] = []
        self._answers = deque(answers)
        self._otherwise = otherwise
        self._unanswered: list[str] = []

    async def __call__(self, request: PermissionRequest) -> Answer:
        self.questions.append(request)
        said = self._answers.popleft() if self._answers else self._otherwise
        if said is None:
            self._unanswered.append(_words(request))
            return Answer.no("the person of this test has no answer left", by="person")
        answer = await self._give(said, request)
        return answer if answer.by else replace(answer, by="person")

    async def _give(self, said: Said, request: PermissionRequest) -> Answer:
        if not callable(said):
            return _answer(said)
        try:
            found = said(request)
            return _answer(await found if inspect.isawaitable(found) else found)
        except Exception as error:  # it would be logged, and be a no
            self._unanswered.append(f"{_words(request)} ({text_of(error)})")
            raise

    @property
    def asked(self) -> list[str]:
        """The questions as texts: `file_write: write notes.txt`."""
        return [_words(request) for request in self.questions]

    def check(self) -> None:
        """Raises `AssertionError` for a question without an answer, and for an answer without a question."""
        __tracebackhide__ = True
        if self._unanswered:
            raise AssertionError(
                f'the person had no answer to: {"; ".join(self._unanswered)}. Add an answer, or `otherwise="yes"`.'
            )
        if self._answers:
            asked = "; ".join(self.asked) or "nothing"
            raise AssertionError(f"{len(self._answers)} answers were not used; the questions were: {asked}")

    def __enter__(self) -> Person:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        __tracebackhide__ = True
        if kind is None:
            self.check()

    def __repr__(self) -> str:
        return f"<Person, asked {len(self.questions)} times, {len(self._answers)} answers left>"


def _answer(said: Any) -> Answer:
    if isinstance(said, Answer):
        return said
    if isinstance(said, bool):
        return Answer.ONCE if said else Answer.NO
    if isinstance(said, str) and said in _WORDS:
        return _WORDS[said]
    raise ValueError(f"Person({said!r}): an answer must be {', '.join(_WORDS)}, True, False, an Answer or a function")


def _words(request: PermissionRequest) -> str:
    name = request.spec.name
    if request.result is not None:
        return f"{name}: show its result"
    if request.question:
        return f"{name}: {request.question}"
    wanted = (f"{part.permission or 'run'} {part.target}".strip() for part in request.parts)
    return f"{name}: {', '.join(dict.fromkeys(wanted))}"
