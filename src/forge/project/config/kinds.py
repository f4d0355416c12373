"""Kinds of values: each says how a value is read, and beside it the JSON Schema that accepts the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from forge.project.config.reader import VARIABLE, ConfigReader, UnsetVariable, is_secret, kind_of

Schema = dict[str, Any]

NOTHING: Mapping[str, Any] = MappingProxyType({})
BLANK = r"\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_TEXT = rf"^[^\u0000]*[^\u0000{BLANK}][^\u0000]*$"
_MOST = 10**15


class Kind(Protocol):
    """A kind of value, or a section."""

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        """Returns the typed value. Raises `ToolError`."""

    def schema(self) -> Schema:
        """Returns the JSON Schema that accepts what `read` accepts."""


class Text:
    """A text; not empty, unless it may be `blank`. All of it matches the `pattern`; `expected` is for people.

    Where it is `numeric`, a whole number is read as a text.
    """

    empty: Any = ""  # the typed value of a key that is absent

    def __init__(self, pattern: str = "", expected: str = "", *, blank: bool = False, numeric: bool = False) -> None:
        self.pattern, self.expected, self.blank, self.numeric = pattern, expected, blank, numeric

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        given = str(int(value)) if self.numeric and _is_whole(value) else value
        text = reader.text(given, key_path, blank=self.blank)
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise reader.error(key_path, f"expected {self.expected}, got {text!r:.60}")
        return text

    def schema(self) -> Schema:
        pattern = f"^{self.pattern}$" if self.pattern else r"^[^\u0000]*$" if self.blank else _TEXT
        text = {"type": "string", "pattern": pattern}
        return {"anyOf": [text, {"type": "integer"}]} if self.numeric else text


class FilePath(Text):
    """A path, relative to the file that names it."""

    empty = None

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Path:
        return reader.path(reader.text(value, key_path))


class Filled(Text):
    """A text in which `${NAME}` stands for a variable of the environment."""

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        return reader.fill_in(reader.text(value, key_path), key_path)


class Variable(Text):
    """The name of an environment variable, never a value. `look_up`: read as its value, which is a secret."""

    def __init__(self, *, look_up: bool = False) -> None:
        super().__init__(VARIABLE)
        self.look_up = look_up

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        name = reader.text(value, key_path)
        if not re.fullmatch(VARIABLE, name):
            # the value is not repeated: someone may have written the secret itself
            raise reader.error(key_path, "expected the name of an environment variable, such as GITHUB_TOKEN")
        reader.variables[name] = None
        return reader.look_up(name, None, key_path, secret=True) if self.look_up else name


class Argument:
    """A word of a command line, or a header: perhaps empty; a number is read as a text."""

    def read(self, reader: ConfigReader, value: Any, key_path: str, *, secret: bool = False) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        return reader.fill_in(reader.text(value, key_path), key_path, secret=secret) if value != "" else ""

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "number"}, {"const": ""}, Text().schema()]}


class WholeNumber:
    """A whole number; 5.0 is one, as it is to JSON Schema."""

    def __init__(self, least: int = 0, expected: str = "a whole number") -> None:
        self.least, self.expected = least, expected

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> int:
        if not _is_whole(value) or not self.least <= value < _MOST:
            raise reader.error(key_path, f"expected {self.expected} from {self.least}, got {value!r:.60}")
        return int(value)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "exclusiveMaximum": _MOST}


class Number:
    """A number above 0; with `zero`, from 0. `null` is accepted where it is `nullable`."""

    def __init__(self, *, zero: bool = False, nullable: bool = False) -> None:
        self.zero, self.nullable = zero, nullable

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        if value is None and self.nullable:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (0 <= value < _MOST if self.zero else 0 < value < float("inf")):
            raise reader.error(key_path, f"expected a number {'from' if self.zero else 'above'} 0, got {value!r:.60}")
        return value

    def schema(self) -> Schema:
        bounds = {"minimum": 0, "exclusiveMaximum": _MOST} if self.zero else {"exclusiveMinimum": 0}
        return {"type": ["number", "null"] if self.nullable else "number", **bounds}


class Flag:
    empty: Any = False

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        if not isinstance(value, bool):
            raise reader.error(key_path, f"expected true or false, got {kind_of(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


class Choice:
    """One of a few words. `also` is another way to write one of them: the value, and the word."""

    empty = ""

    def __init__(self, *words: str, also: tuple[Any, str] | None = None, expected: str = "") -> None:
        self.words, self.also = words, also
        self.expected = expected or f"one of {', '.join(words)}"

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        if self.also is not None and value is self.also[0]:
            return self.also[1]
        if not isinstance(value, str) or value not in self.words:
            raise reader.error(key_path, f"expected {self.expected}, got {value!r:.60}", str(value), self.words)
        return value

    def schema(self) -> Schema:
        return {"enum": [*self.words] if self.also is None else [*self.words, self.also[0]]}


class ListOf:
    """A list. With `single`, a text alone counts as a list of one."""

    empty: tuple[Any, ...] = ()

    def __init__(self, of: Kind, *, single: bool = False) -> None:
        self.of, self.single = of, single

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> list[Any]:
        listed = [value] if self.single and isinstance(value, str) else reader.sequence(value, key_path)
        return [self.of.read(reader, one, f"{key_path}[{index}]") for index, one in enumerate(listed)]

    def schema(self) -> Schema:
        inner = self.of.schema()
        listed: Schema = {"type": "array", "items": inner}
        more = {"examples": [inner["examples"]]} if "examples" in inner else {}
        return {"anyOf": [inner, listed]} if self.single else {**listed, **more}


class MappingOf:
    """A mapping of names to values of one kind. A section that lacks a variable is left out, and noted as unset.

    `sample` is a name for the example. Names match the `pattern`, or the `problem` is reported.
    """

    empty = NOTHING

    def __init__(self, of: Kind, sample: str = "", pattern: str = "", problem: str = "") -> None:
        self.of, self.sample, self.pattern, self.problem = of, sample, pattern, problem

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> dict[str, Any]:
        found = {}
        for name, one in reader.mapping(value, key_path).items():
            at = f"{key_path}.{name}"
            if self.pattern and not re.fullmatch(self.pattern, name):
                raise reader.error(at, self.problem)
            try:
                found[name] = self.of.read(reader, one, at)
            except UnsetVariable as error:
                if isinstance(self.of, Text):
                    raise
                reader.unset[at] = error
        return {name: one for name, one in found.items() if one is not None}

    def schema(self) -> Schema:
        inner = self.of.schema()
        made: Schema = {"type": "object", "additionalProperties": inner}
        if self.pattern:
            made["propertyNames"] = {"pattern": f"^{self.pattern}$"}
        return {**made, "examples": [{self.sample: inner["examples"][0]}]} if self.sample else made


class Pairs(MappingOf):
    """Names and texts. A value whose name says so is a secret, also where it is written out."""

    def __init__(self) -> None:
        super().__init__(Argument())

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> dict[str, str]:
        found = {}
        for name, one in reader.mapping(value, key_path).items():
            found[name] = Argument().read(reader, one, f"{key_path}.{name}", secret=is_secret(name))
            if is_secret(name) and reader.environment is not None:
                reader.secrets.append(found[name])
        return found


class Either:
    """A section where a mapping is written, a plain kind otherwise."""

    def __init__(self, plain: Kind, section: Kind) -> None:
        self.plain, self.section = plain, section

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        return (self.section if isinstance(value, dict) else self.plain).read(reader, value, key_path)

    def schema(self) -> Schema:
        return {"anyOf": [self.plain.schema(), self.section.schema()]}


class AsWritten:
    """A value that another module reads: it is stored unchanged. `accepts` is its schema."""

    def __init__(self, accepts: Schema | None = None) -> None:
        self.accepts = accepts or {}

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        if self.accepts.get("type") == "string" and not isinstance(value, str):
            raise reader.error(key_path, f"expected a string, got {kind_of(value)}")
        return reader.mapping(value, key_path) if self.accepts.get("type") == "object" else value

    def schema(self) -> Schema:
        return dict(self.accepts)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
