"""A section of `forge.yaml` is a class, and each of its keys is a field with a `Key`.

The class is all that is said about them. `make reference` makes pydantic models of the classes (`kinds`), and from
them `forge.schema.json`: the check of every command, the examples in errors, the reference page and
`forge config show --explain` use that file. Only then are the annotations evaluated: commands load no pydantic, which
takes 300 ms, more than half of what `forge tool list` takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

if TYPE_CHECKING:
    from forge.project.config.reader import ConfigReader

Schema = dict[str, Any]


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class PlainSection:
    """A section whose typed value is a dictionary of its keys, or what `from_keys` makes of it.

    Its docstring is what the schema says of it.
    """

    schema: ClassVar[Schema] = {}  # beside that of the keys

    def __init_subclass__(
        cls,
        *,
        example: Any = None,
        alone: str = "",
        disabled: str = "",
        is_open: bool = False,
        rules: Iterable[Schema] = (),
    ) -> None:
        """Sets what holds for the section as a whole.

        alone: the key that a plain value stands for.
        disabled: the key with which the section is ignored; then only the names of its keys are checked.
        is_open: keys that are not declared are kept as they are.
        rules: JSON Schema, such as `exactly_one`; its `errorMessage` is what a person reads.
        """
        said: Schema = {
            "examples": [example] if example is not None else None,
            "x-alone": alone,
            "x-disabled": disabled,
            "additionalProperties": is_open,
            "allOf": [*cls.schema.get("allOf", ()), *rules],
        }
        cls.schema = {**cls.schema, **{key: one for key, one in said.items() if one}}

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """Returns the typed value of checked keys."""
        return values


@dataclass(kw_only=True, eq=False, repr=False)
class Section(PlainSection):
    """The typed values of a section; they never change. Each section is a dataclass.

    The methods that are the same for all are here: `frozen=True` and `eq=True` would compile them for each section,
    which takes 9 ms of every command.
    """

    key_path: str = ""  # where it is written

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(kw_only=True, eq=False, repr=False, match_args=False)(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return {**vars(self), "key_path": ""} == {**vars(other), "key_path": ""}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def replace(self, **changes: Any) -> Self:
        return replace(self, **changes)

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """Returns the section; fields that are absent have their defaults."""
        typed = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
        return cls(**typed, key_path=key_path)


def exactly_one(names: tuple[str, ...], message: str, *, or_empty: bool = False) -> Schema:
    """Returns the rule that exactly one of several keys must be there; with `or_empty`, or no key at all."""
    one: Schema = {"oneOf": [{"required": [name]} for name in names], "errorMessage": f"expected {message}"}
    return {"anyOf": [{"maxProperties": 0}, one]} if or_empty else one


def belongs_to(names: tuple[str, ...], other: str, message: str) -> Schema:
    """Returns the rule that keys have a meaning only beside another key."""
    return {"dependentRequired": {name: [other] for name in names}, "errorMessage": message}
