"""Reads a call in XML: `<tool_name>…</tool_name><arguments><path>…</path></arguments>`, typed by the tool's schema.

No general XML: elements without attributes, text, CDATA, the five named entities and numbered ones. Everything else in
a text (a bare `&`, a `<` that opens nothing) is text. Declarations are refused: nothing here can be defined or fetched.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

DEEPEST_ELEMENTS = 50  # elements inside each other
MOST_BRANCHES = 100  # of a schema that are examined for one value

Schema = Mapping[str, Any]

_WORD = r"[A-Za-z_][\w.\-]{0,127}"
_OPEN = re.compile(rf"\s*<({_WORD})\s{{0,100}}(/?)>")
_CLOSE = re.compile(rf"\s*</({_WORD})\s{{0,100}}>")
_DECLARED = r"<!(?=(?i:doctype|entity|element|attlist|notation)\b)"
_TOKEN = re.compile(rf"<!\[CDATA\[|</({_WORD})\s{{0,100}}>|{_DECLARED}")
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6}));")
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_NAME = re.compile(r"<(?:tool_)?name\s{0,100}>([^<]{0,1000})</(?:tool_)?name\s{0,100}>")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,3999})")
_DECIMAL = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?")


class Malformed(ValueError):
    """The reason why a call cannot be read, and what to write instead."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice


class XmlCall(NamedTuple):
    """The parts of a call; a missing part is empty."""

    server: str
    name: str
    arguments: Any


def read_xml(text: str, parameters: Callable[[str], Schema]) -> XmlCall:
    """Reads the content of a `<tool>`. `parameters` returns the schema of a tool's arguments by the tool's name."""
    reader = _ElementReader(text)
    fields: dict[str, Any] = {}
    for tag in reader.tags(""):
        key = {"name": "tool_name", "parameters": "arguments"}.get(tag.name, tag.name)
        if key not in ("server_name", "tool_name", "arguments"):
            advice = "Inside <tool> write <tool_name>, then <arguments> with one element per parameter."
            raise Malformed(f"<{tag.name}> does not belong here", advice)
        if key in fields:
            raise Malformed(f"<{tag.name}> appears twice", "Write one call in each <tool>.")
        if key == "arguments":
            schema = parameters(fields.get("tool_name") or _find_later_name(text))
            fields[key] = reader.value(tag, {"type": "object", **schema}, schema)
        else:
            fields[key] = str(reader.value(tag, {"type": "string"}, {})).strip()
    return XmlCall(fields.get("server_name", ""), fields.get("tool_name", ""), fields.get("arguments", {}))


def decode_entities(text: str) -> str:
    """Decodes entities once; other text stays unchanged."""
    return _ENTITY.sub(_decode_entity, text) if "&" in text else text


class _Tag(NamedTuple):
    name: str
    is_empty: bool


class _Kind(NamedTuple):
    """A schema's description of one value, with all its branches combined."""

    types: frozenset[str]
    properties: Mapping[str, Any]
    items: Schema
    others: Schema  # of properties that have no name
    choices: tuple[Any, ...]


