"""Holds text that a model is still writing: its reasoning, and the arguments of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forge.core.events import ReasoningDelta, ToolArgumentsDelta

LONGEST = 2_000  # characters that are kept of each
_ESCAPES = (("\\n", "\n"), ('\\"', '"'), ("\\t", "    "))  # of JSON


@dataclass(slots=True)
class Draft:
    """One unfinished text; `name` is the tool of an unfinished call."""

    name: str = ""
    size: int = 0
    end: str = ""  # the last part

    def take(self, text: str) -> None:
        self.size += len(text)
        self.end = f"{self.end}{text}"[-LONGEST:]

    def tail(self, most: int) -> list[str]:
        """Returns the last lines; in a call, escaped line breaks count as line breaks."""
        text = self.end
        for escape, character in _ESCAPES if self.name else ():
            text = text.replace(escape, character)
        return [line for line in text.splitlines() if line.strip()][-most:]


class Drafts:
    """The unfinished texts of a run, by agent."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], Draft] = {}  # by agent and id
        self._thoughts: dict[str, Draft] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, event: ReasoningDelta | ToolArgumentsDelta) -> None:
        if isinstance(event, ReasoningDelta):
            self._thoughts.setdefault(event.agent, Draft()).take(event.text)
            return
        draft = self._calls.setdefault((event.agent, event.call.id), Draft())
        draft.name = event.call.name or draft.name or "a call"
        draft.take(event.text)

    def calls(self) -> Iterator[tuple[str, Draft]]:
        """Yields the unfinished calls, each with its agent."""
        return ((agent, draft) for (agent, _), draft in self._calls.items())

    def thoughts(self, agent: str, most: int) -> list[str]:
        """Returns the last lines of an agent's reasoning."""
        found = self._thoughts.get(agent)
        return found.tail(most) if found is not None else []

    def forget(self, agent: str | None = None) -> None:
        """Drops the texts of an agent, or of all agents: what they became is shown now."""
        self._calls = {key: one for key, one in self._calls.items() if agent not in (None, key[0])}
        self._thoughts = {key: one for key, one in self._thoughts.items() if agent not in (None, key)}
