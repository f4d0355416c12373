"""The operations of a document with safe and unique names, and the server that each is sent to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import urljoin

from forge.core.check_definition import NameFilter
from forge.core.errors import ErrorKind, ToolError
from forge.core.untrusted import clean, one_line
from forge.network.address import Url, read_url
from forge.network.client import METHODS
from forge.network.egress import Egress
from forge.openapi.document import BrokenOperation, Document

MOST_OPERATIONS = 20_000  # operations of one document
LONGEST_NAME = 64

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]+")
_LOOKED_AT = 4_000  # characters of a description
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


@dataclass(frozen=True, slots=True, eq=False)
class ApiOperation:
    """One operation as the document has it; its content is not checked yet."""

    name: str  # of its tool
    id: str  # the document's operationId, or else GET_pets_id
    method: str
    path: str
    raw: Mapping[str, Any] = field(repr=False)
    path_item: Mapping[str, Any] = field(repr=False)  # the path item that holds it

    @property
    def title(self) -> str:
        return f"{self.method} {self.path}"

    def description(self) -> str:
        """Returns the summary and the description, cleaned and bounded since they are untrusted."""
        summary, text = (_plain(self.raw.get(key)) for key in ("summary", "description"))
        parts = [summary] if summary else []
        if text and text != summary:
            parts.append(text)
        if self.raw.get("deprecated") is True:
            parts.insert(0, "Deprecated.")
        return clean("\n\n".join(parts)) or one_line(self.title)

    def matches(self, pattern: str) -> bool:
        """Returns whether a pattern matches the id, the tool's name, or the title as in `GET /pets/*`."""
        return any(fnmatchcase(text, pattern) for text in (self.id, self.name, self.title))


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """Selects operations; an empty filter selects all."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    tags: Sequence[str] = ()

    def selects(self, operation: ApiOperation) -> bool:
        if self.tags:
            tags = operation.raw.get("tags")
            if not isinstance(tags, list) or not any(tag in self.tags for tag in tags):
                return False
        if self.include and not any(map(operation.matches, self.include)):
            return False
        return not any(map(operation.matches, self.exclude))

    def find_problems(self, operations: Sequence[ApiOperation]) -> list[str]:
        """Returns the patterns that match no operation, each in words for a person."""
        chosen, names = NameFilter(tuple(self.include), tuple(self.exclude)), [one.id for one in operations]
        return [
            chosen.explain(pattern, names)
            for pattern in (*self.include, *self.exclude)
            if not any(one.matches(pattern) for one in operations)
        ]


def operations_of(document: Document, prefix: str, problems: list[str]) -> list[ApiOperation]:
    """Returns all operations in the document's order. Invalid ones are left out and reported in `problems`."""
    paths = document.root.get("paths")
    names: set[str] = set()
    found: list[ApiOperation] = []
    for path, item in paths.items() if isinstance(paths, Mapping) else ():
        try:
            path_item = _item(document, item)
        except BrokenOperation as problem:
            problems.append(f"{one_line(path)}: {problem}")
            continue
        for method, raw in _methods(path, path_item, problems):
            if len(found) == MOST_OPERATIONS:
                problems.append(f"only the first {MOST_OPERATIONS:,} operations are offered")
                return found
            given = raw.get("operationId")
            own = _id(given) if isinstance(given, str) and given.strip() else safe_name(f"{method.lower()}{path}")
            name = _make_unique(f"{prefix}__{safe_name(own)}", f"{method} {path}", names)
            found.append(ApiOperation(name, own, method, path, raw, path_item))
    return found


def safe_name(text: str) -> str:
    """Replaces everything but letters, digits, `_` and `-`."""
    return _UNSAFE.sub("_", text).strip("_") or "operation"


def prefix_of(text: str) -> str:
    """Returns a prefix for tool names: short, a letter first, and no `__`."""
    made = re.sub(r"_+", "_", safe_name(text))[:30].strip("_-").lower()
    return made if made[:1].isalpha() else f"api_{made}".rstrip("_")


def _id(given: str) -> str:
    return given if len(given) <= 200 and given.isascii() and given.isprintable() else one_line(given, 200)


def _item(document: Document, item: Any) -> Mapping[str, Any]:
    """Returns a path item; keys next to a reference count as well."""
    if not isinstance(item, Mapping):
        raise BrokenOperation("it is not a mapping")
    beside = {key: value for key, value in item.items() if key != "$ref"}
    return {**document.resolve(item), **beside} if "$ref" in item else item


