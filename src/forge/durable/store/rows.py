"""Defines the rows of the run store: runs, outcomes of segments, approvals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from forge.core.messages import Message
from forge.durable.store.waits import Wait

Status = Literal["queued", "running", "waiting", "finished", "failed", "cancelled"]
Ending = Literal["finished", "failed", "cancelled", "waiting", "continue"]

OPEN: tuple[Status, ...] = ("queued", "running")  # the segment has not ended
OVER: tuple[Status, ...] = ("finished", "failed", "cancelled")
FINE = ("answer", "task_completion", "converse", "question")  # reasons of runs that ended well

SCHEDULED = "sched-"  # prefix of the ids of scheduled runs
COVERS = "covers"  # in a stored question: digests of what "always" would allow, one for each part
TAKES = "takes"  # in a stored question: the schema of the tool's arguments, to check edited ones
MODEL = "model"  # in a run's scope: the requested model; in its spent: the model that it used last
SINGLE_CALL = "only_call"  # in a run's scope: it runs its one open call, without a model
TASK = "task"  # in a run's scope: the call that its agent works for, as in `Event.task`
INITIAL_MESSAGES = "heard"  # in a run's scope: how many messages of an earlier conversation it began with
SEAL = "seal"  # in a stored question and in a stored answer: the keyed digest that only Forge can write


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to create. `messages` is the conversation so far and the prompt, which the first segment sees."""

    id: str
    agent: str = "main"
    session: str = ""
    tenant: str = ""
    queue: str = "default"
    priority: int = 0
    version: str = ""
    messages: Sequence[Message] = ()
    prompt: str = ""
    scope: Mapping[str, Any] = field(default_factory=dict)
    carrier: Mapping[str, str] = field(default_factory=dict)
    parent: str = ""
    parent_call: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A stored run. Times are those of the database's clock, in seconds since 1970."""

    id: str
    agent: str
    session: str
    tenant: str
    queue: str
    priority: int
    version: str
    prompt: str
    status: Status
    segment: int  # the number of the current or last segment, from 1
    waits: tuple[Wait, ...]  # while it is waiting
    spent: Mapping[str, Any]  # turns, calls, usage, seconds: a `CarriedState` as JSON
    scope: Mapping[str, Any]  # channel, chat_id, user; never the workspace, which is the worker's own
    carrier: Mapping[str, str]  # the caller's trace
    parent: str  # of a sub-agent's run; else ""
    parent_call: str
    worker: str  # the worker that runs it, or ran it last
    created: float
    updated: float
    cancelling: bool  # cancellation was requested, and it is still running
    result: Mapping[str, Any] | None  # once it is over
    waited: float = 0.0  # seconds that it has waited, without the present wait
    model: str = ""  # that it used last, or was asked to use

    @property
    def is_over(self) -> bool:
        return self.status in OVER


@dataclass(frozen=True, slots=True)
class Mark:
    """A verdict of a person on the answer of a run."""

    verdict: str  # "good" or "bad"
    note: str
    by: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a segment. `messages` are its new messages."""

    status: Ending
    messages: tuple[Message, ...]
    spent: Mapping[str, Any]  # a `CarriedState` as JSON
    waits: tuple[Wait, ...] = ()
    result: Mapping[str, Any] | None = None
    held: str = ""  # the worker that holds its background work
    answers_messages: bool = False  # it does not finish while a message waits: another segment answers the message
    last_event: tuple[str | None, Mapping[str, Any]] | None = None  # stored if the run is over now


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An approval that a person must give. Its id is bound to the exact call."""

    id: str
    run: str
    call: str
    tool: str
    digest: str
    request: Mapping[str, Any]  # all that a person must see
    asked: float = 0.0
    answer: Mapping[str, Any] | None = None
    answered: float = 0.0  # 0: not yet
    by: str = ""
    problem: str = ""  # why the stored question or its answer does not count: something else than Forge wrote it
    can_answer: bool = True  # False: what is shown is not what Forge asked
