"""Defines the state that a run carries from segment to segment, and so over a crash. Only this file knows its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import NO_USAGE, Usage
from forge.core.plain_values import text_of
from forge.durable.store.rows import MODEL

VERSION = 1
"""Counts up when a field changes its meaning. What releases before 0.3 stored has no version, and is read as this one.

A new field needs no new version: a worker that does not know a field keeps it as it is.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage:
    """The usage of a run up to a moment."""

    turns: int = 0
    calls: int = 0
    usage: Usage = NO_USAGE
    priced: Usage = NO_USAGE  # the part of `usage` that has another price: sub-agents, fallbacks
    priced_cost: float = 0.0  # the cost of that part
    seconds: float = 0.0

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            turns=int(stored.get("turns", 0)),
            calls=int(stored.get("calls", 0)),
            usage=Usage(**stored.get("usage", {})),
            priced=Usage(**stored.get("priced", {})),
            priced_cost=float(stored.get("priced_cost", 0.0)),
            seconds=float(stored.get("seconds", 0.0)),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "calls": self.calls,
            "usage": self.usage._asdict(),
            "priced": self.priced._asdict(),
            "priced_cost": self.priced_cost,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedState:
    """The state that a segment leaves to the next one, beside the messages. A run's column `spent` holds it."""

    used: RunUsage = RunUsage()
    before: RunUsage = RunUsage()  # at the last resume by a person, who grants the full limits again
    cost: float | None = None  # None: the price is not known
    model: str = ""  # the one that was used last
    meta: Mapping[str, Any] = field(default_factory=dict)  # the summary of what the model no longer sees
    waited: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # waits of open calls: start and end, by key
    others: Mapping[str, Any] = field(default_factory=dict)  # fields that this version does not know

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """Reads a stored state. Raises `ToolError` for one that a newer version stored, or that cannot be read."""
        version = stored.get("version", VERSION)
        if isinstance(version, int) and version > VERSION:  # before the fields, which may mean something else
            message = f"the stored state of the run has version {version}, and this worker reads up to {VERSION}"
            raise ToolError(message, ErrorKind.CONFIG, "Run it on workers of the newer Forge that stored it.")
        try:
            cost = stored.get("cost")
            return cls(
                used=RunUsage.read(stored),
                before=RunUsage.read(stored.get("before", {})),
                cost=None if cost is None else float(cost),
                model=str(stored.get(MODEL, "")),
                meta=dict(stored.get("meta", {})),
                waited={key: (since, until) for key, (since, until) in stored.get("waited", {}).items()},
                others={key: value for key, value in stored.items() if key not in _KNOWN},
            )
        except (TypeError, ValueError, AttributeError) as error:
            message = f"the stored state of the run cannot be read: {text_of(error)}"
            raise ToolError(message, ErrorKind.VALIDATION, "See who else writes to the database.") from None

    def to_json(self) -> dict[str, Any]:
        return {
            **self.others,
            "version": VERSION,
            **self.used.to_json(),
            "before": self.before.to_json(),
            "cost": self.cost,
            MODEL: self.model,
            "meta": dict(self.meta),
            "waited": dict(self.waited),
        }

    def resume(self) -> Self:
        """Returns the state from which a person resumes the run."""
        return replace(self, before=self.used)


def read_totals(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a stored state that the result of a run shows, also of a state of another version."""
    return {name: stored[name] for name in ("turns", "calls", "usage", "cost") if name in stored}


_KNOWN = CarriedState().to_json().keys()
