"""Damages a right call in the ways models do: each takes the arguments and the schema, and gives the text of a call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Damage = Callable[[dict[str, Any], Mapping[str, Any]], str | None]


def number_as_text(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _change(arguments, lambda value: isinstance(value, int | float) and not isinstance(value, bool), str)


def boolean_as_text(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _change(arguments, lambda value: isinstance(value, bool), lambda value: str(value).lower())


def list_as_json_text(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _change(arguments, lambda value: isinstance(value, list), json.dumps)


def list_as_python_text(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _change(arguments, lambda value: isinstance(value, list) and bool(value), repr)


def object_as_json_text(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _change(arguments, lambda value: isinstance(value, dict), json.dumps)


def single_item_for_list(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    def fits(value: Any) -> bool:
        return isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list | dict)

    return _change(arguments, fits, lambda value: value[0])


def key_in_camel_case(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    def camel(key: str) -> str:
        return re.sub(r"_([a-z])", lambda found: found[1].upper(), key)

    return _rename(arguments, schema, camel)


def key_in_upper_case(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _rename(arguments, schema, str.upper)


def key_with_dashes(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _rename(arguments, schema, lambda key: key.replace("_", "-"))


def key_misspelt(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _rename(arguments, schema, lambda key: key[:2] + key[3:] if len(key) >= 6 else key)


def required_key_left_out(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    required = [key for key in schema.get("required", ()) if key in arguments]
    return json.dumps({key: value for key, value in arguments.items() if key != required[0]}) if required else None


def unknown_key_added(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return json.dumps({**arguments, "zz_reasoning": "because"})


def wrong_type(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    properties = schema.get("properties", {})
    for key in arguments:
        if properties.get(key, {}).get("type") in ("integer", "number", "boolean"):
            return json.dumps({**arguments, key: "not that"})
    return None


def enum_in_other_case(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    for key, value in arguments.items():
        choices = schema.get("properties", {}).get(key, {}).get("enum", ())
        if isinstance(value, str) and value in choices and value.swapcase() != value:
            return json.dumps({**arguments, key: value.swapcase()})
    return None


def in_a_code_fence(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return f"```json\n{json.dumps(arguments)}\n```"


def trailing_comma(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return json.dumps(arguments)[:-1] + ",}" if arguments else None


def python_literals(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return repr(arguments) if arguments else None


def single_quotes(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return json.dumps(arguments).replace('"', "'") if arguments else None


def prose_after(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return f'{json.dumps(arguments)}\n\nThis call gives you the "answer" that you asked for.'


def prose_before(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return f"Here are the arguments of the call:\n{json.dumps(arguments)}"


def encoded_twice(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return json.dumps(json.dumps(arguments))


def closing_brace_missing(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return json.dumps(arguments)[:-1] if arguments else None


def closing_brace_twice(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return json.dumps(arguments) + "}"


def wrapped_in_arguments(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _wrap("arguments", arguments, schema)


def wrapped_in_parameters(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _wrap("parameters", arguments, schema)


def wrapped_in_input(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    return _wrap("input", arguments, schema)


def null_for_left_out(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    for key, shown in schema.get("properties", {}).items():
        if key not in arguments and key not in schema.get("required", ()) and "type" in shown:
            return json.dumps({**arguments, key: None})
    return None


def cut_off(arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    text = json.dumps(arguments)
    return text[: len(text) // 2] if len(text) > 10 else None


DAMAGES: dict[str, Damage] = {
    one.__name__.replace("_", " "): one
    for one in (
        number_as_text,
        boolean_as_text,
        list_as_json_text,
        list_as_python_text,
        object_as_json_text,
        single_item_for_list,
        key_in_camel_case,
        key_in_upper_case,
        key_with_dashes,
        key_misspelt,
        required_key_left_out,
        unknown_key_added,
        wrong_type,
        enum_in_other_case,
        in_a_code_fence,
        trailing_comma,
        python_literals,
        single_quotes,
        prose_after,
        prose_before,
        encoded_twice,
        closing_brace_missing,
        closing_brace_twice,
        wrapped_in_arguments,
        wrapped_in_parameters,
        wrapped_in_input,
        null_for_left_out,
        cut_off,
    )
}

# nobody can tell what was meant: a value is missing or wrong, or more may have followed
_NO_READING = {"required key left out", "unknown key added", "wrong type", "cut off"}


def has_one_reading(damage: str, arguments: dict[str, Any], schema: Mapping[str, Any], text: str) -> bool:
    """Whether the damaged text can be meant in one way only. Judged by the damage, not by what Forge does with it."""
    if damage == "key misspelt":  # another optional name may be meant, or a shorter one
        known = set(schema.get("properties", ()))
        [gone] = arguments.keys() - json.loads(text).keys()
        return gone in schema.get("required", ()) and gone in known
    if damage == "enum in other case":
        sent = json.loads(text)
        [changed] = [key for key, value in arguments.items() if sent[key] != value]
        choices = schema["properties"][changed]["enum"]
        return [str(one).casefold() for one in choices].count(arguments[changed].casefold()) == 1
    if damage == "single quotes":
        return "'" not in json.dumps(arguments) and '\\"' not in json.dumps(arguments)
    return damage not in _NO_READING


def _wrap(key: str, arguments: dict[str, Any], schema: Mapping[str, Any]) -> str | None:
    """None where the tool has such a parameter: then nothing is damaged."""
    return None if key in schema.get("properties", {}) else json.dumps({key: arguments})


def _change(arguments: dict[str, Any], fits: Callable[[Any], bool], change: Callable[[Any], Any]) -> str | None:
    for key, value in arguments.items():
        if fits(value):
            return json.dumps({**arguments, key: change(value)})
    return None


def _rename(arguments: dict[str, Any], schema: Mapping[str, Any], change: Callable[[str], str]) -> str | None:
    known = schema.get("properties", {})
    for key in arguments:
        new = change(key)
        if key in known and new != key and new not in known:
            return json.dumps({new if one == key else one: value for one, value in arguments.items()})
    return None
