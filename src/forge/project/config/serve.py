"""The keys about `forge serve`: whose access tokens it accepts over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forge.project.config.kinds import NOTHING, ListOf, MappingOf, Text, Variable
from forge.project.config.reader import ConfigReader
from forge.project.config.section import Section, key

_WORDS = ListOf(Text(), single=True)


class _ServeAuth(Section, example={"issuer": "https://login.example.com", "scopes": {"tools:read": ["read"]}}):
    """Access tokens of an authorization server, for `forge serve --http`."""

    issuer: str = key(
        Text(),
        "The authorization server.",
        "https://login.example.com",
        required="the URL of the authorization server",
    )
    resource: str = key(
        Text(),
        "The URL of this server, as clients write it. Default: the address that it listens on.",
        "https://tools.example.com/mcp",
    )
    audience: tuple[str, ...] = key(_WORDS, "The accepted audiences of a token. Default: the resource.", ["forge"])
    required_scopes: tuple[str, ...] = key(_WORDS, "Scopes that every request needs.", ["tools"])
    scopes: Mapping[str, tuple[str, ...]] = key(
        MappingOf(_WORDS),
        "What each scope allows: permissions, tool:GLOB or *. Without it, every valid token may call every tool.",
        {"tools:read": ["read"], "tools:all": ["*"]},
    )
    client_id: str = key(Text(), "Asks the issuer about each token: the id of this server there.", "forge")
    client_secret_env: str = key(
        Variable(look_up=True),
        "The environment variable with the secret of `client_id`.",
        "FORGE_SECRET",
    )

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """As `ResourceAuth` takes it."""
        found: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
        if "scopes" in found:
            found["scopes"] = {name: tuple(what) for name, what in values["scopes"].items()}
        return found


class ServeEntry(Section, example={"auth": {"issuer": "https://login.example.com"}}):
    """Settings of `forge serve`."""

    auth: Mapping[str, Any] = key(_ServeAuth, default=NOTHING)
