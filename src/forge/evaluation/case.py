"""A case: a prompt, the files that it begins with, and what is expected of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Check = Mapping[str, Any]
"""One evaluator: its name and its arguments, such as {"name": "Contains", "value": "milk"}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalExpect:
    """Expectations on a run. What is not given is not checked.

    Args:
        calls: calls that must be made, each with the arguments that matter.
        no_calls: calls that must not be made.
        order: calls that must be made in this order; others may come between them.
        result: how the answer must be: `equals`, `contains`, `lacks`, `matches`, `json`.
        files: files after the run: their text, `{contains: …}` and the like, or None for a file that must not exist.
        limits: the most `turns`, `calls`, `tokens`, `cost` and `seconds` that the run may take.
        reason: how the run must end, such as "answer" or "question".
        judge: what another model must find right about the answer.

    Example:
        >>> EvalExpect(calls=[{"file_read": {"path": "a.txt"}}], result={"contains": "milk"}).reason
        ''
    """

    calls: Sequence[Any] = ()
    no_calls: Sequence[Any] = ()
    order: Sequence[Any] = ()
    result: Any = None
    files: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    judge: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCase:
    """One case of an evaluation. `read_cases` reads them from a file.

    Args:
        name: its name in the table; each case has its own.
        prompt: the task.
        files: the files of its workspace, by path.
        workspace: a directory that is copied to its workspace first.
        script: turns of a scripted model, which answers where no other model is given.
        expect: what is expected of the run.
        evaluators: evaluators of pydantic-evals, as data.
        inputs: the inputs as they are in a dataset of pydantic-evals.
        expected_output: the output that the evaluator EqualsExpected compares.
        skipped: the names of evaluators that Forge does not know, and that were left out on request.

    Example:
        >>> EvalCase(name="greeting", prompt="Say hello.", expect=EvalExpect(result={"contains": "hello"})).name
        'greeting'
    """

    name: str
    prompt: str
    files: Mapping[str, str] = field(default_factory=dict)
    workspace: Path | None = None
    script: Sequence[Any] | None = None
    expect: EvalExpect = field(default_factory=EvalExpect)
    evaluators: Sequence[Check] = ()
    inputs: Any = None
    expected_output: Any = None
    skipped: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRun:
    """One run of a case.

    Args:
        case: the name of the case.
        time: the number of the run: 1 is the first.
        setup: the name of the configuration.
        failures: what was not as expected; empty where the case passed.
        reason: how the run ended.
        text: the answer.
        turns: how often the model was asked.
        calls: how many tools were called.
        tokens: input and output tokens.
        cost: the cost; None where the price is not known.
        seconds: the time of the run.

    Example:
        >>> EvalRun(case="greeting", failures=("the run ended in an error",)).passed
        False
    """

    case: str
    time: int = 1
    setup: str = ""
    failures: Sequence[str] = ()
    reason: str = ""
    text: str = ""
    turns: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Says whether everything was as expected."""
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        """Returns the run as JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {**values, "failures": list(self.failures), "passed": self.passed}
