"""Masks registered secrets, and text that merely looks like one."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from forge.core.plain_values import number, plain

MASK = "[secret]"
LONGEST_TEXT = 128 * 1024  # characters of one text in an event; the rest is cut and counted
DEEPEST_DATA = 100  # levels of data that are looked through
MOST_VALUES = 50_000  # values in one part of an event: its arguments, its result's data; the rest is only counted
MOST_CUTS = 1_000  # cuts of a text that are checked
LONGEST_LOOKALIKE = 4_096  # characters beyond a cut that are looked at, so that no token is cut in two
LONGEST_BEFORE = 200  # characters before a piece of text that say what it is
LONGEST_WAITING = 16 * 1024  # characters of one text that wait for their continuation
MOST_REPLACED = 32  # values of a source that changes which are still masked: each more slows down all masking
SHORTEST = 8  # a shorter value would mask ordinary words
LEAST_NUMBER = 10 ** (SHORTEST - 2)  # a number below has too few characters to be a secret, its sign included


class HoldsSecrets(Protocol):
    """A tool or a source of tools that holds secrets: headers of a server, the URL of a webhook. They are masked."""

    @property
    def secrets(self) -> Iterable[str]: ...


def secrets_of(holder: object) -> Iterable[str]:
    """Returns the secrets of a `HoldsSecrets`; () of anything else.

    They are read by name, so that a wrapper may forward them: isinstance does not see that, from Python 3.12 on.
    """
    found: Iterable[str] = getattr(holder, "secrets", ())
    return found


_registering = threading.Lock()  # several threads read secrets again: without it, a value could be lost


class Secrets:
    """Values that were registered as secret. Results mask these alone; events and logs mask look-alikes as well.

    Args:
        values: the secrets, of 8 characters or more.

    Example:
        >>> Secrets(["correct horse"]).mask("it is correct horse")
        'it is [secret]'
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: tuple[str, ...] = ()  # of both of these, in all spellings
        self._lasting: frozenset[str] = frozenset()
        self._changing: dict[object, tuple[tuple[str, ...], ...]] = {}  # the last ones of each
        self.pattern: re.Pattern[str] | None = None  # None: there are none
        self.add(*values)

    def add(self, *values: str) -> None:
        """Registers values, also as JSON spells them. Too short ones are refused: they would mask words."""
        for value in values:
            if len(value) < SHORTEST:
                raise ValueError(f"a secret of {len(value)} characters cannot be masked: the minimum is {SHORTEST}")
        with _registering:
            self._lasting = self._lasting.union(values)
            self._compile()

    def learn(self, values: Iterable[str]) -> None:
        """Registers the values that are long enough; shorter ones would mask ordinary words."""
        self.add(*(value for value in values if len(value) >= SHORTEST))

    def learn_next(self, source: object, values: Iterable[str]) -> None:
        """Registers the values that a source has now, in place of its older ones. The last ones stay registered."""
        now = tuple(value for value in values if len(value) >= SHORTEST)
        with _registering:
            known = self._changing.get(source, ())
            if now and now not in known[-1:]:
                self._changing = {**self._changing, source: (*known, now)[-MOST_REPLACED:]}
                self._compile()

    def _compile(self) -> None:
        changing = (value for kept in self._changing.values() for values in kept for value in values)
        found = {spelling for value in (*self._lasting, *changing) for spelling in (value, *_json_spellings(value))}
        self._values = tuple(sorted(found, key=len, reverse=True))
        self.pattern = re.compile("|".join(map(re.escape, self._values))) if self._values else None

    def include(self, others: Secrets) -> None:
        """Masks the secrets of these others, too."""
        if others is not self and (new := set(others._values) - set(self._values)):
            self.add(*new)

    def mask(self, text: str) -> str:
        """Replaces every registered secret, and the beginning of one where a text was cut."""
        if self.pattern is None:
            return text
        text = self.pattern.sub(MASK, text)
        return self._mask_cut(text) if "…" in text else text

    def _mask_cut(self, text: str) -> str:
        """Masks the beginning of a secret at the end of a text that other code cut: `hunter2hun…`."""
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
        """Replaces registered secrets and whatever looks like one: for events and logs."""
        return _mask_lookalikes(self.mask(text))

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns where registered secrets and look-alikes stand, in order."""
        from forge.core.secrets.find_secrets import find_spans

        registered = [] if self.pattern is None else [found.span() for found in self.pattern.finditer(text)]
        return sorted([*registered, *find_spans(text)])

    def find_beginning(self, text: str) -> int:
        """Returns where a registered secret begins that is incomplete at the end of the text; else its length."""
        longest, last = 0, text[-1:]
        for value in self._values:
            length = value.rfind(last, 0, len(value) - 1) + 1 if last else 0
            while length > longest and not text.endswith(value[:length]):
                length = value.rfind(last, 0, length - 1) + 1
            longest = max(longest, length)
        return len(text) - longest

    def find_whole(self, raw: bytes, place: int) -> int:
        """Returns the place, or the beginning of a registered secret that stands across it."""
        for value in self._values:
            written = value.encode()
            found = raw.find(written, max(place - len(written) + 1, 0), place + len(written) - 1)
            if 0 <= found < place:
                place = found
        return place

    @property
    def longest(self) -> int:
        """The length of the longest registered secret, in bytes."""
        return max((len(value.encode()) for value in self._values), default=0)

    def mask_everything(self, value: Any) -> Any:
        """Masks registered secrets and look-alikes anywhere in plain data; of much data, only the beginning is kept."""
        return self.mask_value(value, lookalikes=True)

    def _mask_for_events(self, text: str) -> str:
        if len(text) <= LONGEST_TEXT:
            return self.mask_all(text)
        longest = max(map(len, self._values), default=0)
        beginning = self.mask_all(text[: LONGEST_TEXT + max(longest, LONGEST_LOOKALIKE)])[
            :LONGEST_TEXT
        ]  # masked before it is cut
        return f"{beginning}[… {len(text) - LONGEST_TEXT} more characters]"

    def mask_value(self, value: Any, *, lookalikes: bool = False) -> Any:
        """Masks every text inside plain data; under a key such as `password`, the whole value."""
        if type(value) is str:
            return self._mask_for_events(value) if lookalikes else self.mask(value)
        if lookalikes:
            return _DataMasker(self._mask_for_events, MOST_VALUES, by_name=True).mask_any(value, 0)
        return _DataMasker(self.mask, None, keeps_objects=self.pattern is None).mask_any(value, 0)

    def __repr__(self) -> str:
        return "<Secrets>"  # never one of them, and not how many


class PieceMasker:
    """Masks a text that comes in pieces. The end of a piece waits if a secret may begin there.

    Args:
        secrets: the registered secrets.

    Example:
        >>> pieces = PieceMasker(Secrets(["correct horse"]))
        >>> [pieces.take("it is corr"), pieces.take("ect horse, "), pieces.take("I think"), pieces.end()]
        ['it is ', '[secret], ', 'I think', '']
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._shown = ""  # the last characters before, as they came: a name in them says what follows
        self._waiting = ""

    def take(self, piece: str) -> str:
        """Returns what can be shown after this piece."""
        whole = self._shown + self._waiting + piece
        spans = self._secrets.find_spans(whole)
        open_spans = [start for start, end in spans if end == len(whole)]
        start = min(self._secrets.find_beginning(whole), _find_open_lookalike(whole), *open_spans)
        start = max(start, len(self._shown))
        return self._show(whole, start if len(whole) - start <= LONGEST_WAITING else len(whole), spans)

    def end(self) -> str:
        """Returns the rest. The beginning of a secret is masked from eight characters on."""
        whole = self._shown + self._waiting
        shown = self._show(whole, len(whole), self._secrets.find_spans(whole)) if self._waiting else ""
        return self._secrets.mask(f"{shown}…")[:-1] if shown else ""

    def _show(self, whole: str, end: int, spans: list[tuple[int, int]]) -> str:
        """Returns the text between what was shown before and `end`, without the secrets. The rest waits."""
        parts, done = list[str](), len(self._shown)
        for start, stop in spans:
            if stop > done and max(start, done) < end:
                parts += [whole[done : max(start, done)], MASK]
                done = stop
        parts.append(whole[done:end])
        end = max(done, end)
        self._shown, self._waiting = whole[:end][-LONGEST_BEFORE:], whole[end:]
        return "".join(parts)


