"""The question that a policy decides and a person answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import Permission, ToolSpec
from forge.permissions.conditions import CallLabels, Trace
from forge.permissions.remember import make_memory

MOST_REMEMBERED = 50  # permissions and targets of a question whose rules a person can read before an "always"


class Decision(StrEnum):
    """The decision of a policy: allow, ask or deny.

    Example:
        >>> Decision("ask") is Decision.ASK
        True
    """

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision and its origin.

    Args:
        decision: allow, ask or deny.
        reason: why, in words.
        rule: the rule as it was written; empty for a default.
        layer: the layer of the rule, such as "project".
        conditions: the conditions about labels that the rule has.
        traces: the values of the call that come from labelled text, and because of which it asks or denies.

    Example:
        >>> Ruling(Decision.DENY, "Not on a Friday.").decision
        <Decision.DENY: 'deny'>
    """

    decision: Decision
    reason: str
    rule: str = ""
    layer: str = ""
    conditions: tuple[str, ...] = ()
    traces: tuple[Trace, ...] = ()


_STRICTNESS = {Decision.ALLOW: 0, Decision.ASK: 1, Decision.DENY: 2}


def strictest(rulings: Iterable[Ruling]) -> Ruling | None:
    """Returns the first of the strictest rulings; None if there is none."""
    return max(rulings, key=lambda ruling: _STRICTNESS[ruling.decision], default=None)


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call that wants to do something to a target. An approver and a policy receive it.

    Args:
        spec: the tool's spec.
        call: the call as the model sent it.
        arguments: the validated arguments that will run. They are a copy: changing them changes nothing.
        permission: the permission; None: the tool declares none.
        target: the path, host or command; `Opaque` if it is no text.
        scope: the session, user and directories.
        ruling: why a person is asked.
        others: further permissions and targets of the same question.
        result: set when the question is whether the model may see this result.
        question: set when it is about something else, such as whether to continue.
        preview: the change that the call would make, such as a diff.
        introduction: a text about a tool that no person has approved yet.
        editable: False: the arguments are in use already, so no answer can change them.
        personal: True: only a person can answer, and only for this call.
        form: with a question: the schema of the fields that an answer has as arguments.
        labels: what is known about the origins of the arguments; None outside of runs.

    Example:
        >>> async def ask(request: PermissionRequest) -> Answer:
        ...     print(f"{request.call.name} wants to {request.permission} {request.target}")
        ...     return Answer.NO
        >>> @tool(permissions={"execute"}, target="service")
        ... def deploy(service: str) -> str:
        ...     "Deploy a service."
        ...     return "done"
        >>> _ = asyncio.run(Agent(None, tools=[deploy], approve=ask).call("deploy", {"service": "web"}))
        deploy wants to execute web
    """

    spec: ToolSpec
    call: ToolCall
    arguments: Mapping[str, Any]
    permission: Permission | None
    target: str
    scope: Scope
    ruling: Ruling | None = None
    others: tuple[tuple[Permission | None, str], ...] = ()
    result: ToolResult | None = None
    question: str = ""
    preview: str = ""
    introduction: str = ""
    editable: bool = True
    personal: bool = False
    form: Mapping[str, Any] | None = None
    labels: CallLabels | None = None

    @property
    def remember(self) -> str:
        """The rules that "always" stores, word for word, one a line; empty if nothing may be remembered."""
        return "\n".join(self.rules_to_remember)

    @property
    def rules_to_remember(self) -> tuple[str, ...]:
        """The rules that "always" stores for this tool in this session, word for word. A person must see them all."""
        if self.result is not None or self.question or self.personal or len(self.others) >= MOST_REMEMBERED:
            return ()
        found = (make_memory(self.spec, one.permission, one.target, self.arguments, self.scope) for one in self.parts)
        return tuple(dict.fromkeys(one.rule for one in found if one.key))

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The values that come from labelled text, if this is why a person is asked."""
        return self.ruling.traces if self.ruling is not None else ()

    @property
    def parts(self) -> tuple[PermissionRequest, ...]:
        """One request for each permission and target of the question."""
        alone = dataclasses.replace(self, others=())
        more = (dataclasses.replace(alone, permission=permission, target=target) for permission, target in self.others)
        return (alone, *more)


Policy = Callable[[PermissionRequest], Decision | Ruling]
"""Decides about a request: a function of a `PermissionRequest` that returns a `Decision` or a `Ruling`.

Example:
    >>> def only_reads(request: PermissionRequest) -> Decision:
    ...     return Decision.ALLOW if request.permission == "read" else Decision.DENY
    >>> policy: Policy = only_reads
"""
