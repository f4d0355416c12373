"""Writes the definition of a tool in the format of each provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from forge.core.arguments.old_drafts import NAMED_KEYWORDS, modernise_schema
from forge.core.arguments.outline import flatten_schema, is_flat
from forge.core.arguments.references import find_reference
from forge.core.spec import JsonSchema, ToolSpec, once_for_each_spec

_NOT_STRICT = {
    "default",
    "format",
    "minLength",
    "maxLength",
    "examples",
    "uniqueItems",
    "patternProperties",
    "deprecated",
}
_GEMINI = {
    *("type", "format", "description", "nullable", "enum", "items", "properties", "required", "anyOf"),
    *("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern", "propertyOrdering", "title"),
}
_OF_DATA = {"default", "enum", "const", "required"}  # values, not schemas


def openai(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": _parameters(spec)}
    return {"type": "function", "function": function}


def openai_strict(spec: ToolSpec) -> dict[str, Any]:
    """Sets `strict: true` where the schema fits OpenAI's rules for it; plain where it does not."""
    plain = openai(spec)
    if not is_flat(spec.parameters):
        return plain  # its rules cannot say which parameters belong together
    try:
        parameters = _strict(plain["function"]["parameters"])
    except _DoesNotFit:
        return plain
    return {"type": "function", "function": {**plain["function"], "parameters": parameters, "strict": True}}


def anthropic(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": _parameters(spec)}


def gemini(spec: ToolSpec) -> dict[str, Any]:
    """Spells a spec for Gemini, which takes a subset of JSON Schema without references."""
    definition: dict[str, Any] = {"name": spec.name, "description": spec.description}
    parameters = _parameters(spec)
    if parameters["properties"]:
        definition["parameters"] = _gemini(parameters, parameters, ())
    return definition


def mcp(spec: ToolSpec) -> dict[str, Any]:
    reads = not spec.permissions - {"read"} and not spec.irreversible
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": {"type": "object", "properties": {}, **spec.parameters},
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": not reads,
            "idempotentHint": spec.idempotent,
            "openWorldHint": "network" in spec.permissions,
        },
    }


DIALECTS: Mapping[str, Callable[[ToolSpec], dict[str, Any]]] = {
    "openai": openai,
    "openai-strict": openai_strict,
    "anthropic": anthropic,
    "gemini": gemini,
    "mcp": mcp,
}


class _DoesNotFit(Exception):
    pass


def _parameters(spec: ToolSpec) -> dict[str, Any]:
    return dict(_make_parameters(spec))


@once_for_each_spec  # providers ask for all definitions again whenever a tool is added
def _make_parameters(spec: ToolSpec) -> dict[str, Any]:
    """Returns one flat object schema, since providers refuse `oneOf`, `$ref` and the like at the root."""
    schema = modernise_schema(spec.parameters)
    if schema is not spec.parameters:
        schema = {key: value for key, value in schema.items() if key != "$schema"}  # of the older draft
    return {"type": "object", "properties": {}, **_shorten(_inline_references(flatten_schema(schema)))}


def _shorten(schema: Any, *, is_schema: bool = True) -> Any:
    """Leaves out what costs tokens and tells a model nothing: empty defaults, examples, that no other keys are taken.

    Calls are still checked against the whole schema.
    """
    if isinstance(schema, list | tuple):
        return [_shorten(one) for one in schema]
    if isinstance(schema, float) and schema.is_integer():
        return int(schema)
    if not isinstance(schema, Mapping):
        return schema
    if is_schema:
        schema = _leave_null_out(schema)
    return {
        key: _shorten_number(value)
        if is_schema and key in _OF_DATA
        else _shorten(value, is_schema=not is_schema or key not in NAMED_KEYWORDS)
        for key, value in schema.items()
        if not is_schema or not _tells_nothing(key, value, schema)
    }


