"""Plans how the arguments of a tool become the parameters and the body of a request."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from forge.core.arguments.schema import check_schema
from forge.core.errors import DefinitionError
from forge.sources.openapi.document import BrokenOperation, Document
from forge.sources.openapi.operations import Operation
from forge.sources.openapi.schemas import MOST_NODES, Schemas, is_binary, merge_object
from forge.sources.untrusted import clean, clean_schema

BodyKind = Literal["json", "form", "multipart", "text", "bytes"]
ParameterKey = tuple[str, str]  # the location of a parameter, and its name in lower case

BYTES = 'Text, bytes as "base64:…", or a file of the workspace as "file:PATH".'

MOST_PARAMETERS = 500  # beside the body
MOST_ARGUMENTS = 200  # that are properties of a body; with more, the body is one argument

_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_IGNORED = frozenset({("header", "accept"), ("header", "content-type"), ("header", "authorization")})
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_TEMPLATE = re.compile(r"\{([^{}]{1,200})\}")
_ATTEMPTS = (
    (MOST_NODES, True),
    (MOST_NODES, False),
    (MOST_NODES // 10, False),
)  # less each time, until the schema is valid


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the path, the query, a header or a cookie."""

    argument: str
    name: str
    location: str
    style: str = "simple"
    explode: bool = False
    reserved: bool = False  # characters such as / are not encoded
    media: str = ""  # the format of its value


@dataclass(frozen=True, slots=True)
class Body:
    media: str
    kind: BodyKind
    required: bool
    properties: Mapping[str, str] = field(default_factory=dict)  # argument -> property; none: `argument` is the body
    argument: str = "body"
    binary: frozenset[str] = frozenset()  # properties that are bytes
    encoding: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    parameters: tuple[Parameter, ...]
    body: Body | None
    schema: Mapping[str, Any]


def plan_of(document: Document, operation: Operation, hidden: Collection[ParameterKey]) -> Plan:
    """Plans an operation. A model neither sees nor sets `hidden` parameters. Raises `BrokenOperation`."""
    for most, patterns in _ATTEMPTS:
        schemas = Schemas(document, most=most, patterns=patterns)
        builder = _PlanBuilder(document, operation, hidden, schemas)
        try:
            plan = builder.plan()
            check_schema(operation.name, plan.schema)
            return plan
        except (DefinitionError, ValueError) as error:
            problem = str(error).partition(": ")[2] or str(error)
    raise BrokenOperation(f"its schema cannot be used: {clean(problem, 200)}")


def argument_names(document: Document, operation: Operation, hidden: Collection[ParameterKey]) -> list[str]:
    """Returns the names of the arguments for a search, without building a schema. Never raises."""
    builder = _PlanBuilder(document, operation, hidden, Schemas(document, most=0))
    try:
        builder.plan()
    except Exception:  # the names found so far are returned
        return list(builder.properties)
    return list(builder.properties)


