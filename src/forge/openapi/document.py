"""An OpenAPI document: read from a file or a server, parsed within bounds, with its references resolved."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from forge.core import yaml as yaml_tabs
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.untrusted import has_too_many_values, one_line
from forge.core.yaml import Unreadable, explain_yaml_errors, safe_loader
from forge.network.egress import Egress
from forge.openapi.swagger import convert_swagger, is_swagger

MOST_HOPS = 50  # references to references

_VERSION = re.compile(r"3\.[0-9]+(?:\.[0-9]+)?(?:-\w+)?")


class BrokenOperation(Exception):
    """The reason why an operation cannot be offered; the others can."""


class Document:
    """A parsed document. `url` is where it was fetched from; "" for a file or data."""

    def __init__(self, root: Any, name: str, url: str = "") -> None:
        if not isinstance(root, Mapping):
            raise unreadable(name, "it is not a mapping", "Name an OpenAPI 3 or Swagger 2.0 document.")
        if is_swagger(root):
            root = convert_swagger(root)
        version = root.get("openapi")
        if not _VERSION.fullmatch(str(version)):
            raise unreadable(
                name,
                "it begins with neither openapi: 3.x nor swagger: 2.0",
                "Name an OpenAPI 3 or Swagger 2.0 document.",
            )
        self.root = root
        self.name = name
        self.url = url
        self.is_old = str(version).startswith("3.0")  # schemas of 3.0 differ from JSON Schema

    @property
    def title(self) -> str:
        info = self.root.get("info")
        return one_line(info.get("title"), 100) if isinstance(info, Mapping) else ""

    def at(self, reference: Any) -> Any:
        """Follows a reference inside this document. Raises `BrokenOperation` for any other."""
        if not isinstance(reference, str):
            raise BrokenOperation("a $ref that is not a string")
        if not reference.startswith("#"):
            raise BrokenOperation(
                f"it refers to {one_line(reference, 100)!r}: only references inside the document are followed"
            )
        found: Any = self.root
        for part in unquote(reference[1:]).split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(part)] if isinstance(found, list) else found[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise BrokenOperation(f"{one_line(reference, 100)!r} does not exist") from None
        return found

    def resolve(self, node: Any) -> Mapping[str, Any]:
        """Returns the node with its references followed; {} if it is not a mapping."""
        for _ in range(MOST_HOPS):
            if not isinstance(node, Mapping):
                return {}
            if "$ref" not in node:
                return node
            node = self.at(node["$ref"])
        raise BrokenOperation("circular references")

    def section(self, name: str) -> Mapping[str, Any]:
        """Returns a section of the components."""
        components = self.root.get("components")
        found = components.get(name) if isinstance(components, Mapping) else None
        return found if isinstance(found, Mapping) else {}


# --- Reads a document from a file or a server.


FETCH_SECONDS = 60.0


def is_url(spec: str) -> bool:
    return spec[:8].lower().startswith(("http://", "https://"))


async def open_document(spec: str | Path | Mapping[str, Any], egress: Egress) -> Document:
    """Opens a document. It is parsed in a thread, since a large one takes a while."""
    if isinstance(spec, Mapping):
        name = "given as data"
        return Document(await in_thread(lambda: _copy_data(spec, name)), name)
    if isinstance(spec, str) and is_url(spec):
        raw, url = await download(spec, egress)
        return await parse_document(raw, url, url)
    path = Path(spec)
    return await parse_document(await in_thread(lambda: _read_content(path)), path.name)


async def parse_document(raw: bytes, name: str, url: str = "") -> Document:
    return Document(await in_thread(lambda: parse(raw, name)), name, url)


async def download(url: str, egress: Egress) -> tuple[bytes, str]:
    """Returns the bytes and the final URL, which is on the same server."""
    from forge.network.client import fetch
    from forge.network.headers import RequestLimits

    limits = RequestLimits(read=FETCH_SECONDS, total=FETCH_SECONDS, size=LARGEST_JSON)
    answer = await fetch("GET", url, egress=egress, limits=limits, follow="same-host")
    if answer.location:
        raise ToolError(
            f"the OpenAPI document at {url[:200]} has moved to {answer.location[:200]}",
            ErrorKind.CONFIG,
            "Use the new URL, if you trust it.",
        )
    if answer.status != 200:
        raise unreadable(url[:200], f"the server answered {answer.status}", "Check the URL.")
    if answer.truncated:
        raise unreadable(url[:200], f"it has more than {LARGEST_JSON // 1024 // 1024} MiB", "Make it smaller.")
    return answer.body, answer.url


def _read_content(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not hang
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise unreadable(path.name, "it is not a regular file", "Name a file.")
            content = file.read(LARGEST_JSON + 1)
    except OSError as error:
        raise unreadable(str(path), str(error.strerror), "Name an existing file.") from None
    except ValueError:  # a NUL byte in the name
        raise unreadable(repr(str(path)), "no such file", "Name an existing file.") from None
    if len(content) > LARGEST_JSON:
        raise unreadable(path.name, f"it has more than {LARGEST_JSON // 1024 // 1024} MiB", "Make it smaller.")
    return content


def _copy_data(root: Mapping[str, Any], name: str) -> Any:
    """Copies data as JSON: a program's data may hold anything, and contain itself."""
    from pydantic_core import from_json, to_json  # heavy: needed only for a document

    try:
        return from_json(to_json(root, inf_nan_mode="null"))
    except (ValueError, RecursionError) as error:  # pydantic's errors are ValueErrors
        raise unreadable(name, f"it is not JSON: {str(error)[:200]}") from None


# --- Parses an OpenAPI document, JSON or YAML, into plain data within bounds.


LARGEST_JSON = 64 * 1024 * 1024  # bytes of JSON
LARGEST_YAML = 16 * 1024 * 1024  # bytes: YAML takes a hundred times as long to read
MOST_VALUES = 4_000_000  # values of JSON: the largest published documents have a million
DEEPEST_DOCUMENT = 150  # levels
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

    import yaml

    class Loader(safe_loader()):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the name is the library's
        depth = 0

        def descend_resolver(self, parent: Any, index: Any) -> None:
            """Counts the depth of every node: the C code that calls this would recurse until the stack overflows."""
            self.depth += 1
            if self.depth > DEEPEST_DOCUMENT:
                raise yaml.constructor.ConstructorError(
                    None, None, f"more than {DEEPEST_DOCUMENT} levels deep", parent.start_mark
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
        if depth > DEEPEST_DOCUMENT:  # through aliases: one level of text may stand for many
            raise self._problem(node, f"more than {DEEPEST_DOCUMENT} levels deep")
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
