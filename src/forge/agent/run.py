"""The state of a run in progress, and its settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forge.agent.conversation import Conversation, Prepare
from forge.agent.labels import LabelHistory
from forge.agent.limits import Limits, Spent
from forge.core.context import Scope
from forge.core.executor import ToolExecutor
from forge.core.provider import Provider

Accept = Callable[[str], str]
"""Checks a final answer. Returns the problem, in words for the model, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LoopSettings:
    """Settings of a run, besides the model, the tools and the limits. `run_loop` takes them.

    Args:
        options: passed on to the model.
        accept: checks a final answer; returns the problem in words for the model, or an empty text.
        prepare: called before every turn; may shorten what the model is shown.
        not_started: ids of open calls that never ran.
        wait_for_background: whether the run waits for background work.
        pause: called before every turn; True ends the run as waiting, to be run again.
        announce: whether the end of the run is an event; False for a sub-agent.
        inbox: called before every turn; returns what a person has said meanwhile.
        spent: what earlier parts of the run used; it is added to.
        id: the id of the run; by default a new one.

    Example:
        >>> LoopSettings(options={"temperature": 0}).wait_for_background
        False
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    accept: Accept | None = None
    prepare: Prepare | None = None
    not_started: Collection[str] = ()
    wait_for_background: bool = False
    pause: Callable[[], bool] | None = None
    inbox: Callable[[], Sequence[str]] | None = None
    announce: bool = True
    spent: Spent | None = None
    id: str = ""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Run:
    """Everything one run needs; `run_loop` makes it from its arguments."""

    provider: Provider
    executor: ToolExecutor
    conversation: Conversation
    scope: Scope
    limits: Limits
    settings: LoopSettings
    spent: Spent
    id: str
    first: int  # where this run begins in the history
    has_published_price: bool = False  # the price is not one that a person has set
    partial: list[str] = field(default_factory=list)  # the text so far of an unfinished answer
    is_asking: bool = False  # the model has been asked and has not answered yet
    labels: LabelHistory | None = None  # None: labels are off
    is_short_of_calls: bool = False  # the model wanted more than `limits.calls`
    recoveries: int = 0
    cuts: int = 0
