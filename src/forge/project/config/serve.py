"""The keys about `forge serve`: whose access tokens it accepts over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from forge.project.config.section import PlainSection, Section

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.project.config.kinds import Key, Of, Single, Text, Variable
    from forge.project.config.reader import ConfigReader


class _ServeAuth(PlainSection, example={"issuer": "https://login.example.com", "scopes": {"tools:read": ["read"]}}):
    """Access tokens of an authorization server, for `forge serve --http`."""

    issuer: Annotated[
        Text,
        Key("The authorization server.", "https://login.example.com", required="the URL of the authorization server"),
    ]
    resource: Annotated[
        Text,
        Key(
            "The URL of this server, as clients write it. Default: the address that it listens on.",
            "https://tools.example.com/mcp",
        ),
    ]
    audience: Annotated[
        tuple[Text, ...], Single(), Key("The accepted audiences of a token. Default: the resource.", ["forge"])
    ]
    required_scopes: Annotated[tuple[Text, ...], Single(), Key("Scopes that every request needs.", ["tools"])]
    scopes: Annotated[
        Mapping[str, Annotated[tuple[Text, ...], Single()]],
        Key(
            "What each scope allows: permissions, tool:GLOB or *. Without it, every valid token may call every tool.",
            {"tools:read": ["read"], "tools:all": ["*"]},
        ),
    ]
    client_id: Annotated[Text, Key("Asks the issuer about each token: the id of this server there.", "forge")]
    client_secret_env: Annotated[
        Variable, Key("The environment variable with the secret of `client_id`.", "FORGE_SECRET")
    ]

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """As `ResourceAuth` takes it."""
        found: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
        if "scopes" in found:
            found["scopes"] = {name: tuple(what) for name, what in values["scopes"].items()}
        return found


class ServeEntry(Section, example={"auth": {"issuer": "https://login.example.com"}}):
    """Settings of `forge serve`."""

    auth: Annotated[Mapping[str, Any], Of(_ServeAuth), Key()] = field(default_factory=dict)
