"""Counts the events of the log by tool, and the ends of runs by reason."""

from __future__ import annotations

from typing import Any

from forge.project.audit.log_events import Event, is_error, is_refusal, number_of, text_of, tool_of
from forge.project.audit.log_index import EventCount

MOST_TOOLS = 1_000  # tools that are counted separately: a model may invent names
OTHERS = "(others)"


class Tally:
    """The calls of one tool in numbers."""

    def __init__(self) -> None:
        self.calls = self.errors = self.denied = self.asked = self.started = 0
        self.seconds = 0.0

    @property
    def unfinished(self) -> int:
        """The calls without an end: still running, or the process was killed."""
        return max(0, self.started - self.calls)

    def to_dict(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "errors": self.errors,
            "denied": self.denied,
            "asked": self.asked,
            "unfinished": self.unfinished,
            "seconds": round(self.seconds, 3),
        }


class Summary:
    """Counts events by tool, and the ends of runs. Its size does not depend on the number of events."""

    COUNTED = ("permission_asked", "run_finished", "tool_call_*")

    def __init__(self) -> None:
        self.tools: dict[str, Tally] = {}
        self.runs: dict[str, int] = {}  # reason -> number
        self.first: float | None = None
        self.last: float | None = None

    def add(self, event: Event) -> None:
        at = number_of(event.get("ts"))
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        kind = event.get("event")
        if kind == "run_finished":
            reason = text_of(event.get("reason"))[:40]
            self.runs[reason] = self.runs.get(reason, 0) + 1
        elif kind in ("tool_call_start", "tool_call_end", "permission_asked"):
            self._count(self._tally_of(tool_of(event)), event)

    def add_count(self, count: EventCount) -> None:
        """Adds many events of one kind and tool at once."""
        self.first = count.first if self.first is None else min(self.first, count.first)
        self.last = count.last if self.last is None else max(self.last, count.last)
        if count.kind == "run_finished":
            self.runs[count.reason] = self.runs.get(count.reason, 0) + count.number
        elif count.kind == "tool_call_start":
            self._tally_of(count.tool).started += count.number
        elif count.kind == "permission_asked":
            self._tally_of(count.tool).asked += count.number
        elif count.kind == "tool_call_end":
            tally = self._tally_of(count.tool)
            tally.calls += count.number
            tally.errors += count.failed
            tally.denied += count.refused
            tally.seconds += count.seconds

    @property
    def total(self) -> Tally:
        total = Tally()
        for one in self.tools.values():
            for name, value in vars(one).items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def to_dict(self) -> dict[str, Any]:
        return {
            "from": self.first,
            "to": self.last,
            "runs": dict(sorted(self.runs.items())),
            "tools": [{"tool": name, **one.to_dict()} for name, one in self.tools_by_calls()],
            "total": self.total.to_dict(),
        }

    def tools_by_calls(self) -> list[tuple[str, Tally]]:
        """Returns the tools, the most used first."""
        return sorted(self.tools.items(), key=lambda one: (-one[1].calls, one[0]))

    def _tally_of(self, name: str) -> Tally:
        if name not in self.tools and len(self.tools) >= MOST_TOOLS:
            name = OTHERS
        return self.tools.setdefault(name, Tally())

    def _count(self, tally: Tally, event: Event) -> None:
        kind = event["event"]
        if kind == "tool_call_start":
            tally.started += 1
        elif kind == "permission_asked":
            tally.asked += 1
        else:
            tally.calls += 1
            tally.errors += is_error(event)
            tally.denied += is_refusal(event)
            tally.seconds += max(0.0, number_of(event.get("seconds")))