class _DataMasker:
    """Masks data in one pass over at most `most` values, however they are nested, so that logging stays fast."""

    __slots__ = ("by_name", "keeps_objects", "left", "mask")

    def __init__(
        self,
        mask: Callable[[str], str],
        most: int | None,
        *,
        by_name: bool = False,
        keeps_objects: bool = False,
    ) -> None:
        self.mask = mask
        self.left = float("inf") if most is None else most
        self.by_name = by_name  # what stands under a key such as `password`, or behind such a flag, is secret
        self.keeps_objects = keeps_objects  # of other kinds: there is nothing to find in them

    def mask_any(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self.mask(value)
        if kind is int:
            return value if -LEAST_NUMBER < value < LEAST_NUMBER else self._mask_number(value)
        if value is None or kind is bool or kind is float:
            return value
        if depth > DEEPEST_DATA and not isinstance(value, str):
            return "[nested too deeply to be shown]"
        if kind is dict or isinstance(value, Mapping):
            return self._mapping(value, depth + 1)
        if kind is list or isinstance(value, list | tuple | set | frozenset):
            return self._sequence(value, depth + 1)
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, int | float) or self.keeps_objects:
            return value
        return self.mask_any(plain(value), depth + 1)  # a Path, a date, an object

    def _mask_number(self, value: int) -> Any:
        """Masks a number whose digits are, or contain, a secret."""
        shown = number(value)
        hidden = self.mask(shown)
        return value if hidden == shown else hidden

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for position, (key, item) in enumerate(value.items()):
            if self.left <= 0:
                found["[…]"] = f"[{len(value) - position} more]"
                break
            self.left -= 1
            name = str(key)
            hides = self.by_name and item and _hides(name, item)
            found[self.mask(name)] = MASK if hides else self.mask_any(item, depth)
        return found

    def _sequence(self, value: Collection[Any], depth: int) -> list[Any]:
        found: list[Any] = []
        flag: Any = None
        logs_in = False  # `docker login -p password`; of most other commands -p takes something else
        for position, item in enumerate(value):
            if self.left <= 0:
                found.append(f"[… {len(value) - position} more]")
                break
            self.left -= 1
            hides = self.by_name and type(flag) is str and flag[:1] == "-" and _follows(flag, item, logs_in)
            found.append(MASK if hides else self.mask_any(item, depth))
            flag = item
            logs_in = logs_in or (type(item) is str and item == "login")  # another kind may compare in its own way
        return found