class _PlanBuilder:
    def __init__(
        self, document: Document, operation: Operation, hidden: Collection[ParameterKey], schemas: Schemas
    ) -> None:
        self.document = document
        self.operation = operation
        self.hidden = hidden
        self.schemas = schemas
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self.needed_by: dict[str, list[str]] = {}  # the arguments that another one needs beside it

    def plan(self) -> Plan:
        parameters = tuple(self._parameter(raw) for raw in self._raw_parameters())
        body = self._body()
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        if self.needed_by:
            schema["dependentRequired"] = self.needed_by
        if definitions := self.schemas.collect_definitions():
            schema["$defs"] = definitions
        return Plan(parameters, body, clean_schema(schema))

    def _raw_parameters(self) -> list[Mapping[str, Any]]:
        """Returns the parameters of the path item, the operation (which wins) and the path template."""
        found: dict[ParameterKey, Mapping[str, Any]] = {}
        for holder in (self.operation.path_item, self.operation.raw):
            listed = holder.get("parameters")
            for item in listed if isinstance(listed, list) else ():
                raw = self.document.resolve(item)
                key = (raw.get("in"), raw.get("name"))
                if key[0] in _STYLES and isinstance(key[1], str):
                    found[str(key[0]), key[1]] = raw
                    if len(found) > MOST_PARAMETERS:
                        raise BrokenOperation(f"it has more than {MOST_PARAMETERS} parameters")
        for name in _TEMPLATE.findall(self.operation.path):
            found.setdefault(("path", name), {"name": name, "in": "path", "schema": {"type": "string"}})
        return [
            raw
            for (location, name), raw in found.items()
            if (location, name.lower()) not in _IGNORED and (location, name.lower()) not in self.hidden
        ]

    def _parameter(self, raw: Mapping[str, Any]) -> Parameter:
        name, location = raw["name"], raw["in"]
        media, schema = "", raw.get("schema", {})
        if isinstance(raw.get("content"), Mapping) and raw["content"]:
            media, content = next(iter(raw["content"].items()))
            schema = content.get("schema", {}) if isinstance(content, Mapping) else {}
        made = self.schemas.convert(schema)
        made = dict(made) if isinstance(made, dict) else {}
        if text := clean(raw.get("description"), 800):
            made["description"] = text
        if "examples" not in made and isinstance(raw.get("example"), str | int | float):
            made["examples"] = [raw["example"]]
        is_required = raw.get("required") is True or location == "path"
        argument = self._add_argument(name, location, made, required=is_required)
        style = raw["style"] if isinstance(raw.get("style"), str) else _STYLES[location]
        explode = raw["explode"] if isinstance(raw.get("explode"), bool) else style in ("form", "deepObject")
        return Parameter(argument, name, location, style, explode, raw.get("allowReserved") is True, media)

    def _add_argument(self, name: str, location: str, schema: Any, *, required: bool) -> str:
        """Adds an argument. Returns its name, which is unique and safe for every provider."""
        base = safe_argument(name)
        argument, number = base, 1
        while argument in self.properties:
            suffix = f"_{location}" if number == 1 else f"_{location}_{number}"
            argument, number = f"{base[: 64 - len(suffix)]}{suffix}", number + 1
        self.properties[argument] = schema
        if required:
            self.required.append(argument)
        return argument

    def _body(self) -> Body | None:
        raw = self.document.resolve(self.operation.raw.get("requestBody"))
        content = raw.get("content")
        if not isinstance(content, Mapping) or not content:
            return None
        media, kind = _choose_format(content)
        described_content = content[media] if isinstance(content[media], Mapping) else {}
        schema = described_content.get("schema", {})
        encoding = described_content["encoding"] if isinstance(described_content.get("encoding"), Mapping) else {}
        sent = "application/json" if "*" in media else media
        required = raw.get("required") is True
        text = clean(raw.get("description"), 800)
        if kind in ("text", "bytes"):
            described = {"type": "string", "description": " ".join(filter(None, (text, BYTES * (kind == "bytes"))))}
            argument = self._add_argument("body", "request", described, required=required)
            return Body(sent, kind, required, argument=argument)
        whole = merge_object(self.document, schema)
        if whole is not None and not self._clashes(whole["properties"]):
            return self._spread_body(Body(sent, kind, required, encoding=encoding), whole)
        made = self.schemas.convert(schema)
        made = dict(made) if isinstance(made, dict) else {}
        if text and "description" not in made:
            made["description"] = text
        argument = self._add_argument("body", "request", made, required=required)
        found = self.document.resolve(schema).get("properties")
        binary = self._binary(found) if isinstance(found, Mapping) else frozenset()
        return Body(sent, kind, required, argument=argument, encoding=encoding, binary=binary)

    def _clashes(self, properties: Mapping[str, Any]) -> bool:
        """Tells if the properties cannot all be arguments."""
        names = {safe_argument(name) for name in properties}
        return len(names) < len(properties) or len(names) > MOST_ARGUMENTS or not names.isdisjoint(self.properties)

    def _spread_body(self, body: Body, whole: Mapping[str, Any]) -> Body:
        """Makes every property of the body an argument."""
        properties = {
            name: schema
            for name, schema in whole["properties"].items()
            if not (isinstance(schema, Mapping) and schema.get("readOnly") is True)
        }
        binary = self._binary(properties) if body.kind == "multipart" else frozenset()
        arguments = {}
        for name, schema in properties.items():
            made = self.schemas.convert(schema)
            if name in binary:
                made = {"type": "string", "description": f"{made.get('description', '')} {BYTES}".strip()}
            required = body.required and name in whole["required"]
            arguments[self._add_argument(name, "body", made, required=required)] = name
        if not body.required:  # it may be left out, but only as a whole
            needed = [argument for argument, name in arguments.items() if name in whole["required"]]
            others = {one: [need for need in needed if need != one] for one in arguments}
            self.needed_by = {one: needs for one, needs in others.items() if needs}
        return Body(body.media, body.kind, body.required, arguments, "", binary, body.encoding)

    def _binary(self, properties: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(name for name, schema in properties.items() if is_binary(self.document, schema))


def safe_argument(name: str) -> str:
    return _UNSAFE.sub("_", name).strip("_")[:64] or "value"


def _choose_format(content: Mapping[str, Any]) -> tuple[str, BodyKind]:
    """Returns the most specific format of a body."""
    kinds = {media: _kind(media) for media in content if isinstance(media, str)}
    if not kinds:
        raise BrokenOperation("its body has no media type")
    order: tuple[BodyKind, ...] = ("json", "form", "multipart", "text", "bytes")
    media = min(kinds, key=lambda one: order.index(kinds[one]))
    return media, kinds[media]


def _kind(media: str) -> BodyKind:
    name = media.partition(";")[0].strip().lower()
    if name in ("application/json", "*/*", "application/*") or name.endswith("+json"):
        return "json"
    if name == "application/x-www-form-urlencoded":
        return "form"
    if name.startswith("multipart/"):
        return "multipart"
    is_text = name.startswith("text/") or name.endswith(("/xml", "+xml", "/yaml", "/x-yaml", "/x-ndjson", "/graphql"))
    return "text" if is_text else "bytes"
