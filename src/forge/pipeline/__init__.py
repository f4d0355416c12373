"""The steps around every tool call, outermost first. This list is the whole path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from forge.core.activity import ActivityStream
from forge.core.execution.chain import Next, Step, StepObject, step_name
from forge.core.executor import ToolExecutor
from forge.core.registry import ToolRegistry
from forge.core.secrets import Secrets
from forge.core.tool import Tool
from forge.permissions.gate import PolicyGate
from forge.permissions.labels.settings import LabelSettings
from forge.permissions.policy import TrialMode, rules
from forge.permissions.questions import Approver, Policy, nobody
from forge.pipeline.authorize import Authorize, GuardEgress
from forge.pipeline.dry_run import dry_run
from forge.pipeline.guard import Guard, GuardCalls, GuardEdited, Redact
from forge.pipeline.label_results import LabelResults, MarkFiles
from forge.pipeline.limit_calls import Isolate, LimitConcurrency, LimitRate, LimitTime, Retry
from forge.pipeline.limit_output import LimitOutput
from forge.pipeline.repeated_calls import BreakLoops, SkipRepeats
from forge.pipeline.trace import TraceCalls
from forge.pipeline.track_files import TrackFiles
from forge.workspace.history.tracking import SessionState

if TYPE_CHECKING:  # a program without an egress of its own needs nothing of the network
    from forge.network.egress import Egress

__all__ = ["Next", "Step", "StepObject", "ToolExecutor", "standard_executor", "standard_steps"]


def standard_steps(
    gate: PolicyGate,
    secrets: Secrets | None = None,
    *,
    files: SessionState | None = None,
    egress: Egress | None = None,
    guarded: Guard | None = None,
    dry: bool = False,
    without: Collection[str] = (),
) -> list[Step]:
    """Returns the steps that every call passes by default.

    Args:
        gate: decides about calls.
        secrets: values that are masked in results.
        files: the store of what sessions read and changed; by default in memory.
        egress: which addresses may be reached; by default the public ones.
        guarded: the guardrails of skills and projects.
        dry: True: calls that need more than `read` are described instead of run.
        without: names of steps to leave out, such as `{"skip_repeats"}`.

    Example:
        >>> agent = Agent(Scripted("Hello!"), steps=lambda gate, secrets: standard_steps(gate, secrets, dry=True))
    """
    steps: list[Step] = [
        TraceCalls(),  # a span, where OpenTelemetry is set up
        *([LabelResults(gate.labels)] if gate.labels is not None else []),  # outermost: no step loses a label
        LimitOutput(),  # nothing floods the context
        Redact(secrets if secrets is not None else Secrets()),  # inside limit_output: its files hold no secrets either
        *(
            [GuardCalls(guarded)] if guarded is not None else []
        ),  # outside the gate: no one is asked about a denied call
        BreakLoops(gate.confirm),  # nudge, ask, stop
        SkipRepeats(),  # the same read twice in a turn is answered once
        TrackFiles(files),  # read before write; outside the gate, since what it shows depends on it
        *([dry_run(gate)] if dry else []),  # outside the gate: no one is asked about a dry run
        Authorize(gate),  # policy, then the person
        *([GuardEdited(guarded)] if guarded is not None else []),  # what a person wrote instead is judged, too
        *([MarkFiles(gate.labels)] if gate.labels is not None else []),  # inside authorize: people write files, too
        GuardEgress(egress),  # where it may connect to
        LimitRate(),
        Retry(),  # only failures that say they will pass
        LimitConcurrency(),  # inside retry: a call that waits to be tried again holds no place
        LimitTime(),  # inside authorize: waiting for a person is not the tool's time
        Isolate(),  # innermost: a process of its own, for tools that ask for it
    ]
    if not without:
        return steps
    names = [step_name(step) for step in steps]
    if unknown := set(without) - set(names):
        raise ValueError(f"standard_steps(without={sorted(unknown)}): unknown step; known steps: {', '.join(names)}")
    return [step for name, step in zip(names, steps, strict=True) if name not in without]


def standard_executor(
    tools: ToolRegistry | Iterable[Tool | Callable[..., Any]],
    *,
    policy: Policy | None = None,
    approve: Approver | None = nobody,
    activity: ActivityStream | None = None,
    secrets: Secrets | Iterable[str] = (),
    egress: Egress | None = None,
    labels: LabelSettings | bool = True,
    trial: TrialMode = "auto",
) -> ToolExecutor:
    """Puts tools behind the standard steps. By default only reading is allowed, and every question is answered no.

    Args:
        tools: tools and functions, or a registry.
        policy: what calls may do.
        approve: answers what the policy asks.
        activity: receives the events.
        secrets: values that are masked.
        egress: which addresses tools may reach.
        labels: follows untrusted and private text into later calls of a run; False: not at all.
        trial: whether programs run as trials; see `PolicyGate`.

    Example:
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> asyncio.run(standard_executor([add]).execute(ToolCall("add", {"a": 1, "b": 2}), Scope())).for_llm
        '3'
    """
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    hidden = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
    stream = activity if activity is not None else ActivityStream(hidden)
    gate = PolicyGate(policy if policy is not None else rules(), approve, labels, trial)
    return ToolExecutor(registry, standard_steps(gate, hidden, egress=egress), stream, hidden)
