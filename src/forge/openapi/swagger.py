"""Converts a Swagger 2.0 document to OpenAPI 3.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHODS = ("get", "put", "post", "delete", "options", "head", "patch")

_SECTIONS = {
    "#/definitions/": "#/components/schemas/",
    "#/parameters/": "#/components/parameters/",
    "#/responses/": "#/components/responses/",
}
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_FLOWS = {"application": "clientCredentials", "accessCode": "authorizationCode"}
_OF_PARAMETERS = frozenset({"name", "in", "description", "required", "collectionFormat", "allowEmptyValue", "$ref"})
_STYLES = {"ssv": "spaceDelimited", "pipes": "pipeDelimited", "tsv": "tabDelimited"}


def is_swagger(root: Any) -> bool:
    return isinstance(root, Mapping) and "openapi" not in root and str(root.get("swagger")) in ("2.0", "2")


def convert_swagger(root: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the document as OpenAPI 3.0. Parts of an unexpected type stay unchanged."""
    return _Conversion(root).document()


class _Conversion:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.parameters = _as_mapping(root.get("parameters"))

    def document(self) -> dict[str, Any]:
        root = self.root
        shared = {
            name: self._parameter(raw)
            for name, raw in self.parameters.items()
            if _as_mapping(raw).get("in") not in ("body", "formData")  # these are copied into their operations
        }
        responses = _as_mapping(root.get("responses"))
        components = {
            "schemas": {name: _schema(raw) for name, raw in _as_mapping(root.get("definitions")).items()},
            "parameters": shared,
            "responses": {name: self._response(raw, root) for name, raw in responses.items()},
            "securitySchemes": {
                name: _security(raw) for name, raw in _as_mapping(root.get("securityDefinitions")).items()
            },
        }
        out = {"openapi": "3.0.3", "info": root.get("info", {}), "components": components}
        if servers := _servers(root):
            out["servers"] = servers
        out |= {key: root[key] for key in ("security", "tags") if key in root}
        out["paths"] = {path: self._path(raw) for path, raw in _as_mapping(root.get("paths")).items()}
        return out

    def _path(self, raw: Any) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        around = _as_list(raw.get("parameters"))
        out: dict[str, Any] = {key: value for key, value in raw.items() if key not in (*METHODS, "parameters")}
        if isinstance(out.get("$ref"), str):
            out["$ref"] = _reference(out["$ref"])
        out["parameters"] = [self._parameter(one) for one in around if not self._is_body(one)]
        bodies = [one for one in around if self._is_body(one)]
        return out | {key: self._operation(raw[key], bodies) for key in METHODS if key in raw}

    def _operation(self, raw: Any, around: list[Any]) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        listed = _as_list(raw.get("parameters"))
        out = {
            key: value
            for key, value in raw.items()
            if key not in ("parameters", "responses", "consumes", "produces", "schemes")
        }
        out["parameters"] = [self._parameter(one) for one in listed if not self._is_body(one)]
        own = [self._resolve(one) for one in listed if self._is_body(one)]
        if body := self._body(own or [self._resolve(one) for one in around], raw):
            out["requestBody"] = body
        if "schemes" in raw and (servers := _servers({**self.root, "schemes": raw["schemes"]})):
            out["servers"] = servers
        out["responses"] = {code: self._response(one, raw) for code, one in _as_mapping(raw.get("responses")).items()}
        return out

    def _body(self, parameters: list[Mapping[str, Any]], operation: Mapping[str, Any]) -> dict[str, Any] | None:
        consumes = self._media("consumes", operation)
        for raw in parameters:
            if raw.get("in") == "body":
                media = consumes or ["application/json"]
                content = {"schema": _schema(raw.get("schema", {}))}
                return {**_copy_common(raw), "content": dict.fromkeys(media, content)}
        fields = {str(raw["name"]): raw for raw in parameters if raw.get("in") == "formData" and "name" in raw}
        if not fields:
            return None
        has_file = any(raw.get("type") == "file" for raw in fields.values())
        media = [one for one in consumes if one in (_FORM, _MULTIPART)] or [_MULTIPART if has_file else _FORM]
        required = [name for name, raw in fields.items() if raw.get("required") is True]
        schema: dict[str, Any] = {"type": "object", "properties": {name: _form(raw) for name, raw in fields.items()}}
        if required:
            schema["required"] = required
        encoding = {name: found for name, raw in fields.items() if (found := _list_style(raw, "formData"))}
        chosen = [_MULTIPART] if has_file and _MULTIPART in media else media
        content = {"schema": schema, **({"encoding": encoding} if encoding else {})}
        return {"required": bool(required), "content": dict.fromkeys(chosen, content)}

    def _response(self, raw: Any, operation: Mapping[str, Any]) -> Any:
        if not isinstance(raw, Mapping) or "$ref" in raw:
            return _rewrite_reference(raw)
        out = {key: value for key, value in raw.items() if key in ("description",)}
        if "schema" in raw:
            media = self._media("produces", operation) or ["application/json"]
            content = {"schema": _schema(raw["schema"])}
            out["content"] = dict.fromkeys(media, content)
        return out

    def _media(self, key: str, operation: Mapping[str, Any]) -> list[str]:
        listed = operation[key] if key in operation else self.root.get(key)
        return [one for one in _as_list(listed) if isinstance(one, str)]

    def _parameter(self, raw: Any) -> Any:
        if not isinstance(raw, Mapping) or "$ref" in raw:
            return _rewrite_reference(raw)
        out = {key: raw[key] for key in ("name", "in", "required", "description", "allowEmptyValue") if key in raw}
        out["schema"] = _schema({key: value for key, value in raw.items() if key not in _OF_PARAMETERS})
        return out | _list_style(raw, str(raw.get("in")))

    def _is_body(self, raw: Any) -> bool:
        return self._resolve(raw).get("in") in ("body", "formData")

    def _resolve(self, raw: Any) -> Mapping[str, Any]:
        found = _as_mapping(raw)
        reference = found.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/parameters/"):
            return _as_mapping(self.parameters.get(reference.removeprefix("#/parameters/").replace("~1", "/")))
        return found


