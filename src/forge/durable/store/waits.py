"""Defines what a run waits for: a kind, a call and details. Only this file knows the keys of the details.

A user's tool may name a kind of its own (`Waiting("…", kind="payment", order=7)`) and give any details. So details
are read by properties, which find nothing in a wait of another kind or form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from forge.core.errors import Waiting

APPROVAL, IN_WORDS, BACKGROUND, TIME, RUN = "approval", "question", "background", "time", "run"  # kinds

IN_WORDS_BEGIN = f'[{{"kind":"{IN_WORDS}"'
"""How the stored waits of a run begin that asks in words: it waits for nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Something a run waits for. `call` is the id of the call that waits; empty where the run itself does."""

    kind: str
    call: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def for_approval(cls, question_id: str) -> Self:
        """Waits for a person's answer to a stored question."""
        return cls(kind=APPROVAL, detail={"question": question_id})

    @classmethod
    def for_words(cls, text: str) -> Self:
        """Waits for a person's answer in words."""
        return cls(kind=IN_WORDS, detail={"text": text})

    @classmethod
    def for_background(cls, worker: str) -> Self:
        """Waits for background work that this worker holds."""
        return cls(kind=BACKGROUND, detail={"worker": worker})

    @classmethod
    def for_run(cls, run_id: str) -> Self:
        """Waits for the end of another run."""
        return cls(kind=RUN, detail={"run": run_id})

    @classmethod
    def for_time(cls, until: float, since: float, key: str, reason: str = "") -> Self:
        """Waits for a time. `key` is that of the call, which may be repeated without starting its wait again."""
        detail = {"until": until, "since": since, "key": key}
        return cls(kind=TIME, detail={**detail, "reason": reason} if reason else detail)

    @classmethod
    def of_call(cls, call: str, what: Mapping[str, Any]) -> Self:
        """Returns the wait of a call, from what its `Waiting` says."""
        return cls(kind=what.get("kind", ""), call=call, detail={key: what[key] for key in what if key != "kind"})

    def as_error(self, message: str) -> Waiting:
        """Returns the error that a call raises to wait."""
        return Waiting(message, kind=self.kind, **self.detail)

    @property
    def question_id(self) -> str:
        """The id of the stored question; empty: it waits for no approval."""
        return self._read(APPROVAL, "question")

    @property
    def run_id(self) -> str:
        """The id of the other run; empty: it waits for none."""
        return self._read(RUN, "run")

    @property
    def worker(self) -> str:
        """The worker with the background work; empty: it waits for none."""
        return self._read(BACKGROUND, "worker")

    @property
    def text(self) -> str:
        """The question that needs an answer in words; empty: there is none."""
        return self._read(IN_WORDS, "text")

    @property
    def until(self) -> float | None:
        """The time; None: it waits for none."""
        found = self.detail.get("until") if self.kind == TIME else None
        return float(found) if isinstance(found, int | float) else None

    def _read(self, kind: str, key: str) -> str:
        return str(self.detail.get(key, "")) if self.kind == kind else ""


def asks_in_words(waits: Iterable[Wait]) -> bool:
    """Returns whether one of them is a question that needs an answer in words."""
    return any(wait.kind == IN_WORDS for wait in waits)


def find_times(waits: Iterable[Wait]) -> dict[str, tuple[float, float]]:
    """Returns start and end of the waits for a time, by the keys of their calls, for the run to carry."""
    found = [wait.detail for wait in waits if wait.kind == TIME]
    return {one["key"]: (one["since"], one["until"]) for one in found if one.keys() >= {"key", "since", "until"}}
