"""The conditions about labels that a rule may have, the origin of a value, and the default profile."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from forge.core.context import Runnable
from forge.core.result import UNTRUSTED, Label
from forge.core.secrets import Secrets
from forge.core.spec import Permission, ToolSpec
from forge.permissions.targets.hosts import read_host

CONDITIONS = {"from": "", "after": "untrusted", "when": "tainted", "to": "origin", "with": "private"}
"""The conditions, each with its only value; `from:` takes `untrusted` or a pattern of origins."""


class CallLabels(Protocol):
    """The known origins of a request. A run provides them."""

    def meets(self, condition: str) -> bool:
        """Returns whether a condition, such as `from:untrusted`, holds for this request."""

    def find_reasons(self) -> tuple[Trace, ...]:
        """Returns why the default profile asks about the request; nothing where it does not."""

    def explain(self, conditions: tuple[str, ...]) -> tuple[Trace, ...]:
        """Returns the traces because of which the conditions hold."""


# The origin of a value in a call, for people and for rules.


class Trace(NamedTuple):
    """The origin of a value in a call's arguments.

    Args:
        argument: the argument that holds the value.
        value: the value.
        kind: "untrusted" or "private".
        origin: where the text comes from.
        quote: the words around the value; the value is between « and ».
        returns: True: the value is an address of the very host that the text comes from.

    Example:
        >>> Trace("to", "eve@example.com", "untrusted", "inbox", "write to «eve@example.com»").origin
        'inbox'
    """

    argument: str
    value: str
    kind: str
    origin: str
    quote: str = ""
    returns: bool = False

    def __str__(self) -> str:
        message = f": “{self.quote}”" if self.quote else ""
        return f"{self.argument} comes from {self.kind} text of {self.origin}{message}"

    def comes_from(self, pattern: str) -> bool:
        """Returns whether its origin matches a pattern: the tool, the host, the server or the path."""
        pattern = pattern.lower()
        return any(fnmatchcase(word, pattern) for word in (self.origin.lower(), *self.origin.lower().split()))


# Judges one request by labels: the conditions of rules, and the default profile.


class Origins(Protocol):
    """The texts that a run has read. `Provenance` holds them."""

    @property
    def labels(self) -> tuple[Label, ...]: ...
    def has(self, kind: str) -> bool: ...
    def trace(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        permission: Permission | None,
        target: str = "",
        *,
        irreversible: bool = False,
        call: str = "",
    ) -> tuple[Trace, ...]: ...
    def trace_private(self, arguments: Mapping[str, Any]) -> tuple[Trace, ...]: ...
    def trace_secrets(self, arguments: Mapping[str, Any], secrets: Secrets) -> tuple[Trace, ...]: ...


def is_irreversible(spec: ToolSpec, tool: Runnable, arguments: Mapping[str, Any]) -> bool:
    """Returns whether a call cannot be undone: its tool declares it for all calls, or says it of this one."""
    return spec.irreversible or bool(type(tool).is_irreversible(tool, arguments))


class RequestLabels:
    """The labels of one request of a call. Nothing is looked up before a rule or the profile asks."""

    def __init__(
        self,
        provenance: Origins,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        permission: Permission | None,
        target: str,
        secrets: Secrets | None = None,
        *,
        irreversible: bool = False,
        call: str = "",
    ) -> None:
        self._irreversible, self._call = irreversible or spec.irreversible, call
        self._provenance, self._secrets = provenance, secrets
        self._spec, self._arguments, self._permission, self._target = spec, arguments, permission, target

    @cached_property
    def is_after_untrusted(self) -> bool:
        return self._provenance.has(UNTRUSTED)

    @cached_property
    def traces(self) -> tuple[Trace, ...]:
        """The values that come from untrusted text."""
        return self._provenance.trace(
            self._spec,
            self._arguments,
            self._permission,
            self._target,
            irreversible=self._irreversible,
            call=self._call,
        )

    @property
    def tainted(self) -> tuple[Trace, ...]:
        """The values that come from untrusted text and lead elsewhere than back to where the text comes from."""
        is_network = self._permission is Permission.NETWORK
        return tuple(one for one in self.traces if not (is_network and one.returns))

    @cached_property
    def private(self) -> tuple[Trace, ...]:
        """The values that come from private text, or that hold a registered secret."""
        traces = self._provenance.trace_private(self._arguments)
        if self._secrets is None:
            return traces
        return traces + self._provenance.trace_secrets(self._arguments, self._secrets)

    @cached_property
    def goes_to_origin(self) -> bool:
        """Returns whether the target is a host that untrusted text in the context comes from."""
        host = read_host(self._target)
        origins = {
            label.origin.rpartition(" ")[2].lower() for label in self._provenance.labels if label.kind == UNTRUSTED
        }
        return bool(host.names) and all(name.lower() in origins for name in host.names)

    def meets(self, condition: str) -> bool:
        """Returns whether a condition of a rule, such as `from:untrusted`, holds for this request."""
        name, _, value = condition.partition(":")
        if name == "from":
            return bool(self.traces) if value == "untrusted" else any(one.comes_from(value) for one in self.traces)
        if name == "after":
            return self.is_after_untrusted
        if name == "when":
            return bool(self.tainted)
        if name == "to":
            return self.goes_to_origin
        return bool(self.private)

    def find_reasons(self) -> tuple[Trace, ...]:
        """Returns why the default profile asks about the request; nothing where it does not."""
        changes = self._irreversible or self._permission not in (None, Permission.READ)
        if not changes or not self.is_after_untrusted:
            return ()
        return self.tainted or (self.private if self._permission is Permission.NETWORK else ())

    def explain(self, conditions: tuple[str, ...]) -> tuple[Trace, ...]:
        """Returns the traces because of which conditions of a rule hold."""
        names = {condition.partition(":")[0] for condition in conditions}
        return (self.traces if names & {"from", "when"} else ()) + (self.private if "with" in names else ())