class _ElementReader:
    """Reads elements from left to right, each character once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.kinds: dict[int, tuple[Schema, _Kind]] = {}  # by the schema's id; holding the schema keeps the id valid

    def tags(self, closing: str) -> Iterator[_Tag]:
        """Yields every child element, up to the closing tag. The caller reads each value before the next tag."""
        while True:
            if found := _OPEN.match(self.text, self.at):
                self.at = found.end()
                yield _Tag(found[1], found[2] == "/")
            elif (found := _CLOSE.match(self.text, self.at)) and found[1] == closing:
                self.at = found.end()
                return
            else:
                rest = self.text[self.at :].lstrip()
                if not rest and not closing:
                    return
                raise _unexpected_error(rest[:40], closing)

    def value(self, tag: _Tag, schema: Schema, root: Schema) -> Any:
        """Returns an element's value in its schema's type. Text that does not fit stays text: the tool explains."""
        kind = self._kind(schema, root)
        if tag.is_empty:
            return _convert_text("", kind)
        may_have_children = not kind.types or kind.types & {"array", "object"}
        child = _OPEN.match(self.text, self.at) if may_have_children else None
        if child is None:
            return self._from_text(self._text_of(tag.name), kind, root)
        self.depth += 1
        if self.depth > DEEPEST_ELEMENTS:
            raise Malformed(
                f"the arguments are nested more than {DEEPEST_ELEMENTS} levels deep", "Write flatter arguments."
            )
        value = self._structure(tag, child[1], kind, root)
        self.depth -= 1
        return value

    def _structure(self, tag: _Tag, child: str, kind: _Kind, root: Schema) -> Any:
        if "array" not in kind.types or ("object" in kind.types and child in kind.properties):
            return self._members(tag, kind, root)
        item = self._kind(kind.items, root)
        if child in item.properties:  # <edits><old>…</old></edits>: the element is itself an item
            return [self._members(tag, item, root)]
        return [self.value(one, kind.items, root) for one in self.tags(tag.name)]

    def _members(self, tag: _Tag, kind: _Kind, root: Schema) -> dict[str, Any]:
        """Returns child elements by name. Repeated elements, and those that the schema wants as a list, are lists."""
        values: dict[str, list[Any]] = {}
        lists = set()
        for child in self.tags(tag.name):
            schema = kind.properties.get(child.name, kind.others)
            value = self.value(child, schema, root)
            if isinstance(value, list):
                lists.add(child.name)
            values.setdefault(child.name, []).extend(value if isinstance(value, list) else [value])
        return {name: found if name in lists or len(found) > 1 else found[0] for name, found in values.items()}

    def _from_text(self, text: str, kind: _Kind, root: Schema) -> Any:
        value = _convert_text(text, kind)
        is_one_item = isinstance(value, str) and "array" in kind.types and "string" not in kind.types
        return [_convert_text(text, self._kind(kind.items, root))] if is_one_item else value

    def _text_of(self, name: str) -> str:
        """Returns everything up to the closing tag of that name, whatever its form."""
        parts = []
        start = self.at
        for found in _TOKEN.finditer(self.text, start):
            if found.start() < start:
                continue  # inside a CDATA section
            if found[0] == "<!":
                raise _declaration_error()
            if found[0] == "<![CDATA[":
                end = self.text.find("]]>", found.end())
                if end < 0:
                    break
                parts += [decode_entities(self.text[start : found.start()]), self.text[found.end() : end]]
                start = end + 3
            elif found[1] == name:
                self.at = found.end()
                return "".join([*parts, decode_entities(self.text[start : found.start()])])
        raise Malformed(f"<{name}> is not closed", f"End it with </{name}>.")

    def _kind(self, schema: Schema, root: Schema) -> _Kind:
        known = self.kinds.get(id(schema))
        if known is None:
            known = self.kinds[id(schema)] = (schema, _kind_of(schema, root))
        return known[1]


def _kind_of(schema: Schema, root: Schema) -> _Kind:
    types: set[str] = set()
    properties: dict[str, Any] = {}
    items: Schema = {}
    others: Schema = {}
    choices: list[Any] = []
    for branch in _branches(schema, root):
        declared = branch.get("type", ())
        types.update([declared] if isinstance(declared, str) else declared)
        choices += branch.get("enum", [branch["const"]] if "const" in branch else [])
        properties = {**branch.get("properties", {}), **properties}
        items = items or _schema(branch.get("items"))
        others = others or _schema(branch.get("additionalProperties"))
    if not types:
        types.update(_JSON_TYPES[type(choice)] for choice in choices if type(choice) in _JSON_TYPES)
        types.update({"object"} if properties else {"array"} if items else ())
    return _Kind(frozenset(types), properties, items, others, tuple(c for c in choices if isinstance(c, str)))


def _branches(schema: Schema, root: Schema) -> Iterator[Schema]:
    """Yields the schema, the schemas that it refers to and its components, each once."""
    waiting: list[Any] = [schema]
    refs = set()
    for _ in range(MOST_BRANCHES):
        branch = _schema(waiting.pop()) if waiting else {}
        ref = branch.get("$ref")
        if isinstance(ref, str) and ref not in refs:
            refs.add(ref)
            waiting.append(_follow_reference(root, ref))
        for key in ("anyOf", "oneOf", "allOf"):
            waiting += branch.get(key, ())
        if branch:
            yield branch


def _schema(value: Any) -> Schema:
    return value if isinstance(value, Mapping) else {}


def _follow_reference(root: Any, ref: str) -> Any:
    for part in ref.removeprefix("#").strip("/").split("/"):
        root = _schema(root).get(part.replace("~1", "/").replace("~0", "~"))
    return root


def _convert_text(text: str, kind: _Kind) -> Any:
    """Converts a text to the first type that accepts it. Strings stay strings."""
    types, stripped = kind.types, text.strip()
    if not types or "string" in types:
        return stripped if stripped in kind.choices else text
    if types & {"integer", "number"} and _WHOLE.fullmatch(stripped):
        return int(stripped)
    if "number" in types and _DECIMAL.fullmatch(stripped) and math.isfinite(value := float(stripped)):
        return value
    if "boolean" in types and stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    for name, made, opening in (("array", list, "["), ("object", dict, "{")):
        if name in types and not stripped:
            return made()
        if name in types and stripped.startswith(opening) and isinstance(value := _parse_json(stripped), made):
            return value
    return None if "null" in types and stripped in ("", "null") else text


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _decode_entity(found: re.Match[str]) -> str:
    if found[1]:
        return _NAMED[found[1]]
    number = int(found[2]) if found[2] else int(found[3], 16)
    is_character = 0 < number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF
    return chr(number) if is_character else found[0]


def _find_later_name(text: str) -> str:
    """Returns the tool's name if it follows the arguments."""
    found = _NAME.search(text, max(0, text.rfind("</arguments")))
    return decode_entities(found[1]).strip() if found else ""


def _declaration_error() -> Malformed:
    return Malformed(
        "it contains a declaration such as <!DOCTYPE>", "Put text that looks like markup into <![CDATA[…]]>."
    )


def _unexpected_error(text: str, closing: str) -> Malformed:
    if text.startswith(("<!", "<?")) and not text.startswith("<![CDATA["):
        return _declaration_error()
    if not text:
        return Malformed(f"<{closing}> is not closed", f"End it with </{closing}>.")
    where = f"inside <{closing}>" if closing else "inside <tool>"
    advice = "Write one element per parameter, and put text that looks like markup into <![CDATA[…]]>."
    return Malformed(f"unexpected {json.dumps(text, ensure_ascii=False)} {where}", advice)
