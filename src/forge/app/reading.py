"""Checks a document key by key: what is refused is named with the file, the place and a way on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from forge.core.arguments import article, json_type, near
from forge.core.errors import ErrorKind, ToolError

T = TypeVar("T")


class UnsetVariable(ToolError):
    """An entry names a variable of the environment that is not set. Whoever needs the entry is told."""


class Reader:
    """Of one document: whatever it refuses, it names the file and the place. Raises `ToolError`.

    Without an `environment`, variables are not looked up: `${NAME}` stays as it is. `files` says which parts of the
    document are from another file than `name`.
    """

    def __init__(
        self, name: str, environment: Mapping[str, str] | None = os.environ, files: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.environment = environment
        self.files = files or {}
        self.variables: dict[str, None] = {}  # that must be set, in the order of the document
        self.unset: dict[str, ToolError] = {}  # by the place of an entry, why it cannot be used here

    def variable(self, value: Any, place: str) -> str:
        name = self.text(value, place)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            # the value is not repeated: someone may have written the secret itself
            raise self.error(place, "expected the name of an environment variable, such as GITHUB_TOKEN")
        self.variables[name] = None
        return name

    def mapping(self, value: Any, place: str, keys: Iterable[str] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(place or "the document", f"expected a mapping, got {_kind(value)}")
        for key in value:
            at = f"{place}.{key}" if place else f"{key}"
            if not isinstance(key, str):
                raise self.error(at, "expected a text as key")
            if keys and key not in keys:
                raise self.error(at, "unknown key", key, keys)
        return value

    def sequence(self, value: Any, place: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.error(place, f"expected a list, got {_kind(value)}")
        return value

    def text(self, value: Any, place: str) -> str:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            got = "an empty text" if isinstance(value, str) else _kind(value)
            raise self.error(place, f"expected a text, got {got}")
        return value

    def words(self, value: Any, place: str) -> str:
        """A text that may be empty."""
        if not isinstance(value, str) or "\0" in value:
            raise self.error(place, f"expected a text, got {_kind(value)}")
        return value

    def number(self, value: Any, place: str, above: float) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not above < value < float("inf"):
            raise self.error(place, f"expected a number above {above:g}, got {value!r:.60}")
        return value

    def whole(self, value: Any, place: str, least: int = 0, words: str = "a whole number") -> int:
        """5.0 is one, as it is to JSON Schema."""
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not is_whole or not least <= value < 1e15:
            raise self.error(place, f"expected {words} from {least}, got {value!r:.60}")
        return int(value)

    def choice(self, value: Any, place: str, choices: Iterable[str], words: str = "") -> str:
        known = [*choices]
        if not isinstance(value, str) or value not in known:
            expected = words or f"one of {', '.join(known)}"
            raise self.error(place, f"expected {expected}, got {value!r:.60}", str(value), known)
        return value

    def error(self, place: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        return config_error(file_of(place, self.files, self.name), place, problem, written, known, example=True)

    def named(self, top: dict[str, Any], key: str, read: Callable[[Reader, Any, str], T]) -> dict[str, T]:
        """A mapping of names to entries of one kind."""
        return {name: read(self, one, f"{key}.{name}") for name, one in self.mapping(top.get(key, {}), key).items()}

    def named_and_set(self, top: dict[str, Any], key: str, read: Callable[[Reader, Any, str], T]) -> dict[str, T]:
        """The same without those that lack a variable: they are noted under `unset`."""

        def read_if_set(reader: Reader, value: Any, place: str) -> T | None:
            try:
                return read(reader, value, place)
            except UnsetVariable as error:
                self.unset[place] = error
                return None

        entries = self.named(top, key, read_if_set)
        return {name: one for name, one in entries.items() if one is not None}

    def pairs(self, value: Any, place: str) -> dict[str, str]:
        return {key: self.text(one, f"{place}.{key}") for key, one in self.mapping(value, place).items()}

    def flag(self, value: Any, place: str) -> bool:
        if not isinstance(value, bool):
            raise self.error(place, f"expected true or false, got {_kind(value)}")
        return value

    def texts(self, value: Any, place: str) -> tuple[str, ...]:
        """A list of texts; a single one counts as a list of one."""
        listed = [value] if isinstance(value, str) else self.sequence(value, place)
        return tuple(self.text(one, f"{place}[{index}]") for index, one in enumerate(listed))


def config_error(
    name: str, place: str, problem: str, written: str = "", known: Iterable[str] = (), *, example: bool = False
) -> ToolError:
    """What is wrong, where, what was probably meant, and how it is written."""
    from forge.app.config_schema import example_at  # only where something is wrong

    names = [str(one) for one in known]
    hint = near(written, names, 1) if written else []
    way = f"Did you mean {hint[0]!r}?" if hint else f"Known are {', '.join(sorted(names))}." if names else ""
    if example or not way:
        is_key = bool(hint) and place.endswith(written)
        way = f"{way} For example: {example_at(place, hint[0] if is_key else '')}".lstrip()
    return ToolError(f"{name}: {place}: {problem}", ErrorKind.CONFIG, way)


def file_of(place: str, files: Mapping[str, str], name: str) -> str:
    """The file that a part of a document is from; `name`, unless something else is known of it."""
    steps = re.split(r"[.\[]", place)
    for length in range(min(len(steps), 3), 0, -1):
        if found := files.get(".".join(steps[:length])):
            return found
    return name


def _kind(value: Any) -> str:
    return article(json_type(value))
