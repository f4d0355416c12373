"""Settings of a login: the grant, the client, its credentials and scopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from forge.core.arguments.explain import near
from forge.core.errors import DefinitionError
from forge.core.secrets import SHORTEST

Grant = Literal["authorization_code", "client_credentials", "workload", "enterprise"]
GRANTS: tuple[str, ...] = get_args(Grant)
_NEEDS = {
    "client_credentials": ("client_id",),
    "workload": ("assertion",),
    "enterprise": ("client_id", "client_secret", "id_token", "idp_token_url", "idp_client_id"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """Everything is optional: without a client, Forge registers itself. Its `repr` omits secrets.

    `authorization_code`: a person logs in. `client_credentials`: with a `client_secret`, or a `private_key` in PEM.
    `workload`: exchanges the `assertion`, a JWT of the platform. `enterprise`: exchanges the `id_token` of a person at
    the company's identity provider. `issuer` is the only authorization server that gets credentials.
    """

    grant: Grant = "authorization_code"
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    client_metadata_url: str = ""  # a document that describes the client, instead of a registration
    private_key: str = field(default="", repr=False)
    assertion: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    idp_token_url: str = ""
    idp_client_id: str = ""
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0  # 0: any free one

    @property
    def is_personal(self) -> bool:
        """True if a person has to log in."""
        return self.grant == "authorization_code"

    @property
    def secrets(self) -> tuple[str, ...]:
        found = (self.client_secret, self.private_key, self.assertion, self.id_token)
        return tuple(value for value in found if len(value) >= SHORTEST)

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs that a person configured: they may be private."""
        return tuple(filter(None, (self.issuer, self.idp_token_url)))


def read_settings(said: AuthSettings | Mapping[str, Any] | None) -> AuthSettings:
    """Returns the settings. Raises `DefinitionError`."""
    if isinstance(said, AuthSettings):
        return said
    known = {one.name for one in fields(AuthSettings)}
    for name in said or {}:
        if name not in known:
            advice = f"; did you mean {', '.join(near(name, known))}" if near(name, known) else ""
            raise DefinitionError(f"mcp(auth=…): there is no setting {name!r}{advice}")
    values = dict(said or {})
    scopes = values.get("scopes", ())
    values["scopes"] = tuple(scopes.split() if isinstance(scopes, str) else scopes)
    settings = AuthSettings(**values)
    if settings.grant not in GRANTS:
        raise DefinitionError(f"mcp(auth=…): the grant is one of {', '.join(GRANTS)}, not {settings.grant!r:.60}")
    missing = [name for name in _NEEDS.get(settings.grant, ()) if not getattr(settings, name)]
    if settings.grant == "client_credentials" and not (settings.client_secret or settings.private_key):
        missing.append("client_secret or private_key")
    if missing:
        raise DefinitionError(f"mcp(auth=…): the grant {settings.grant} needs {', '.join(missing)}")
    return settings
