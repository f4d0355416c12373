"""An OpenAPI document: its version and title, and the resolution of references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from forge.sources.openapi.parsing import unreadable
from forge.sources.openapi.swagger import convert_swagger, is_swagger
from forge.sources.untrusted import one_line

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
