"""The private parts of pydantic that Forge uses: to refuse keys that a class does not know, and to read its words.

Pydantic drops unknown keys of a class inside the arguments in silence, and no setting from outside changes that. So the
core schemas of the classes are copied with another rule for unknown keys. Nothing of pydantic is replaced.
`tests/core/test_arguments_pydantic_private.py` checks each part with the installed version, and fails when the version
changes.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

VERIFIED = "2.14.3"  # the version of pydantic that all of this was verified with

# 1. `__pydantic_core_schema__` and `__pydantic_validator__` of a model: a model has no public way to either.
#
# 2. The form of a core schema: which parts are classes, where a class has its rule for unknown keys, and which parts
# hold no schemas that check something. `pydantic_core.core_schema` documents the form, and does not promise to keep it.

_CLASSES = ("model", "dataclass", "typed-dict")
_EXTRA = "extra_fields_behavior"  # pydantic's name for it in a core schema
_VALUES = frozenset({"metadata", "default", "expected", "cls", "serialization"})  # hold no schemas that check something

# 3. `_use_prebuilt=False`: the validators that the classes have already would drop unknown keys again.
#
# 4. The words in which an error lists the choices of a `Literal` or an enum: it has them in no other form.

_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""  # a text as Python writes it


def make_closed_validator(adapter: Any) -> Any:
    """Makes the validator of a type adapter or a model. Pydantic drops unknown keys in silence; this one refuses them.

    A class that sets `extra` itself, to "allow" or "ignore", keeps its own rule.
    """
    is_model = isinstance(adapter, type)
    schema = adapter.__pydantic_core_schema__ if is_model else adapter.core_schema
    if not _is_open(schema):
        return adapter.__pydantic_validator__ if is_model else adapter.validator
    from pydantic_core import SchemaValidator

    return SchemaValidator(_close_schema(schema), None, _use_prebuilt=False)


@cache
def make_closed_generator() -> Any:
    """Returns pydantic's generator of JSON Schemas, which marks closed models as closed."""
    from pydantic.json_schema import GenerateJsonSchema

    class Closed(GenerateJsonSchema):
        def model_schema(self, schema: Any) -> Any:
            return _show_closed(schema, super().model_schema(schema))

        def dataclass_schema(self, schema: Any) -> Any:
            return _show_closed(schema, super().dataclass_schema(schema))

        def typed_dict_schema(self, schema: Any) -> Any:
            return _show_closed(schema, super().typed_dict_schema(schema))

    return Closed


@lru_cache(maxsize=100)
def read_choices(words: str) -> tuple[Any, ...]:
    """Returns the choices that an error lists, such as `'a', 'b or c' or 3`."""
    from ast import literal_eval  # only where something is wrong

    separated = re.sub(rf"({_TEXT})| or ", lambda found: found[1] or ", ", words)
    try:
        return tuple(literal_eval(f"({separated},)"))
    except (ValueError, SyntaxError):  # such as a member of an enum: `<Color.RED: 'red'>`
        return tuple(literal_eval(text) for text in re.findall(_TEXT, words))


def _is_silent(schema: Any) -> bool:
    """Returns whether it is a class without a rule for other keys. One without settings takes its container's."""
    if schema.get("type") not in _CLASSES or _EXTRA in schema.get("config", {_EXTRA: ""}):
        return False
    return bool(schema.get("extra_behavior", "ignore") == "ignore")  # of a TypedDict, whose `extra_items` allow them


def _show_closed(schema: Any, shown: Any) -> Any:
    if shown.get("type") == "object" and _is_silent(schema) and _shows_every_name(schema):
        shown.setdefault("additionalProperties", False)
    return shown


def _is_open(schema: Any) -> bool:
    if isinstance(schema, dict):
        return _is_silent(schema) or any(_is_open(one) for key, one in schema.items() if key not in _VALUES)
    return isinstance(schema, list | tuple) and any(map(_is_open, schema))


def _close_schema(schema: Any) -> Any:
    """Returns a closed copy, since classes share their core schemas."""
    if isinstance(schema, dict):
        made = {key: one if key in _VALUES else _close_schema(one) for key, one in schema.items()}
        if _is_silent(schema):
            made["config"] = {**schema["config"], _EXTRA: "forbid"}
            if made["type"] == "typed-dict":
                made["extra_behavior"] = "forbid"
        return made
    return type(schema)(map(_close_schema, schema)) if type(schema) in (list, tuple) else schema


def _shows_every_name(schema: Any) -> bool:
    """Returns whether the JSON Schema has every name that the class takes: not where a field has several."""
    if schema["config"].get("validate_by_name") or schema["config"].get("populate_by_name"):
        return False
    inner = schema
    while isinstance(inner.get("schema"), dict):  # behind the class's own validators
        inner = inner["schema"]
    fields = inner.get("fields", ())
    each = fields.values() if isinstance(fields, dict) else fields
    return all(isinstance(field.get("validation_alias", ""), str) for field in each)