def _shorten_number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _leave_null_out(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Writes an optional value without the null that stands for its absence: a model leaves it out instead."""
    branches = schema.get("anyOf")
    if "default" not in schema or schema["default"] is not None or not isinstance(branches, list):
        return schema
    others = [one for one in branches if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    if len(others) == len(branches) or not others:
        return schema
    if len(others) > 1:
        return {**rest, "anyOf": others}
    only = others[0]
    return {**only, **rest} if isinstance(only, Mapping) and not only.keys() & rest.keys() else schema


def _tells_nothing(key: str, value: Any, schema: Mapping[str, Any]) -> bool:
    if key == "default":
        return value is None or value in (False, 0, "", [], {})
    if key == "minLength":
        return value in (0, 1)
    if key in ("minimum", "exclusiveMinimum"):  # the default shows which numbers are meant
        default = schema.get("default")
        return value in (0, 1) and isinstance(default, int | float) and default >= value
    if key == "additionalProperties":
        return value is False or (value is True and schema.get("type") == "object" and "properties" not in schema)
    return key == "examples"


def _inline_references(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Puts a definition that is used once into its place."""
    shelf = schema.get("$defs")
    if not isinstance(shelf, Mapping):
        return schema
    used = Counter(_find_references(schema))
    once = {f"#/$defs/{name}": one for name, one in shelf.items() if used[f"#/$defs/{name}"] == 1}
    if not once or not all(isinstance(one, Mapping) for one in once.values()):
        return schema
    kept = {name: one for name, one in shelf.items() if f"#/$defs/{name}" not in once}
    inlined: dict[str, Any] = _replace_references({**schema, "$defs": kept}, once, len(once))
    return inlined if kept else {key: value for key, value in inlined.items() if key != "$defs"}


def _find_references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(reference := value.get("$ref"), str):
            yield reference
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for one in value:
        yield from _find_references(one)


def _replace_references(value: Any, once: Mapping[str, Any], deeper: int) -> Any:
    """Replaces references. `deeper`: how many definitions can still be inside each other; it ends every circle."""
    if isinstance(value, Mapping):
        target = once.get(value["$ref"]) if isinstance(value.get("$ref"), str) else None
        if target is not None and deeper:
            beside = {key: one for key, one in value.items() if key != "$ref"}
            return _replace_references({**target, **beside}, once, deeper - 1)
        return {key: _replace_references(one, once, deeper) for key, one in value.items()}
    return [_replace_references(one, once, deeper) for one in value] if isinstance(value, list | tuple) else value


def _strict(schema: Any) -> Any:
    """Makes every property required (optional ones nullable) and allows no others."""
    if not isinstance(schema, Mapping):
        return schema
    kind = schema.get("type")
    if isinstance(kind, list) and "object" in kind:
        return {"anyOf": [_strict({**schema, "type": one} if one == "object" else {"type": one}) for one in kind]}
    if kind == "object" and (schema.get("additionalProperties", False) is not False or not _is_closed(schema)):
        raise _DoesNotFit  # a free-form object
    if "oneOf" in schema or "allOf" in schema or "not" in schema or "prefixItems" in schema:
        raise _DoesNotFit
    out = {key: value for key, value in schema.items() if key not in _NOT_STRICT}
    if "anyOf" in out:
        out["anyOf"] = [_strict(branch) for branch in out["anyOf"]]
    if "items" in out:
        out["items"] = _strict(out["items"])
    for shelf in ("$defs", "definitions"):
        if shelf in out:
            out[shelf] = {name: _strict(item) for name, item in out[shelf].items()}
    if out.get("type") == "object":
        required = set(schema.get("required", ()))
        properties = schema.get("properties", {})
        out["properties"] = {
            name: _strict(item) if name in required else _nullable(_strict(item)) for name, item in properties.items()
        }
        out["required"] = list(properties)
        out["additionalProperties"] = False
    elif not {"type", "anyOf", "$ref", "enum", "const"} & out.keys():
        raise _DoesNotFit  # anything at all
    return out


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Returns whether the schema lists its properties; without any, strict would allow none."""
    return "properties" in schema


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if {"type": "null"} in schema.get("anyOf", ()):
        return schema
    described = {key: schema[key] for key in ("description",) if key in schema}
    bare = {key: value for key, value in schema.items() if key != "description"}
    return {**described, "anyOf": [*bare.get("anyOf", [bare]), {"type": "null"}]}


def _gemini(schema: Any, root: JsonSchema, inside: tuple[str, ...]) -> Any:
    if not isinstance(schema, Mapping):
        return {"type": "string"}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in inside:
            return {"type": "object", "description": "the same structure again"}
        target = find_reference(root, reference)
        return {**_gemini(target, root, (*inside, reference)), **_pick_keys(schema, ("description",))}
    out = _pick_keys(schema, _GEMINI)
    if isinstance(kind := out.get("type"), list):
        named = [one for one in kind if one != "null"]
        out["type"] = named[0] if named else "string"
        out |= {"nullable": True} if "null" in kind else {}
    if "const" in schema:
        out["enum"] = [schema["const"]]
    if "enum" in out:
        out["enum"], out["type"] = [str(one) for one in out["enum"]], "string"
    if out.get("format") not in (None, "date-time", "enum", "int32", "int64", "float", "double"):
        del out["format"]
    branches = [branch for branch in schema.get("anyOf", schema.get("oneOf", ())) if branch != {"type": "null"}]
    if branches:
        out["nullable"] = len(branches) < len(schema.get("anyOf", schema.get("oneOf", ())))
        out.pop("anyOf", None)
        shown = [_gemini(branch, root, inside) for branch in branches]
        out |= shown[0] if len(shown) == 1 else {"anyOf": shown}
    if "items" in schema or "prefixItems" in schema:
        first = next(iter(schema.get("prefixItems", ())), {"type": "string"})
        out["items"] = _gemini(schema.get("items") or first, root, inside)
    if "properties" in schema:
        out["properties"] = {name: _gemini(item, root, inside) for name, item in schema["properties"].items()}
    return out


def _pick_keys(schema: Mapping[str, Any], keys: Any) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key in keys}
