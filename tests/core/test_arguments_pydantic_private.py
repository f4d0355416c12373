"""What Forge knows of pydantic beyond its public interface is so in the installed version."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator
from typing_extensions import TypedDict

from forge.core.arguments import pydantic_private
from forge.core.arguments.pydantic_private import make_closed_validator, read_choices

SOURCE = Path(pydantic_private.__file__).parents[2]


class Model(BaseModel):
    name: str = ""


class Allows(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str = ""


@dataclass
class Data:
    name: str = ""


class Typed(TypedDict, total=False):
    name: str


def test_the_installed_version_is_the_one_that_the_private_parts_were_verified_with() -> None:
    assert version("pydantic") == pydantic_private.VERIFIED, (
        f"pydantic {version('pydantic')} is installed. Check each part of src/forge/core/arguments/pydantic_private.py"
        " with the source of this version. Then set VERIFIED."
    )


def test_nothing_private_of_pydantic_is_used_in_another_file() -> None:
    private = ("__pydantic_core_schema__", "__pydantic_validator__", "_use_prebuilt", "pydantic._", "pydantic_core._")
    found = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in SOURCE.rglob("*.py")
        for name in private
        if path.name != "pydantic_private.py" and name in path.read_text().replace("__get_pydantic_core_schema__", "")
    }
    assert found == set()


def test_a_model_has_its_core_schema_and_its_validator() -> None:
    made: Any = Model
    assert made.__pydantic_core_schema__["type"] == "model"
    assert isinstance(made.__pydantic_validator__, SchemaValidator)


@pytest.mark.parametrize(("one", "kind"), [(Model, "model"), (Data, "dataclass"), (Typed, "typed-dict")])
def test_a_core_schema_names_its_class_and_has_its_rule_where_it_is_looked_for(one: Any, kind: str) -> None:
    schema: Any = TypeAdapter(one).core_schema
    assert schema["type"] == kind
    assert "extra_fields_behavior" not in schema["config"]
    allows: Any = TypeAdapter(Allows).core_schema
    assert allows["config"]["extra_fields_behavior"] == "allow"


def test_the_validators_of_the_classes_would_drop_unknown_keys_again() -> None:
    schema = pydantic_private._close_schema(TypeAdapter(list[Model]).core_schema)
    assert SchemaValidator(schema).validate_json('[{"other": 1}]') == [Model()]
    with pytest.raises(ValidationError, match="not permitted"):
        SchemaValidator(schema, None, _use_prebuilt=False).validate_json('[{"other": 1}]')


@pytest.mark.parametrize("one", [Model, Data, Typed])
def test_unknown_keys_of_a_class_inside_are_refused(one: Any) -> None:
    validator = make_closed_validator(TypeAdapter(dict[str, list[one]]))
    assert validator.validate_json('{"a": [{"name": "x"}]}')
    with pytest.raises(ValidationError, match=r"(?i)not permitted|unexpected"):
        validator.validate_json('{"a": [{"name": "x", "other": 1}]}')
    assert TypeAdapter(dict[str, list[one]]).validate_json('{"a": [{"other": 1}]}')  # what pydantic itself does


def test_a_class_that_allows_other_keys_still_does() -> None:
    validator = make_closed_validator(TypeAdapter(list[Allows]))
    (made,) = validator.validate_json('[{"other": 1}]')
    assert made.other == 1


class Color(Enum):
    RED = "red"
    OR = "this or that"


@pytest.mark.parametrize(
    ("wanted", "choices"),
    [
        (Literal["a", "b or c", "it's", 3], ("a", "b or c", "it's", 3)),
        (Literal["only"], ("only",)),
        (Literal["a", Color.RED], ("a", "red")),
        (Color, ("red", "this or that")),
    ],
    ids=str,
)
def test_an_error_lists_its_choices_in_words_that_are_read(wanted: Any, choices: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError) as found:
        TypeAdapter(wanted).validate_json('"none of them"')
    assert read_choices(found.value.errors()[0]["ctx"]["expected"]) == choices
