"""Parses an OpenAPI document, JSON or YAML, into plain data within bounds."""

from __future__ import annotations

from functools import cache
from typing import Any

from forge.core import yaml as yaml_tabs
from forge.core.errors import ErrorKind, ToolError
from forge.core.yaml import Unreadable, explain_yaml_errors, safe_loader
from forge.sources.untrusted import has_too_many_values

LARGEST = 64 * 1024 * 1024  # bytes of JSON
LARGEST_YAML = 16 * 1024 * 1024  # bytes: YAML takes a hundred times as long to read
MOST_VALUES = 4_000_000  # values of JSON: the largest published documents have a million
DEEPEST = 150  # levels
MOST_MERGED = 100_000  # entries that `<<` copies: a few lines can request billions

_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = frozenset({"map", "seq", "str", "int", "float", "bool", "null", "merge"})


def parse(raw: bytes, name: str) -> Any:
    """Returns the document as dicts, lists and scalars. Raises `ToolError` of kind `config_error`."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(name, f"byte {error.start:,} is not UTF-8", "Save it as UTF-8.") from None
    if text.lstrip()[:1] == "{":
        if has_too_many_values(raw, MOST_VALUES):
            raise unreadable(name, f"it has more than {MOST_VALUES:,} values", "Make it smaller.")
        return _parse_json(text, name)
    if len(raw) > LARGEST_YAML:
        size = f"{LARGEST_YAML // 1024 // 1024} MiB"
        raise unreadable(name, f"it has more than {size} of YAML", "Save it as JSON, which is much faster to read.")
    return _parse_yaml(text, name)


def unreadable(name: str, why: str, suggestion: str = "Fix the document.") -> ToolError:
    return ToolError(f"cannot read the OpenAPI document {name}: {why}", ErrorKind.CONFIG, suggestion)


def _parse_json(text: str, name: str) -> Any:
    from pydantic_core import from_json  # heavy: only where a document is opened

    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        problem = str(error)[:200]
    try:
        return _parse_yaml(text, name) if len(text) <= LARGEST_YAML // 16 else _refuse(name, problem)
    except ToolError:  # YAML may begin like JSON, too
        _refuse(name, problem)


def _refuse(name: str, problem: str) -> Any:
    raise unreadable(name, f"not valid JSON: {problem}")


def _parse_yaml(text: str, name: str) -> Any:
    try:
        with explain_yaml_errors(name) as yaml:
            try:
                node = _compose_node(text, yaml)
                return _Builder(yaml).build(node, 0) if node is not None else None
            except RecursionError:
                raise unreadable(name, "it is nested too deeply") from None
    except Unreadable as error:
        line = f"line {error.line}: " if error.line else ""
        raise unreadable(name, f"{line}{error.problem}") from None


def _compose_node(text: str, yaml: Any) -> Any:
    """Composes the nodes of a document."""

    def read(source: str) -> Any:
        loader = _loader()(source)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()

    return yaml_tabs.read_with_tabs(text, read, yaml.scanner.ScannerError)[1]


@cache
def _loader() -> Any:
    """Returns a loader with the scalars of YAML 1.2 and JSON: `no`, `2026-11-15` and `12:30` are texts."""
    import re

    import yaml

    class Loader(safe_loader()):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the name is the library's
        depth = 0

        def descend_resolver(self, parent: Any, index: Any) -> None:
            """Counts the depth of every node: the C code that calls this would recurse until the stack overflows."""
            self.depth += 1
            if self.depth > DEEPEST:
                raise yaml.constructor.ConstructorError(
                    None, None, f"more than {DEEPEST} levels deep", parent.start_mark
                )

        def ascend_resolver(self) -> None:
            self.depth -= 1

    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", r"[-+]?[0-9]{1,400}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?", "-+.0123456789"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("merge", r"<<", "<"),
    ):
        Loader.add_implicit_resolver(_TAG + tag, re.compile(rf"(?:{pattern})\Z"), list(first))
    return Loader


class _Builder:
    """Builds data from nodes. A repeated alias is built once; an alias inside itself is refused."""

    def __init__(self, yaml: Any) -> None:
        self.yaml = yaml
        self.built: dict[int, Any] = {}
        self.open: set[int] = set()
        self.merged = 0

    def build(self, node: Any, depth: int) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind not in _JSON_TAGS:
            raise self._problem(node, f"the tag {node.tag[:60]!r} has no meaning in JSON")
        if isinstance(node, self.yaml.ScalarNode):
            return yaml_tabs.restore_tabs(node.value) if kind == "str" else _read_scalar(kind, node.value)
        key = id(node)
        if key in self.built:
            return self.built[key]
        if key in self.open:
            raise self._problem(node, "it contains itself")
        if depth > DEEPEST:  # through aliases: one level of text may stand for many
            raise self._problem(node, f"more than {DEEPEST} levels deep")
        self.open.add(key)
        value: Any
        if isinstance(node, self.yaml.SequenceNode):
            value = [self.build(item, depth + 1) for item in node.value]
        else:
            value = self._build_mapping(node, depth)
        self.open.discard(key)
        self.built[key] = value
        return value

    def _build_mapping(self, node: Any, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, self.yaml.ScalarNode):
                raise self._problem(key, "a key that is not a string")
            if yaml_tabs.STAND_IN in key.value:
                raise self._problem(key, yaml_tabs.PROBLEM)
            if key.tag == f"{_TAG}merge":
                self._merge(merged, item, depth)
            else:
                value[key.value] = self.build(item, depth + 1)  # as written: 200, on, 1.0
        return {**merged, **value} if merged else value

    def _merge(self, into: dict[str, Any], node: Any, depth: int) -> None:
        for one in node.value if isinstance(node, self.yaml.SequenceNode) else [node]:
            found = self.build(one, depth + 1)
            if not isinstance(found, dict):
                raise self._problem(one, "`<<` needs a mapping")
            self.merged += len(found)
            if self.merged > MOST_MERGED:
                raise self._problem(one, f"`<<` copies more than {MOST_MERGED:,} entries")
            for key, value in found.items():
                into.setdefault(key, value)

    def _problem(self, node: Any, what: str) -> Exception:
        problem: Exception = self.yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        return problem


def _read_scalar(kind: str, text: str) -> Any:
    match kind:
        case "null":
            return None
        case "bool":
            return text[:1] in "tT"
        case "int":
            if text[:2] in ("0o", "0x"):
                return int(text, 0)
            return int(text)
        case "float":
            return float(text)
    return text
