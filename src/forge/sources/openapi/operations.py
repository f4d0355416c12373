"""The operations of a document, by names that are safe and unique."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any

from forge.network.client import METHODS
from forge.sources.openapi.document import Broken, Document
from forge.sources.untrusted import clean, one_line

MOST = 20_000  # operations of one document
LONGEST_NAME = 64

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]+")
_LOOKED_AT = 4_000  # characters of a description
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation as the document has it; nothing in it was looked at yet."""

    name: str  # of its tool
    id: str  # as the document says, or else GET_pets_id
    method: str
    path: str
    raw: Mapping[str, Any] = field(repr=False)
    around: Mapping[str, Any] = field(repr=False)  # the path item it stands in

    @property
    def title(self) -> str:
        return f"{self.method} {self.path}"

    def description(self) -> str:
        """Its summary, then its description; texts of others, so cleaned and bounded."""
        summary, text = (_plain(self.raw.get(key)) for key in ("summary", "description"))
        parts = [summary] if summary else []
        if text and text != summary:
            parts.append(text)
        if self.raw.get("deprecated") is True:
            parts.insert(0, "Deprecated.")
        return clean("\n\n".join(parts)) or one_line(self.title)

    def matches(self, pattern: str) -> bool:
        """By its id, its tool's name, or as in `GET /pets/*`."""
        return any(fnmatchcase(text, pattern) for text in (self.id, self.name, self.title))


@dataclass(frozen=True, slots=True)
class Filter:
    """Which operations are wanted; nothing means all of them."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    tags: Sequence[str] = ()

    def keeps(self, operation: Operation) -> bool:
        if self.tags:
            tags = operation.raw.get("tags")
            if not isinstance(tags, list) or not any(tag in self.tags for tag in tags):
                return False
        if self.include and not any(map(operation.matches, self.include)):
            return False
        return not any(map(operation.matches, self.exclude))


def operations_of(document: Document, prefix: str, problems: list[str]) -> list[Operation]:
    """All of them, in the document's order. What cannot be one is left out and told in `problems`."""
    paths = document.root.get("paths")
    names: set[str] = set()
    found: list[Operation] = []
    for path, item in paths.items() if isinstance(paths, Mapping) else ():
        try:
            around = _item(document, item)
        except Broken as problem:
            problems.append(f"{one_line(path)}: {problem}")
            continue
        for method, raw in _methods(path, around, problems):
            if len(found) == MOST:
                problems.append(f"only the first {MOST:,} operations are offered")
                return found
            given = raw.get("operationId")
            own = _id(given) if isinstance(given, str) and given.strip() else safe(f"{method.lower()}{path}")
            name = _unique(f"{prefix}__{safe(own)}", f"{method} {path}", names)
            found.append(Operation(name, own, method, path, raw, around))
    return found


def safe(text: str) -> str:
    """Letters, digits, `_` and `-` only."""
    return _UNSAFE.sub("_", text).strip("_") or "operation"


def prefix_of(text: str) -> str:
    """The same as the beginning of a tool's name: short, a letter first, and no `__`."""
    made = re.sub(r"_+", "_", safe(text))[:30].strip("_-").lower()
    return made if made[:1].isalpha() else f"api_{made}".rstrip("_")


def _id(given: str) -> str:
    return given if len(given) <= 200 and given.isascii() and given.isprintable() else one_line(given, 200)


def _item(document: Document, item: Any) -> Mapping[str, Any]:
    """A path item; what stands beside a reference counts as well."""
    if not isinstance(item, Mapping):
        raise Broken("it is no mapping")
    beside = {key: value for key, value in item.items() if key != "$ref"}
    return {**document.resolved(item), **beside} if "$ref" in item else item


def _methods(path: str, item: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, raw in item.items():
        method = key.upper()
        if method in METHODS and isinstance(raw, Mapping):
            yield method, raw
        elif method in METHODS or method == "TRACE":
            problems.append(f"{method} {one_line(path)}: {'it is no mapping' if method != 'TRACE' else 'is not sent'}")


def _unique(name: str, identity: str, names: set[str]) -> str:
    made = name if len(name) <= LONGEST_NAME else _hashed(name, identity)
    if made in names:
        made = _hashed(name, identity)
    while made in names:  # two paths that only differ in what was cut or replaced, and a hash that is the same
        made = _hashed(name, identity := f"{identity} ")
    names.add(made)
    return made


def _hashed(name: str, identity: str) -> str:
    digest = blake2b(identity.encode("utf-8", "replace"), digest_size=3).hexdigest()
    return f"{name[: LONGEST_NAME - 7].rstrip('_')}_{digest}"


def _plain(text: Any) -> str:
    """Without the tags that some documents have in their texts."""
    if not isinstance(text, str):
        return ""
    text = text[:_LOOKED_AT].strip()
    return _MARKUP.sub("", text) if "<" in text else text
