"""Turns the arguments of a tool into a request: plans its parameters and body, and encodes them by the document."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, quote_plus

from forge.core.arguments.schema import check_schema
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.untrusted import clean, clean_schema
from forge.openapi.document import BrokenOperation, Document
from forge.openapi.operations import ApiOperation
from forge.openapi.schemas import MOST_NODES, Schemas, is_binary, merge_object

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
class RequestBody:
    media: str
    kind: BodyKind
    required: bool
    properties: Mapping[str, str] = field(default_factory=dict)  # argument -> property; none: `argument` is the body
    argument: str = "body"
    binary: frozenset[str] = frozenset()  # properties that are bytes
    encoding: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestPlan:
    parameters: tuple[Parameter, ...]
    body: RequestBody | None
    schema: Mapping[str, Any]


def plan_of(document: Document, operation: ApiOperation, hidden: Collection[ParameterKey]) -> RequestPlan:
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


def argument_names(document: Document, operation: ApiOperation, hidden: Collection[ParameterKey]) -> list[str]:
    """Returns the names of the arguments for a search, without building a schema. Never raises."""
    builder = _PlanBuilder(document, operation, hidden, Schemas(document, most=0))
    try:
        builder.plan()
    except Exception:  # the names found so far are returned
        return list(builder.properties)
    return list(builder.properties)


class _PlanBuilder:
    def __init__(
        self, document: Document, operation: ApiOperation, hidden: Collection[ParameterKey], schemas: Schemas
    ) -> None:
        self.document = document
        self.operation = operation
        self.hidden = hidden
        self.schemas = schemas
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self.needed_by: dict[str, list[str]] = {}  # the arguments that another one needs beside it

    def plan(self) -> RequestPlan:
        parameters = tuple(self._parameter(raw) for raw in self._raw_parameters())
        body = self._body()
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        if self.needed_by:
            schema["dependentRequired"] = self.needed_by
        if definitions := self.schemas.collect_definitions():
            schema["$defs"] = definitions
        return RequestPlan(parameters, body, clean_schema(schema))

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

    def _body(self) -> RequestBody | None:
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
            return RequestBody(sent, kind, required, argument=argument)
        whole = merge_object(self.document, schema)
        if whole is not None and not self._clashes(whole["properties"]):
            return self._spread_body(RequestBody(sent, kind, required, encoding=encoding), whole)
        made = self.schemas.convert(schema)
        made = dict(made) if isinstance(made, dict) else {}
        if text and "description" not in made:
            made["description"] = text
        argument = self._add_argument("body", "request", made, required=required)
        found = self.document.resolve(schema).get("properties")
        binary = self._binary(found) if isinstance(found, Mapping) else frozenset()
        return RequestBody(sent, kind, required, argument=argument, encoding=encoding, binary=binary)

    def _clashes(self, properties: Mapping[str, Any]) -> bool:
        """Returns whether the properties cannot all be arguments."""
        names = {safe_argument(name) for name in properties}
        return len(names) < len(properties) or len(names) > MOST_ARGUMENTS or not names.isdisjoint(self.properties)

    def _spread_body(self, body: RequestBody, whole: Mapping[str, Any]) -> RequestBody:
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
        return RequestBody(body.media, body.kind, body.required, arguments, "", binary, body.encoding)

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


# --- Encodes values as a document requires: in a path, a query, a header or a cookie.


Pairs = list[tuple[str, str]]
_Spell = Callable[[str], str]

_RESERVED = ":/?@!$'()*,;[]"  # without the characters that end a value: # & = +
_DOTS = frozenset({"", ".", ".."})
_SEPARATORS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_DEEPEST_ARGUMENTS = 20


def encode_in_path(parameter: Parameter, value: Any) -> str:
    """Encodes one or more values as a part of the path; a slash in a value is not a separator."""
    name, spell = quote_text(parameter.name), quote_text
    if parameter.media:
        return _check_segment(parameter, spell(as_json(value)))
    if parameter.style == "label":
        return "." + _join_values(value, "." if parameter.explode else ",", parameter.explode, spell)
    if parameter.style == "matrix":
        if isinstance(value, Mapping) and parameter.explode:
            return "".join(f";{spell(key)}={spell(as_text(item))}" for key, item in value.items())
        if isinstance(value, list) and parameter.explode:
            return "".join(f";{name}={spell(as_text(item))}" for item in value)
        return f";{name}={_join_values(value, ',', False, spell)}"
    return _check_segment(parameter, _join_values(value, ",", parameter.explode, spell))


def encode_in_query(parameter: Parameter, value: Any) -> list[str]:
    """Returns `name=value` parts, to be joined with `&`."""
    spell: _Spell = _quote_reserved if parameter.reserved else quote_text
    name = quote_text(parameter.name)
    if parameter.media:
        return [f"{name}={spell(as_json(value))}"]
    if parameter.style == "deepObject":
        return [f"{quote_text(key, '[]')}={spell(text)}" for key, text in flatten_value(parameter.name, value)]
    if isinstance(value, Mapping):
        if parameter.explode:
            return [f"{quote_text(key)}={spell(as_text(item))}" for key, item in value.items() if item is not None]
        value = [part for pair in value.items() for part in pair]
    if not isinstance(value, list):
        return [f"{name}={spell(as_text(value))}"]
    if parameter.explode:
        return [f"{name}={spell(as_text(item))}" for item in value]
    return [f"{name}={_SEPARATORS.get(parameter.style, ',').join(spell(as_text(item)) for item in value)}"]


def encode_in_header(parameter: Parameter, value: Any) -> str:
    return as_json(value) if parameter.media else _join_values(value, ",", parameter.explode, str)


def encode_in_cookie(parameter: Parameter, value: Any) -> Pairs:
    """Returns cookies; characters that end a cookie are escaped."""
    name = quote_text(parameter.name)
    if parameter.media:
        return [(name, quote_text(as_json(value)))]
    if isinstance(value, Mapping) and parameter.explode:
        return [(quote_text(key), quote_text(as_text(item))) for key, item in value.items()]
    if isinstance(value, list) and parameter.explode:
        return [(name, quote_text(as_text(item))) for item in value]
    return [(name, _join_values(value, ",", False, quote_text))]


def flatten_value(name: str, value: Any, depth: int = 0) -> Iterable[tuple[str, str]]:
    """Yields `name[key]` pairs for nested values."""
    if depth < _DEEPEST_ARGUMENTS and isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten_value(f"{name}[{key}]", item, depth + 1)
    elif depth < _DEEPEST_ARGUMENTS and isinstance(value, list):
        for number, item in enumerate(value):
            yield from flatten_value(f"{name}[{number}]", item, depth + 1)
    elif value is not None:
        yield name, as_text(value)


def as_text(value: Any) -> str:
    """Returns a single value as text for a URL."""
    return value if isinstance(value, str) else "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ToolError("JSON has no such number", ErrorKind.VALIDATION, "Remove NaN and Infinity.") from None


def quote_text(text: str, safe: str = "") -> str:
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError:
        raise ToolError("an invalid character (a lone surrogate)", ErrorKind.VALIDATION, "Remove it.") from None


def _quote_reserved(text: str) -> str:
    return quote_text(text, _RESERVED)


def _join_values(value: Any, separator: str, explode: bool, spell: _Spell) -> str:
    if isinstance(value, Mapping):
        pairs = ((spell(str(key)), spell(as_text(item))) for key, item in value.items())
        return separator.join(f"{key}={item}" if explode else f"{key},{item}" for key, item in pairs)
    if isinstance(value, list):
        return separator.join(spell(as_text(item)) for item in value)
    return spell(as_text(value))


def _check_segment(parameter: Parameter, spelled: str) -> str:
    """Refuses an empty segment or one of dots: some servers read it as another path, even if it is encoded."""
    if spelled in _DOTS:
        raise ToolError(
            f"{parameter.argument}: {spelled!r} cannot be part of a path",
            ErrorKind.VALIDATION,
            'Send a non-empty value that is not "." or "..".',
        )
    return spelled


# --- Encodes the bodies of requests in the format that a document requires.


LARGEST_BODY = 64 * 1024 * 1024  # bytes
_BYTES = "base64:"
_FILE = "file:"


class BodyFile(NamedTuple):
    """The content of a workspace file, which replaces its path in the arguments."""

    name: str
    content: bytes


def files_in(body: RequestBody, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Returns the arguments that name a file to send, with its path."""
    if body.kind == "bytes":
        holders = [body.argument]
    else:
        holders = [key for key, name in body.properties.items() if name in body.binary]
    found = {key: arguments.get(key) for key in holders}
    return {key: path[len(_FILE) :] for key, path in found.items() if isinstance(path, str) and path.startswith(_FILE)}


