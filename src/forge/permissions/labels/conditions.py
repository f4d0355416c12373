"""The conditions about labels that a rule may have, and the protocol that decides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # listing tools traces nothing
    from forge.permissions.labels.trace import Trace

CONDITIONS = {"from": "", "after": "untrusted", "when": "tainted", "to": "origin", "with": "private"}
"""The conditions, each with its only value; `from:` takes `untrusted` or a pattern of origins."""


class CallLabels(Protocol):
    """The known origins of a request. A run provides them."""

    def meets(self, condition: str) -> bool:
        """Says whether a condition, such as `from:untrusted`, holds for this request."""

    def find_reasons(self) -> tuple[Trace, ...]:
        """Returns why the default profile asks about the request; nothing where it does not."""

    def explain(self, conditions: tuple[str, ...]) -> tuple[Trace, ...]:
        """Returns the traces because of which the conditions hold."""
