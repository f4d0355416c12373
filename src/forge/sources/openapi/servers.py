"""Chooses the server of an operation: the one that a person named, or a trusted one of the document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urljoin

from forge.core.errors import ErrorKind, ToolError
from forge.network.address import Url, read_url
from forge.network.egress import Egress
from forge.sources.openapi.document import Document
from forge.sources.openapi.operations import Operation
from forge.sources.untrusted import one_line

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

    def base(self, operation: Operation | None = None) -> str:
        """Returns the URL that paths are appended to. Raises `ToolError` of kind `config_error`."""
        if self._given:
            return self._given
        key = id(operation)
        if key not in self._bases:
            self._bases[key] = self._of_document(operation)
        return self._bases[key]

    def is_named(self, url: Url) -> bool:
        """Tells if a person named that server, and not only the document."""
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

    def _of_document(self, operation: Operation | None) -> str:
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
    """Tells if the egress lists the URL, and not merely allows it as public."""
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
