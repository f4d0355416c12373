"""Which texts must never be seen: registered secrets, and what merely looks like one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any

from forge.core.plain import plain

MASK = "[secret]"
LONGEST = 128 * 1024  # characters of one text in an event; the rest is cut and counted
DEEPEST = 100  # levels of data that are looked through
MOST = 50_000  # values inside one part of an event: its arguments, its result's data; the rest is left out and counted
MOST_CUTS = 1_000  # places where a text was cut
SHORTEST = 8  # a shorter value would mask ordinary words

_LOOKALIKES = r"""(?x)
      \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}                       # model and payment providers
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \bxox[abprs]-[A-Za-z0-9-]{10,}                          # Slack
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                           # AWS
    | \bAIza[\w-]{30,}                                        # Google
    | \beyJ[\w-]{8,512}\.eyJ[\w-]{8,}\.[\w-]{8,}                 # a JWT
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[^-]{0,8192}+(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----)?
    | (?<=://)[^\s/:@]{1,256}:[^\s/@]{1,256}(?=@)             # user:password@ in a URL
    | (?i:\bbearer\s+)[\w.~+/=-]{16,}
    | (?i:\b(?:api[_-]?key|secret|token|passw(?:or)?d|authorization)\b["']?\s{0,3}[=:]\s{0,3}["']?)[^\s"',;&]{8,512}
    """
_TELLING_NAMES = r"(?i)(?:api[_-]?key|secret|token|passw(?:or)?d|authorization|credential|private[_-]?key)"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """On first use: a program that only lists its tools masks nothing."""
    return re.compile(pattern)


class Secrets:
    """Values that were registered as secret. Results mask these alone; events and logs mask look-alikes as well."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None  # None: there are none
        self.add(*values)

    def add(self, *values: str) -> None:
        """Register values, also as JSON spells them. Too short ones are refused: they would mask words."""
        for value in values:
            if len(value) < SHORTEST:
                raise ValueError(f"a secret of {len(value)} characters cannot be masked: {SHORTEST} are the least")
        spellings = {spelling for value in values for spelling in (value, *_escaped(value))}
        self._values = tuple(sorted({*self._values, *spellings}, key=len, reverse=True))
        self.pattern = re.compile("|".join(map(re.escape, self._values))) if self._values else None

    def learn(self, values: Iterable[str]) -> None:
        """Those that are long enough to be masked; others would mask ordinary words."""
        self.add(*(value for value in values if len(value) >= SHORTEST))

    def mask(self, text: str) -> str:
        """Replace every registered secret, and the beginning of one where a text was cut."""
        if self.pattern is None:
            return text
        text = self.pattern.sub(MASK, text)
        return self._mask_cut(text) if "…" in text else text

    def _mask_cut(self, text: str) -> str:
        """Others shorten before we see it: `hunter2hun…` gives most of a secret away."""
        pieces = text.split("…")
        if len(pieces) > MOST_CUTS:
            return text
        return "…".join([*map(self._without_beginning, pieces[:-1]), pieces[-1]])

    def _without_beginning(self, piece: str) -> str:
        for value in self._values:
            for length in range(min(len(value) - 1, len(piece)), SHORTEST - 1, -1):
                if piece.endswith(value[:length]):
                    return f"{piece[:-length]}{MASK}"
        return piece

    def mask_all(self, text: str) -> str:
        """Replace registered secrets and whatever looks like one: for events and logs."""
        return _compiled(_LOOKALIKES).sub(MASK, self.mask(text))

    def mask_everything(self, value: Any) -> Any:
        """Registered secrets and look-alikes, wherever they stand in plain data; of much data, the beginning."""
        return self.mask_value(value, lookalikes=True)

    def _mask_for_events(self, text: str) -> str:
        if len(text) <= LONGEST:
            return self.mask_all(text)
        longest = max(map(len, self._values), default=0)
        kept = self.mask(text[: LONGEST + longest])[:LONGEST]  # masked before it is cut
        return f"{_compiled(_LOOKALIKES).sub(MASK, kept)}[… {len(text) - LONGEST} more characters]"

    def mask_value(self, value: Any, *, lookalikes: bool = False) -> Any:
        """The same for every text inside plain data; under a key such as `password`, the whole value."""
        if type(value) is str:
            return self._mask_for_events(value) if lookalikes else self.mask(value)
        if lookalikes:
            return _Walk(self._mask_for_events, MOST, telling=_compiled(_TELLING_NAMES)).of(value, 0)
        return _Walk(self.mask, None, keeps_objects=self.pattern is None).of(value, 0)


class _Walk:
    """Through data, once: `most` values of it, however they are nested, so that nobody waits for a log."""

    __slots__ = ("keeps_objects", "left", "mask", "telling")

    def __init__(
        self,
        mask: Callable[[str], str],
        most: int | None,
        *,
        telling: re.Pattern[str] | None = None,
        keeps_objects: bool = False,
    ) -> None:
        self.mask = mask
        self.left = float("inf") if most is None else most
        self.telling = telling  # keys whose texts are secret
        self.keeps_objects = keeps_objects  # of other kinds: there is nothing to find in them

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self.mask(value)
        if value is None or kind is int or kind is bool or kind is float:
            return value
        if depth > DEEPEST and not isinstance(value, str):
            return "[nested too deeply to be shown]"
        if kind is dict or isinstance(value, Mapping):
            return self._mapping(value, depth + 1)
        if kind is list or isinstance(value, list | tuple | set | frozenset):
            return self._sequence(value, depth + 1)
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, int | float) or self.keeps_objects:
            return value
        return self.of(plain(value), depth + 1)  # a Path, a date, an object

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number, (key, item) in enumerate(value.items()):
            if self.left <= 0:
                found["[…]"] = f"[{len(value) - number} more]"
                break
            self.left -= 1
            name = str(key)
            hides = self.telling is not None and isinstance(item, str) and item and self.telling.search(name)
            found[self.mask(name)] = MASK if hides else self.of(item, depth)
        return found

    def _sequence(self, value: Collection[Any], depth: int) -> list[Any]:
        found: list[Any] = []
        for number, item in enumerate(value):
            if self.left <= 0:
                found.append(f"[… {len(value) - number} more]")
                break
            self.left -= 1
            found.append(self.of(item, depth))
        return found


def _escaped(value: str) -> tuple[str, str]:
    """The value as it stands inside a JSON text, both ways."""
    import json  # only where secrets exist

    return json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
