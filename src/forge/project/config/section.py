"""A section of `forge.yaml` is a class, and each of its keys is a field with a `key`.

The class is all that is said about them: its instances are the typed values, `read` checks a document, and `schema` is
the JSON Schema, from which editors, the examples in errors, the reference page and `forge config show --explain` work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar, Self, dataclass_transform

from forge.project.config.kinds import Kind, Schema
from forge.project.config.reader import ConfigReader, UnsetVariable


class Key:
    """A key: the kind of its value, what it says, and how it is written. A section says the latter two itself.

    name: in the document, where the field has another.
    default: the typed value where the key is absent; by default the empty one of its kind.
    required: the key must be there; a text tells what to write.
    unset: what `forge config show` shows where nobody says it.
    variable: of the environment, that says it, too.
    layers: the layers whose file may have it; for keys of the document itself.
    """

    def __init__(
        self,
        kind: Kind,
        description: str = "",
        example: Any = None,
        *,
        name: str = "",
        default: Any = ...,
        required: bool | str = False,
        unset: Any = None,
        variable: str = "",
        layers: str = "user, project",
    ) -> None:
        self.kind, self.description, self.example = kind, description, example
        self.name, self.field, self.default, self.required = name, "", default, required
        self.unset, self.variable, self.layers = unset, variable, layers

    def schema(self) -> Schema:
        made = self.kind.schema()
        if self.description:
            made["description"] = self.description
        if self.example is not None:
            made["examples"] = [self.example]
        if isinstance(self.default, str | int):
            made["default"] = self.default
        return made


key: Any = Key  # to type checkers a field is what its value is


class ExactlyOne:
    """Exactly one of several keys must be there. With `or_empty`, an empty section is fine, too."""

    def __init__(self, names: tuple[str, ...], expected: str, *, or_empty: bool = False) -> None:
        self.names, self.expected, self.or_empty = names, expected, or_empty

    def check(self, reader: ConfigReader, said: Mapping[str, Any], key_path: str) -> None:
        if sum(name in said for name in self.names) != 1 and (said or not self.or_empty):
            raise reader.error(key_path, f"expected {self.expected}")

    def schema(self) -> Schema:
        one = {"oneOf": [{"required": [name]} for name in self.names]}
        return {"anyOf": [{"maxProperties": 0}, one]} if self.or_empty else one


class BelongsTo:
    """Keys that have a meaning only beside another key."""

    def __init__(self, names: tuple[str, ...], other: str, problem: str) -> None:
        self.names, self.other, self.problem = names, other, problem

    def check(self, reader: ConfigReader, said: Mapping[str, Any], key_path: str) -> None:
        for name in self.names:
            if name in said and self.other not in said:
                raise reader.error(f"{key_path}.{name}", self.problem)

    def schema(self) -> Schema:
        return {"dependentRequired": {name: [self.other] for name in self.names}}


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Section:
    """The typed values of a section; they never change. Its docstring is what the schema says of it.

    Not a dataclass: those are made by compiling code, and `forge tool list` would wait for it.
    """

    keys: ClassVar[dict[str, Key]] = {}  # by their names in the document
    _fields: ClassVar[dict[str, bool]] = {"key_path": False}  # whether a value must be given
    _alone: ClassVar[str] = ""
    _is_open: ClassVar[bool] = False
    _checks: ClassVar[tuple[ExactlyOne | BelongsTo, ...]] = ()
    _example: ClassVar[Any] = None

    key_path: str = ""  # where it is written; two that differ in nothing else are equal

    def __init_subclass__(
        cls, *, alone: str = "", is_open: bool = False, checks: Iterable[Any] = (), example: Any = None
    ) -> None:
        """`alone`: the key that a text stands for. `is_open`: keys that are not declared are kept as they are."""
        cls._alone, cls._is_open = alone or cls._alone, is_open or cls._is_open
        cls._checks, cls._example = (*cls._checks, *checks), example or cls._example
        cls.keys, cls._fields = dict(cls.keys), dict(cls._fields)
        for field in cls.__annotations__:
            one = cls.__dict__.get(field)
            cls._fields[field] = isinstance(one, Key) and bool(one.required)
            if isinstance(one, Key):
                one.name, one.field = one.name or field, field
                cls.keys[one.name] = one
                setattr(cls, field, getattr(one.kind, "empty", None) if one.default is ... else one.default)

    def __init__(self, **given: Any) -> None:
        missing = [name for name, must in self._fields.items() if must and name not in given]
        if wrong := [*missing, *(given.keys() - self._fields)]:
            raise TypeError(f"{type(self).__name__}: {wrong[0]} is {'missing' if missing else 'unknown'}")
        self.__dict__.update({name: tuple(one) if isinstance(one, list) else one for name, one in given.items()})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} never changes; use replace({name}=…)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and type(self) is type(other) and self.fields() == other.fields()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={one!r}' for name, one in vars(self).items())})"

    def fields(self) -> dict[str, Any]:
        """Returns the values by the names of the fields, without the key path."""
        return {name: getattr(self, name) for name in self._fields if name != "key_path"}

    def replace(self, **changes: Any) -> Self:
        return type(self)(**{**vars(self), **changes})

    @classmethod
    def read(cls, reader: ConfigReader, value: Any, key_path: str) -> Any:
        """Returns the typed value of what is written at a key path. Raises `ToolError`."""
        is_alone = cls._alone != "" and isinstance(value, str)
        said = reader.mapping({cls._alone: value} if is_alone else value, key_path, () if cls._is_open else cls.keys)
        for one in cls.keys.values():
            if one.required and one.name not in said:
                more = f": {one.required}" if isinstance(one.required, str) else ""
                raise reader.error(key_path, f"{one.name} is missing{more}")
        for check in cls._checks:
            check.check(reader, said, key_path)
        values, unset = {}, None
        for name, written in said.items():
            if (declared := cls.keys.get(name)) is None:
                values[name] = written
                continue
            at = key_path if is_alone else f"{key_path}.{name}" if key_path else name
            try:
                values[declared.field] = declared.kind.read(reader, written, at)
            except UnsetVariable as error:  # a mistake further down is worse
                unset = unset or error
        if unset is not None:
            raise unset
        return cls.from_keys(reader, values, key_path)

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """Returns the typed value of fields that were read; fields that are absent have their defaults."""
        return cls(**values, key_path=key_path)

    @classmethod
    def schema(cls) -> Schema:
        properties = {name: one.schema() for name, one in cls.keys.items()}
        made: Schema = {"type": "object", "properties": properties}
        if not cls._is_open:
            made["additionalProperties"] = False
        if required := [name for name, one in cls.keys.items() if one.required]:
            made["required"] = required
        if cls.__doc__:
            made["description"] = " ".join(cls.__doc__.partition("\n\n")[0].split())
        if cls._example is not None:
            made["examples"] = [cls._example]
        for check in cls._checks:
            made |= check.schema()
        if not cls._alone:
            return made
        said: Schema = {name: made.pop(name) for name in ("description", "examples") if name in made}
        return {"anyOf": [properties[cls._alone], made], **said}


class PlainSection(Section):
    """A section whose typed value is a dictionary of its keys, for another reader."""

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        return values


class DeferredSection:
    """A section in a module that is loaded when it is needed: most documents do not have it."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def section(self) -> type[Section]:
        found: type[Section] = getattr(import_module(f"forge.project.config.{self.module}"), self.name)
        return found

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        return self.section().read(reader, value, key_path)

    def schema(self) -> Schema:
        return self.section().schema()


def section_of(kind: Kind) -> type[Section] | None:
    """Returns the section that a key holds; None if its value is not a section."""
    if isinstance(kind, DeferredSection):
        return kind.section()
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None
