"""Keeps the results of a script's calls while the script waits, so that it goes on without repeating them.

A script can be run again: its clock stands still, its random numbers have a seed, and everything else it learns comes
from its calls. With the results of the calls it made, it reaches the same place.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Protocol, runtime_checkable

from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import is_flat
from forge.core.result import ToolResult

MOST_WAITING = 1_000  # scripts in memory, the oldest out
LONGEST_KEPT = 4_000  # characters of a call that are kept as they are


@runtime_checkable
class KeepsJournal(Protocol):
    """A tool whose calls of other tools are kept in `journal_store`: a call can be run again, and repeats none of
    them. A durable run records these calls instead of the call itself.
    """

    keeps_journal: bool


KeptCall = str | tuple[str, dict[str, Any]]
"""A call: its text, or its name and flat arguments. The text is written only if the script waits."""


@dataclass(slots=True)
class Journal:
    """The calls of one script that ended, in the order in which they were made."""

    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    results: dict[int, tuple[KeptCall, ToolResult]] = field(default_factory=dict)  # by the number of the call

    def find(self, number: int, name: str, arguments: Mapping[str, Any]) -> ToolResult | None:
        """Returns the result of an earlier call. Raises `ToolError` where the script made another call then."""
        if number not in self.results:
            return None
        call, result = self.results[number]
        if _shorten(_write_call(call)) != _shorten(_describe(name, arguments)):
            raise ToolError(
                f"call {number} of the script is {name}, and was another one before the script waited",
                ErrorKind.SYSTEM,
                "Check what the script changed, then call run_code again for the rest.",
            )
        return result

    def keep(self, number: int, name: str, arguments: Mapping[str, Any], result: ToolResult) -> None:
        """Keeps a call and its result. Of long arguments only a digest is kept: a script may make many such calls."""
        is_short = (
            is_flat(arguments) and sum(len(one) for one in arguments.values() if isinstance(one, str)) <= LONGEST_KEPT
        )
        call = (name, dict(arguments)) if is_short else _shorten(_describe(name, arguments))
        self.results[number] = (call, result)

    def written(self) -> list[tuple[int, str, ToolResult]]:
        """Returns the number, the text and the result of every call, in their order."""
        return [(number, _write_call(call), result) for number, (call, result) in sorted(self.results.items())]


class JournalStore(Protocol):
    """Keeps the journals of waiting scripts, by the key of the call."""

    async def load(self, key: str) -> Journal: ...
    async def save(self, key: str, journal: Journal) -> None: ...


class MemoryJournals:
    """Keeps journals in this process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Journal] = OrderedDict()

    async def load(self, key: str) -> Journal:
        return self._kept.pop(key, None) or Journal()

    async def save(self, key: str, journal: Journal) -> None:
        self._kept[key] = journal
        if len(self._kept) > MOST_WAITING:
            self._kept.popitem(last=False)


@runtime_checkable
class OffersJournals(Protocol):
    """An executor that keeps journals instead of this process's memory: in stored runs they are rows."""

    def find_journals(self, call_id: str) -> JournalStore | None: ...


def _shorten(text: str) -> str:
    return (
        text if len(text) <= 2 * LONGEST_KEPT else f"{text[:LONGEST_KEPT]}… sha256:{sha256(text.encode()).hexdigest()}"
    )


def _write_call(call: KeptCall) -> str:
    return call if isinstance(call, str) else _describe(*call)


def _describe(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True, default=str)}"
