"""Makes pydantic models of the sections of `forge.yaml`, and of them the JSON Schema that commands read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from forge.project import config as package
from forge.project.config.kinds import Of
from forge.project.config.section import PlainSection, Schema


def model_of(section: type[PlainSection]) -> type[BaseModel]:
    """Makes the pydantic model of a section: of its fields, those that have a `Key`."""
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(section, localns=_names(), include_extras=True).items():
        if (extra := _extra_of(hint)) is not None:
            default = getattr(section, name, None)
            is_plain = isinstance(default, str | int) and default != ""
            fields[name] = (_with_models(hint), ... if "x-required" in extra else default if is_plain else None)

    def finish(schema: Schema, model: type[BaseModel]) -> None:
        schema["description"] = " ".join((section.__doc__ or "").partition("\n\n")[0].split())
        if section.from_keys.__func__ is not PlainSection.from_keys.__func__:  # type: ignore[attr-defined]
            schema["x-class"] = f"{section.__module__}:{section.__qualname__}"
        for name, one in model.model_fields.items():
            if one.alias:
                schema["properties"][one.alias]["x-field"] = name
        schema |= section.schema

    config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=finish)
    made: Any = create_model(section.__name__, __config__=config, **fields)
    return cast("type[BaseModel]", made)


def _names() -> dict[str, Any]:
    """Returns the names that annotations use: the kinds, and the sections of every module."""
    modules = [vars(import_module(f"{package.__name__}.{one.name}")) for one in iter_modules(package.__path__)]
    return {name: one for module in modules for name, one in module.items() if not name.startswith("_")}


def _extra_of(hint: Any) -> dict[str, Any] | None:
    """Returns what the `Key` of a field says; None for a field that is no key of the document."""
    for one in reversed(getattr(hint, "__metadata__", ())):
        if isinstance(one, FieldInfo) and isinstance(one.json_schema_extra, dict):
            return one.json_schema_extra
    return None


def _with_models(hint: Any) -> Any:
    """Returns an annotation with the models of its sections, without `None`: this is an absent key, not null."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        written = next((one.written for one in inner if isinstance(one, Of)), inner[0])
        return Annotated[(_with_models(written), *(one for one in inner[1:] if not isinstance(one, Of)))]
    if origin in (Union, UnionType):
        return Union[tuple(_with_models(one) for one in inner if one is not NoneType)]  # noqa: UP007
    if origin in (list, tuple, Mapping):
        return origin[tuple(map(_with_models, inner))]
    return model_of(hint) if isinstance(hint, type) and issubclass(hint, PlainSection) else hint


# Writes the schema of a document without references.


_OUTER = ("description", "examples", "default", "x-field", "x-layers", "x-required", "x-unset", "x-variable")


class _InOrder(GenerateJsonSchema):
    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        """Keeps examples as they are written."""
        return value


def make_schema(declaration: type[PlainSection]) -> Schema:
    """Returns the JSON Schema of a document."""
    made = model_of(declaration).model_json_schema(schema_generator=_InOrder)
    found: Schema = _inline(made, made.pop("$defs", {}))
    return found


def _inline(node: Any, shared: Mapping[str, Schema]) -> Any:
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        found = {**shared[node["$ref"].rpartition("/")[2]], **node}
        del found["$ref"]
    else:
        found = dict(node)
    found.pop("title", None)
    if found.get("default", ...) is None:
        del found["default"]
    if "properties" in found:
        found["properties"] = {name: _inline(one, shared) for name, one in found["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if keyword in found:
            found[keyword] = _inline(found[keyword], shared)
    if "anyOf" in found:
        found["anyOf"] = [_inline(one, shared) for one in found["anyOf"]]
    return _wrap(_add_example(found))


def _add_example(node: Schema) -> Schema:
    """Adds the example of a list or of named entries, from that of its entries."""
    sample, inner = node.pop("x-sample", ""), node.get("items", node.get("additionalProperties"))
    if "examples" not in node and isinstance(inner, dict) and "examples" in inner and (sample or "items" in node):
        node["examples"] = [{sample: inner["examples"][0]} if sample else inner["examples"]]
    return node


def _wrap(node: Schema) -> Schema:
    """Adds the other ways to write a section: as a plain value, or disabled, when only the names of keys count."""
    alone, flag = node.get("x-alone"), node.get("x-disabled")
    if alone is None and flag is None:
        return node
    outer = {name: node.pop(name) for name in _OUTER if name in node}
    if alone is not None:
        plain = {name: one for name, one in node["properties"][alone].items() if name not in _OUTER}
        return {"anyOf": [plain, node], **outer}
    is_disabled = {"required": [flag], "properties": {flag: {"const": True}}}
    names = {"enum": sorted(node["properties"])}
    return {"type": "object", "propertyNames": names, "if": is_disabled, "else": node, **outer}
