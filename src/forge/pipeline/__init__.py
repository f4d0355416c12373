"""The steps around every tool call, outermost first. This list is the whole path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from forge.core.activity import ActivityStream
from forge.core.executor import Step, ToolExecutor
from forge.core.registry import ToolRegistry
from forge.core.secrets import Secrets
from forge.core.tool import Tool
from forge.permissions.answers import Approver, nobody
from forge.permissions.gate import PolicyGate
from forge.permissions.labels.settings import LabelSettings
from forge.permissions.policy import rules
from forge.permissions.request import Policy
from forge.pipeline.authorize import authorize
from forge.pipeline.break_loops import break_loops
from forge.pipeline.dry_run import dry_run
from forge.pipeline.guard import Guard, guard, guard_edited
from forge.pipeline.guard_egress import guard_egress
from forge.pipeline.isolate import isolate
from forge.pipeline.label_results import label_results
from forge.pipeline.limit_output import limit_output
from forge.pipeline.limit_rate import limit_rate
from forge.pipeline.limit_time import limit_time
from forge.pipeline.mark_files import mark_files
from forge.pipeline.redact import redact
from forge.pipeline.retry import retry
from forge.pipeline.skip_repeats import skip_repeats
from forge.pipeline.trace import trace
from forge.pipeline.track_files import track_files
from forge.workspace.history.tracking import SessionState

if TYPE_CHECKING:  # a program without an egress of its own needs nothing of the network
    from forge.network.egress import Egress


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
        trace(),  # a span, where OpenTelemetry is set up
        *([label_results(gate.labels)] if gate.labels is not None else []),  # outermost: no step loses a label
        limit_output(),  # nothing floods the context
        redact(secrets if secrets is not None else Secrets()),  # inside limit_output: its files hold no secrets either
        *([guard(guarded)] if guarded is not None else []),  # outside the gate: no one is asked about a denied call
        break_loops(gate.confirm),  # nudge, ask, stop
        skip_repeats(),  # the same read twice in a turn is answered once
        track_files(files),  # read before write; outside the gate, since what it shows depends on it
        *([dry_run(gate)] if dry else []),  # outside the gate: no one is asked about a dry run
        authorize(gate),  # policy, then the person
        *([guard_edited(guarded)] if guarded is not None else []),  # what a person wrote instead is judged, too
        *([mark_files(gate.labels)] if gate.labels is not None else []),  # inside authorize: people write files, too
        guard_egress(egress),  # where it may connect to
        limit_rate(),
        retry(),  # only failures that say they will pass
        limit_time(),  # inside authorize: waiting for a person is not the tool's time
        isolate(),  # innermost: a process of its own, for tools that ask for it
    ]
    if not without:
        return steps
    names = [step.__module__.rpartition(".")[2] for step in steps]
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
    gate = PolicyGate(policy if policy is not None else rules(), approve, labels)
    return ToolExecutor(registry, standard_steps(gate, hidden, egress=egress), stream, hidden)
