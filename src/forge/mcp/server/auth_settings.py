"""Settings of a protected resource: the issuer of its tokens, its URL, and what a scope allows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forge.core.errors import DefinitionError, ToolError
from forge.core.spec import Permission
from forge.network.address import read_url

if TYPE_CHECKING:
    from forge.core.spec import ToolSpec

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")  # RFC 6749
_PERMISSIONS = frozenset(one.value for one in Permission)
_LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAuth:
    """Protects a server over HTTP: clients need an access token that one issuer made for this server.

    `scopes` maps a scope to what it allows: permissions, `tool:GLOB`, or `*`. Without it, every valid token may call
    every tool. With a `client_id`, the issuer is asked about each token (introspection). Its `repr` omits the secret.

    Args:
        issuer: the URL of the authorization server.
        resource: the URL of this server, as clients write it.
        audience: the accepted audiences of a token; by default the resource.
        required_scopes: scopes that every request needs.
        scopes: what each scope allows.
        client_id: this server's own id at the issuer, for introspection.
        client_secret: the secret of that client.
    """

    issuer: str
    resource: str
    audience: tuple[str, ...] = ()
    required_scopes: tuple[str, ...] = ()
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Raises `DefinitionError`."""
        for name in ("issuer", "resource"):
            _check_url(name, getattr(self, name))
        for scope in (*self.required_scopes, *self.scopes):
            if not _SCOPE.fullmatch(scope):
                raise DefinitionError(f"ResourceAuth: {scope!r:.60} is not a scope: write visible ASCII, no spaces")
        for scope, allowed in self.scopes.items():
            for one in allowed:
                if one != "*" and one not in _PERMISSIONS and not one.startswith("tool:"):
                    message = f"ResourceAuth: the scope {scope} cannot allow {one!r:.60}"
                    raise DefinitionError(f"{message}; write {', '.join(sorted(_PERMISSIONS))}, tool:GLOB or *")
        if bool(self.client_id) != bool(self.client_secret):
            raise DefinitionError("ResourceAuth: introspection needs both a client_id and a client_secret")

    @property
    def audiences(self) -> tuple[str, ...]:
        return self.audience or (self.resource,)

    @property
    def all_scopes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.required_scopes, *self.scopes)))

    @property
    def metadata_path(self) -> str:
        """The path of the metadata (RFC 9728): the well-known path, then that of the resource."""
        return WELL_KNOWN + urlsplit(self.resource).path.rstrip("/")

    @property
    def metadata_url(self) -> str:
        parts = urlsplit(self.resource)
        return f"{parts.scheme}://{parts.netloc}{self.metadata_path}"

    def describe(self) -> dict[str, object]:
        """Returns the metadata of the resource."""
        found: dict[str, object] = {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Forge",
        }
        return found | ({"scopes_supported": list(self.all_scopes)} if self.all_scopes else {})

    def missing_for(self, spec: ToolSpec, granted: frozenset[str]) -> tuple[str, ...] | None:
        """Returns None if the scopes allow the tool. Otherwise returns scopes that would; () if no scope does."""
        return self._missing(spec.name, {one.value for one in spec.permissions}, granted)

    def missing_for_permission(self, permission: Permission, granted: frozenset[str]) -> tuple[str, ...] | None:
        """Returns None if the scopes allow a permission; otherwise scopes that would, as `missing_for` does."""
        return self._missing("", {permission.value}, granted)

    def _missing(self, tool: str, permissions: set[str], granted: frozenset[str]) -> tuple[str, ...] | None:
        if not self.scopes or self._allows(tool, permissions, granted):
            return None
        for scope in self.scopes:
            if self._allows(tool, permissions, frozenset({scope})):
                return (scope,)
        return tuple(self.scopes) if self._allows(tool, permissions, frozenset(self.scopes)) else ()

    def _allows(self, tool: str, permissions: set[str], granted: frozenset[str]) -> bool:
        """Returns whether the tool is named, or all its permissions are allowed. One without any needs some scope."""
        allowed = [one for scope, what in self.scopes.items() if scope in granted for one in what]
        if any(one == "*" or _names(one, tool) for one in allowed):
            return True
        return bool(allowed) and permissions <= set(allowed)


def _names(pattern: str, tool: str) -> bool:
    return pattern.startswith("tool:") and fnmatchcase(tool, pattern.removeprefix("tool:"))


def _check_url(name: str, text: str) -> None:
    try:
        url = read_url(text)
    except ToolError as error:
        raise DefinitionError(f"ResourceAuth: {name}: {error.message}") from None
    parts = urlsplit(text)
    if parts.query or parts.fragment or not text.isascii() or '"' in text or "\\" in text:
        raise DefinitionError(f"ResourceAuth: {name}: {text!r:.100} must have no query, no fragment and no quotes")
    if name == "issuer" and url.scheme != "https" and url.host not in _LOCAL:
        raise DefinitionError(f"ResourceAuth: issuer: {text!r:.100} is not encrypted; use https")
