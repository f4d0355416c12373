"""Checks a document key by key: what is refused is named with the file, the place and a way on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from forge.core.arguments import article, json_type, near
from forge.core.errors import ErrorKind, ToolError

T = TypeVar("T")


class Reader:
    """Of one document: whatever it refuses, it names the file and the place. Raises `ToolError`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def variable(self, value: Any, place: str) -> str:
        name = self.text(value, place)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            # the value is not repeated: someone may have written the secret itself
            raise self.error(place, "expected the name of an environment variable, such as GITHUB_TOKEN")
        return name

    def mapping(self, value: Any, place: str, keys: Iterable[str] = (), later: Iterable[str] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(place or "the document", f"expected a mapping, got {article(json_type(value))}")
        for key in value:
            at = f"{place}.{key}" if place else f"{key}"
            if not isinstance(key, str):
                raise self.error(at, "expected a text as key")
            if key in later:
                raise config_error(self.name, at, "not supported by this version yet", advice="Leave it out for now.")
            if keys and key not in keys:
                raise self.error(at, "unknown key", key, keys)
        return value

    def sequence(self, value: Any, place: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.error(place, f"expected a list, got {article(json_type(value))}")
        return value

    def text(self, value: Any, place: str) -> str:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            got = "an empty text" if isinstance(value, str) else article(json_type(value))
            raise self.error(place, f"expected a text, got {got}")
        return value

    def number(self, value: Any, place: str, above: float) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not above < value < float("inf"):
            raise self.error(place, f"expected a number above {above:g}, got {value!r:.60}")
        return value

    def error(self, place: str, problem: str, written: str = "", known: Iterable[str] = ()) -> ToolError:
        return config_error(self.name, place, problem, written, known)

    def named(self, top: dict[str, Any], key: str, read: Callable[[Reader, Any, str], T]) -> dict[str, T]:
        """A mapping of names to entries of one kind."""
        return {name: read(self, one, f"{key}.{name}") for name, one in self.mapping(top.get(key, {}), key).items()}

    def pairs(self, value: Any, place: str) -> dict[str, str]:
        return {key: self.text(one, f"{place}.{key}") for key, one in self.mapping(value, place).items()}

    def flag(self, value: Any, place: str) -> bool:
        if not isinstance(value, bool):
            raise self.error(place, f"expected true or false, got {article(json_type(value))}")
        return value

    def texts(self, value: Any, place: str) -> tuple[str, ...]:
        """A list of texts; a single one counts as a list of one."""
        listed = [value] if isinstance(value, str) else self.sequence(value, place)
        return tuple(self.text(one, f"{place}[{index}]") for index, one in enumerate(listed))


def config_error(
    name: str, place: str, problem: str, written: str = "", known: Iterable[str] = (), advice: str = ""
) -> ToolError:
    """What is wrong, where, and what was probably meant."""
    names = [str(one) for one in known]
    hint = near(written, names, 1) if written else []
    known_ones = f"Known are {', '.join(sorted(names))}." if names else "Mend the file."
    return ToolError(
        f"{name}: {place}: {problem}",
        ErrorKind.CONFIG,
        advice or (f"Did you mean {hint[0]!r}?" if hint else known_ones),
    )