def _servers(root: Mapping[str, Any]) -> list[dict[str, str]]:
    base = root.get("basePath")
    base = base.rstrip("/") if isinstance(base, str) else ""
    host = root.get("host")
    if not isinstance(host, str) or not host:
        return [{"url": base}] if base else []
    schemes = [one for one in _as_list(root.get("schemes")) if one in ("https", "http")] or ["https"]
    return [{"url": f"{scheme}://{host}{base}"} for scheme in sorted(schemes, reverse=True)]  # https first


def _list_style(raw: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Returns how the items of a list are joined."""
    if raw.get("type") != "array":
        return {}
    how = raw.get("collectionFormat", "csv")
    if how == "multi":
        return {"style": "form", "explode": True}
    if how in _STYLES:
        return {"style": _STYLES[how], "explode": False}
    return {"style": "simple" if location in ("path", "header") else "form", "explode": False}


def _form(raw: Mapping[str, Any]) -> dict[str, Any]:
    described = {"description": raw["description"]} if "description" in raw else {}
    made = _schema({key: value for key, value in raw.items() if key not in _OF_PARAMETERS})
    return {**(made if isinstance(made, dict) else {}), **described}


def _schema(raw: Any) -> Any:
    """Converts a schema: files become binary texts, discriminators objects, and references are rewritten."""
    if isinstance(raw, list):
        return [_schema(one) for one in raw]
    if not isinstance(raw, Mapping):
        return raw
    out = {key: _inside(key, value) for key, value in raw.items()}
    if out.get("type") == "file":
        out |= {"type": "string", "format": "binary"}
    if out.pop("x-nullable", False) is True:
        out["nullable"] = True
    return out


def _inside(key: str, value: Any) -> Any:
    if key == "$ref" and isinstance(value, str):
        return _reference(value)
    if key == "discriminator" and isinstance(value, str):
        return {"propertyName": value}
    if key in ("properties", "patternProperties", "definitions"):
        return {name: _schema(one) for name, one in value.items()} if isinstance(value, Mapping) else value
    return value if key in ("enum", "default", "example", "examples", "required", "x-examples") else _schema(value)


def _rewrite_reference(raw: Any) -> Any:
    if isinstance(raw, Mapping) and isinstance(raw.get("$ref"), str):
        return {**raw, "$ref": _reference(raw["$ref"])}
    return raw


def _reference(reference: str) -> str:
    for old, new in _SECTIONS.items():
        if reference.startswith(old):
            return new + reference.removeprefix(old)
    return reference


def _security(raw: Any) -> Any:
    found = _as_mapping(raw)
    if found.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    if found.get("type") != "oauth2":
        return raw
    flow = str(found.get("flow"))
    flow_fields = {key: found[key] for key in ("authorizationUrl", "tokenUrl", "scopes") if key in found}
    return {"type": "oauth2", "flows": {_FLOWS.get(flow, flow): flow_fields}}


def _copy_common(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: raw[key] for key in ("description", "required") if key in raw}


def _as_mapping(raw: Any) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _as_list(raw: Any) -> list[Any]:
    return raw if isinstance(raw, list) else []