def _methods(path: str, item: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, raw in item.items():
        method = key.upper()
        if method in METHODS and isinstance(raw, Mapping):
            yield method, raw
        elif method in METHODS or method == "TRACE":
            problems.append(
                f"{method} {one_line(path)}: {'it is not a mapping' if method != 'TRACE' else 'is not sent'}"
            )


def _make_unique(name: str, identity: str, names: set[str]) -> str:
    made = name if len(name) <= LONGEST_NAME else _add_hash(name, identity)
    if made in names:
        made = _add_hash(name, identity)
    while made in names:  # paths that differ only in replaced characters, with the same hash
        made = _add_hash(name, identity := f"{identity} ")
    names.add(made)
    return made


def _add_hash(name: str, identity: str) -> str:
    digest = blake2b(identity.encode("utf-8", "replace"), digest_size=3).hexdigest()
    return f"{name[: LONGEST_NAME - 7].rstrip('_')}_{digest}"


def _plain(text: Any) -> str:
    """Removes HTML tags from a text."""
    if not isinstance(text, str):
        return ""
    text = text[:_LOOKED_AT].strip()
    return _MARKUP.sub("", text) if "<" in text else text


# --- Chooses the server of an operation: the one that a person named, or a trusted one of the document.


MOST_ROUTES = 16

_VARIABLE = re.compile(r"\{([^{}]{1,100})\}")


class Route(NamedTuple):
    egress: Egress  # checks the request
    is_named: bool  # by a person: only then the server gets credentials, and may have a private address


class Servers:
    """Servers of a document. `given`: the person's server. `egress`: the person's egress; by default the call's own.

    A fetched document may only name its own origin, unless the egress names another. `ad_hoc`: the gate sees every
    call with its full URL, and no credentials are sent, so that any server is allowed.
    """

    def __init__(self, document: Document, given: str, egress: Egress | None, *, ad_hoc: bool = False) -> None:
        self._document = document
        self._given = given.rstrip("/")
        self._egress = egress
        self._ad_hoc = ad_hoc
        self._bases: dict[int, str] = {}
        self._routes: dict[tuple[Egress, str], Route] = {}
        if given:
            read_url(given)  # raises early

    def base(self, operation: ApiOperation | None = None) -> str:
        """Returns the URL that paths are appended to. Raises `ToolError` of kind `config_error`."""
        if self._given:
            return self._given
        key = id(operation)
        if key not in self._bases:
            self._bases[key] = self._of_document(operation)
        return self._bases[key]

    def is_named(self, url: Url) -> bool:
        """Returns whether a person named that server, and not only the document."""
        if self._given and read_url(self._given).origin == url.origin:
            return True
        if self._document.url and not self._ad_hoc and read_url(self._document.url).origin == url.origin:
            return True
        return _is_listed(self._egress if self._egress is not None else Egress.current(), url)

    def find_route(self, url: Url) -> Route:
        """Returns the route to a server. A server that a person named is allowed unless requests are switched off."""
        judged = self._egress if self._egress is not None else Egress.current()
        key = (judged, url.origin)
        found = self._routes.get(key)
        if found is None:
            is_named = self.is_named(url)
            found = Route(judged.reaching(url) if is_named and not self._ad_hoc else judged, is_named)
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            self._routes[key] = found
        return found

    def _of_document(self, operation: ApiOperation | None) -> str:
        holders = [operation.raw, operation.path_item] if operation is not None else []
        for holder in (*holders, self._document.root):
            if isinstance(holder.get("servers"), list) and holder["servers"]:
                return self._first_trusted(holder["servers"])
        return self._first_trusted([{"url": "/"}])

    def _first_trusted(self, servers: list[Any]) -> str:
        problems = []
        for server in servers[:20]:
            written = _fill_variables(server) if isinstance(server, Mapping) else ""
            if self._document.url:
                written = urljoin(self._document.url, written)
            elif "://" not in written:
                problems.append("it does not name its server")
                continue
            try:
                url = read_url(written)
            except ToolError as error:
                problems.append(f"its server {one_line(written, 100)!r}: {error.message}")
                continue
            if self._is_trusted(url):
                return written.partition("?")[0].partition("#")[0].rstrip("/")
            problems.append(f"it was fetched from another server and names the server {url.origin}")
        raise ToolError(
            f"the OpenAPI document {one_line(self._document.name, 100)}: {problems[0]}",
            ErrorKind.CONFIG,
            "Set the server with server=, or with `server:` in forge.yaml.",
        )

    def _is_trusted(self, url: Url) -> bool:
        return not self._document.url or self._ad_hoc or self.is_named(url)


def _is_listed(egress: Egress, url: Url) -> bool:
    """Returns whether the egress lists the URL, and not merely allows it as public."""
    try:
        Egress("allowlist", egress.domains, egress.private).judge(url)
    except ToolError:
        return False
    return True


def _fill_variables(server: Mapping[str, Any]) -> str:
    """Returns the URL with the defaults of its variables."""
    variables = server.get("variables")

    def default(found: re.Match[str]) -> str:
        said = variables.get(found[1]) if isinstance(variables, Mapping) else None
        return str(said.get("default", "")) if isinstance(said, Mapping) else found[0]

    url = server.get("url")
    return _VARIABLE.sub(default, url) if isinstance(url, str) else ""
