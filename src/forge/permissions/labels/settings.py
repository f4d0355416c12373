"""The settings of labels: which results are untrusted or private, beside what tools declare."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # without a run, nothing is traced
    from forge.permissions.labels.provenance import Provenance

FORMS = ("tool", "host", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSettings:
    """Says which results are untrusted, trusted or private, beside what tools declare.

    An entry is `tool:GLOB`, `host:GLOB` or `path:GLOB`; a path is relative to the workspace. `untrusted` wins over
    `trusted`.

    Args:
        untrusted: results that others may have written.
        trusted: results that are trusted though their tools say otherwise.
        private: results that must not leave.

    Example:
        >>> labels = LabelSettings(untrusted=["path:downloads/**"], trusted=["host:docs.example.com"])
        >>> agent = Agent(Scripted("Hello!"), labels=labels)
    """

    untrusted: Collection[str] = ()
    trusted: Collection[str] = ()
    private: Collection[str] = ()

    def __post_init__(self) -> None:
        for name in ("untrusted", "trusted", "private"):
            entries = getattr(self, name)
            entries = (entries,) if isinstance(entries, str) else tuple(entries)
            for entry in entries:
                if problem := problem_with_entry(entry):
                    raise ValueError(f"LabelSettings({name}=…): {entry!r} cannot be used: {problem}")
            object.__setattr__(self, name, entries)


def problem_with_entry(entry: object) -> str:
    """Returns why an entry cannot be used, in words; empty if it can."""
    if not isinstance(entry, str):
        return "it is no text. Write tool:GLOB, host:GLOB or path:GLOB."
    form, mark, pattern = entry.partition(":")
    if form not in FORMS or not mark or not pattern.strip():
        return (
            "it is none of tool:GLOB, host:GLOB and path:GLOB. Write, for example, tool:github__* or path:downloads/**."
        )
    return ""


def matches_any(entries: Iterable[str], form: str, values: Iterable[str]) -> bool:
    """Says whether an entry of a form matches one of the values."""
    patterns = [entry.partition(":")[2].strip().lower() for entry in entries if entry.startswith(f"{form}:")]
    return bool(patterns) and any(fnmatchcase(value.lower(), pattern) for value in values for pattern in patterns)


current_provenance: ContextVar[Provenance | None] = ContextVar("current_provenance", default=None)
"""What the run of the current call has read; None outside of runs, and where labels are off."""