def _mask_lookalikes(text: str) -> str:
    from forge.core.secrets.find_secrets import mask_lookalikes  # a program that only lists its tools masks nothing

    return mask_lookalikes(text, MASK)


def _find_open_lookalike(text: str) -> int:
    from forge.core.secrets.find_secrets import find_open_start

    return find_open_start(text)


def _hides(name: str, item: Any) -> bool:
    """Returns whether the name of an entry marks its value as secret."""
    if type(item) is dict or item is True:
        return False
    from forge.core.secrets.find_secrets import kind_of

    kind = kind_of(name)
    if not kind or isinstance(item, str):
        return bool(kind)
    if isinstance(item, list | tuple):
        return all(isinstance(one, str) for one in item)
    return kind == "password" and isinstance(item, int)


def _follows(flag: str, item: Any, logs_in: bool) -> bool:
    """Returns whether the flag before an argument makes it a secret: `--password hunter2`, `-u user:password`."""
    from forge.core.secrets.find_secrets import is_login, takes_secret

    kind = "password" if flag == "-p" and logs_in else takes_secret(flag)
    if not kind or not isinstance(item, str) or item.startswith("-"):
        return False
    return is_login(item) if kind == "login" else len(item) >= 4


def _json_spellings(value: str) -> tuple[str, str]:
    """Returns the two spellings of a value inside a JSON text."""

    return json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
