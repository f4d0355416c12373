"""Where an operation's requests go: to the server a person named, or to one of the document's that may be trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urljoin

from forge.core.errors import ErrorKind, ToolError
from forge.network.egress import Egress
from forge.network.url import Url, read_url
from forge.sources.openapi.document import Document
from forge.sources.openapi.operations import Operation
from forge.sources.untrusted import one_line

MOST_WAYS = 16

_VARIABLE = re.compile(r"\{([^{}]{1,100})\}")


class Way(NamedTuple):
    egress: Egress  # what a request is judged by
    is_named: bool  # by a person: only then it gets credentials, and may be a private address


class Servers:
    """`given`: what the person said. `egress`: what they allow; without one, what holds for the running call.

    Of a document that was fetched only its own origin is believed, unless the egress names another. `asked`: every
    call is shown to the gate with its whole URL and carries no credentials, so that any server will do.
    """

    def __init__(self, document: Document, given: str, egress: Egress | None, *, asked: bool = False) -> None:
        self._document = document
        self._given = given.rstrip("/")
        self._egress = egress
        self._asked = asked
        self._bases: dict[int, str] = {}
        self._ways: dict[tuple[Egress, str], Way] = {}
        if given:
            read_url(given)  # an error at once

    def base(self, operation: Operation | None = None) -> str:
        """The URL that paths are appended to. Raises `ToolError` of kind `config_error`."""
        if self._given:
            return self._given
        key = id(operation)
        if key not in self._bases:
            self._bases[key] = self._of_document(operation)
        return self._bases[key]

    def is_named(self, url: Url) -> bool:
        """Whether a person named that server, and not only the document."""
        if self._given and read_url(self._given).origin == url.origin:
            return True
        if self._document.url and not self._asked and read_url(self._document.url).origin == url.origin:
            return True
        return _names(self._egress if self._egress is not None else Egress.current(), url)

    def way(self, url: Url) -> Way:
        """How a server is reached: one that a person named, unless nothing may be, wherever it is."""
        judged = self._egress if self._egress is not None else Egress.current()
        key = (judged, url.origin)
        found = self._ways.get(key)
        if found is None:
            is_named = self.is_named(url)
            found = Way(judged.reaching(url) if is_named and not self._asked else judged, is_named)
            if len(self._ways) >= MOST_WAYS:
                self._ways.clear()
            self._ways[key] = found
        return found

    def _of_document(self, operation: Operation | None) -> str:
        holders = [operation.raw, operation.around] if operation is not None else []
        for holder in (*holders, self._document.root):
            if isinstance(holder.get("servers"), list) and holder["servers"]:
                return self._first(holder["servers"])
        return self._first([{"url": "/"}])

    def _first(self, servers: list[Any]) -> str:
        problems = []
        for server in servers[:20]:
            written = _filled(server) if isinstance(server, Mapping) else ""
            if self._document.url:
                written = urljoin(self._document.url, written)
            elif "://" not in written:
                problems.append("it does not say where its server is")
                continue
            try:
                url = read_url(written)
            except ToolError as error:
                problems.append(f"its server {one_line(written, 100)!r}: {error.message}")
                continue
            if self._is_believed(url):
                return written.partition("?")[0].partition("#")[0].rstrip("/")
            problems.append(f"it was fetched from elsewhere and names the server {url.origin}")
        raise ToolError(
            f"the OpenAPI document {one_line(self._document.name, 100)}: {problems[0]}",
            ErrorKind.CONFIG,
            "Say which server is meant with server=, or `server:` in forge.yaml.",
        )

    def _is_believed(self, url: Url) -> bool:
        return not self._document.url or self._asked or self.is_named(url)


def _names(egress: Egress, url: Url) -> bool:
    """Whether it is written down there, and not merely public."""
    try:
        Egress("allowlist", egress.domains, egress.private).judge(url)
    except ToolError:
        return False
    return True


def _filled(server: Mapping[str, Any]) -> str:
    """The URL with its variables at their defaults."""
    variables = server.get("variables")

    def default(found: re.Match[str]) -> str:
        said = variables.get(found[1]) if isinstance(variables, Mapping) else None
        return str(said.get("default", "")) if isinstance(said, Mapping) else found[0]

    url = server.get("url")
    return _VARIABLE.sub(default, url) if isinstance(url, str) else ""