def content_of(body: RequestBody, arguments: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """Returns the content type and the content; None if there is nothing to send."""
    if body.properties:
        value: Any = {name: arguments[key] for key, name in body.properties.items() if key in arguments}
        if not value and not body.required:
            return None
    elif body.argument in arguments:
        value = arguments[body.argument]
    else:
        return None
    try:
        media, content = _encode_body(body, value)
    except UnicodeEncodeError:
        raise ToolError("the body contains an invalid character (a lone surrogate)", ErrorKind.VALIDATION) from None
    if len(content) > LARGEST_BODY:
        raise ToolError(f"the body has {len(content):,} bytes, the limit is {LARGEST_BODY:,}", ErrorKind.VALIDATION)
    return media, content


def _encode_body(body: RequestBody, value: Any) -> tuple[str, bytes]:
    match body.kind:
        case "json":
            return body.media, as_json(value).encode()
        case "form":
            return body.media, _encode_form(value, body.encoding).encode()
        case "multipart":
            return _encode_multipart(body, value if isinstance(value, Mapping) else {"body": value})
        case "text":
            return body.media, as_text(value).encode()
    return body.media, to_bytes(value)


def to_bytes(value: Any) -> bytes:
    """Returns the content of a file, the decoded `base64:…`, or the text itself."""
    if isinstance(value, BodyFile):
        return value.content
    text = as_text(value)
    if not text.startswith(_BYTES):
        return text.encode()
    try:
        return b64decode(text[len(_BYTES) :], validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(
            "the text after base64: is not valid base64", ErrorKind.VALIDATION, "Encode the bytes again."
        ) from None


def _encode_form(value: Any, encoding: Mapping[str, Any]) -> str:
    if not isinstance(value, Mapping):
        return as_text(value)
    pairs: list[tuple[str, str]] = []
    for name, item in value.items():
        pairs.extend(_fields(name, item, encoding.get(name)))
    return "&".join(f"{quote_plus(name, safe='[]')}={quote_plus(text)}" for name, text in pairs)


def _fields(name: str, value: Any, rules: Any) -> list[tuple[str, str]]:
    rules = rules if isinstance(rules, Mapping) else {}
    if "json" in str(rules.get("contentType", "")):
        return [(name, as_json(value))]
    style, explode = rules.get("style", "form"), rules.get("explode", True)
    if style == "deepObject" or (isinstance(value, Mapping) and "style" not in rules):
        return [*flatten_value(name, value)]  # as most servers read it; the specification does not define it
    if isinstance(value, Mapping):
        pairs = [(key, as_text(item)) for key, item in value.items()]
        return pairs if explode else [(name, ",".join(part for pair in pairs for part in pair))]
    if isinstance(value, list):
        texts = [as_text(item) for item in value]
        separator = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, ",")
        return [(name, text) for text in texts] if explode else [(name, separator.join(texts))]
    return [] if value is None else [(name, as_text(value))]


def _encode_multipart(body: RequestBody, value: Mapping[str, Any]) -> tuple[str, bytes]:
    boundary = f"forge-{token_hex(16)}"
    parts = []
    for name, item in value.items():
        items = item if isinstance(item, list) and not any(isinstance(one, Mapping | list) for one in item) else [item]
        parts += [_encode_part(boundary, name, one, body) for one in items if one is not None]
    media = body.media.partition(";")[0]
    return f"{media}; boundary={boundary}", b"".join([*parts, f"--{boundary}--\r\n".encode()])


def _encode_part(boundary: str, name: str, value: Any, body: RequestBody) -> bytes:
    rules = body.encoding.get(name)
    declared = rules.get("contentType") if isinstance(rules, Mapping) else None
    kind = declared.partition(",")[0].strip() if isinstance(declared, str) and declared.isprintable() else ""
    shown = _escape_name(name)
    is_file = name in body.binary or (isinstance(value, str) and value.startswith(_BYTES))
    if is_file:
        called = _escape_name(value.name) if isinstance(value, BodyFile) else shown
        content, file = to_bytes(value), f'; filename="{called}"'
        kind = kind or "application/octet-stream"
    else:
        content, file = as_text(value).encode(), ""
        kind = kind or ("application/json" if isinstance(value, Mapping | list) else "text/plain; charset=utf-8")
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{shown}"{file}\r\nContent-Type: {kind}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def _escape_name(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
