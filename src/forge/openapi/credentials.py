"""Reads credentials from the configuration and puts them where the document requires them."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, cast
from urllib.parse import quote

from forge.core.arguments.names import near
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.secrets import SHORTEST
from forge.core.secrets.live_text import LiveText, read_text
from forge.openapi.document import BrokenOperation, Document

Location = Literal["header", "query", "cookie"]
Auth = TypedDict(
    "Auth",
    {
        "bearer": str | LiveText,
        "bearer_env": str,
        "api_key": str | LiveText,
        "api_key_env": str,
        "name": str,
        "in": Location,
        "basic": str | Sequence[str | LiveText] | Mapping[str, str | LiveText],
        "basic_env": str | Mapping[str, str],
    },
    total=False,
)
"""The credentials of requests: one of `bearer`, `api_key` (with `name` and `in`) and `basic`, or its variable."""

_KEYS = tuple(Auth.__annotations__)
_HOW = "Write one of bearer_env, api_key_env (with name and in) or basic_env: {user_env, password_env}."


@dataclass(frozen=True, slots=True)
class Credential:
    kind: Literal["bearer", "basic", "api_key"]
    value: str = field(repr=False)
    name: str = ""
    location: Location | Literal[""] = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    problem: str = ""  # the reason why there is no value


@dataclass(frozen=True, slots=True)
class PlacedCredentials:
    """The parts of every request that carry the credentials to their server."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    query: tuple[str, ...] = field(default=(), repr=False)  # `name=value`
    cookies: tuple[str, ...] = field(default=(), repr=False)
    hidden: frozenset[tuple[str, str]] = frozenset()  # the parameters they replace, names in lower case
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.headers or self.query or self.cookies or self.problem)


NONE = PlacedCredentials()


def read_auth(auth: Auth | Sequence[Auth] | None, environment: Mapping[str, str] = os.environ) -> list[Credential]:
    """Reads the configured credentials; a missing variable is reported when a call needs it."""
    if auth is None:
        return []
    return [_read(one, environment) for one in ([auth] if isinstance(auth, Mapping) else auth)]


def find_live(auth: Auth | Sequence[Auth] | None, headers: Mapping[str, str | LiveText] | None) -> tuple[LiveText, ...]:
    """Returns the texts that are to be read again for later requests."""
    found: list[Any] = [*(headers or {}).values()]
    for one in [auth] if isinstance(auth, Mapping) else auth or ():
        for given in one.values():
            if isinstance(given, Mapping):
                found += given.values()
            else:
                found += given if isinstance(given, list | tuple) else [given]
    return tuple(one for one in found if isinstance(one, LiveText))


def _read(auth: Mapping[str, Any], environment: Mapping[str, str]) -> Credential:
    for key in auth:
        if key not in _KEYS:
            hint = near(str(key), _KEYS, 1)
            raise DefinitionError(f"auth: unknown key {key!r}" + (f"; did you mean {hint[0]!r}?" if hint else ""))
    kinds = [kind for kind in ("bearer", "api_key", "basic") if kind in auth or f"{kind}_env" in auth]
    if len(kinds) != 1:
        raise DefinitionError(f"auth: expected exactly one way to authenticate. {_HOW}")
    kind = cast(Literal["bearer", "basic", "api_key"], kinds[0])
    if kind == "basic":
        return _basic(auth, environment)
    value, problem = _value(auth, kind, environment)
    location = auth.get("in", "")
    if location not in ("", "header", "query", "cookie"):
        raise DefinitionError(f"auth: in must be header, query or cookie, not {location!r}")
    return Credential(kind, value, str(auth.get("name", "")), location, _spellings(value), problem)


def _value(auth: Mapping[str, Any], kind: str, environment: Mapping[str, str]) -> tuple[str, str]:
    if kind in auth:
        return str(read_text(auth[kind])), ""
    return _read_variable(str(auth[f"{kind}_env"]), environment)


def _read_variable(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    value = environment.get(name, "").strip()
    return value, "" if value else f"the environment variable {name} is not set"


def _basic(auth: Mapping[str, Any], environment: Mapping[str, str]) -> Credential:
    given = auth.get("basic", auth.get("basic_env"))
    problem = ""
    if "basic" in auth and isinstance(given, str):
        user, _, password = given.partition(":")
    elif "basic" in auth and isinstance(given, Sequence) and len(given) == 2:
        user, password = str(read_text(given[0])), str(read_text(given[1]))
    elif "basic" in auth and isinstance(given, Mapping) and {"user", "password"} <= given.keys():
        user, password = str(read_text(given["user"])), str(read_text(given["password"]))
    elif isinstance(given, str):
        whole, problem = _read_variable(given, environment)
        user, _, password = whole.partition(":")
    elif "basic" not in auth and isinstance(given, Mapping) and (names := _both_names(given)):
        user, problem = _read_variable(names[0], environment)
        password, missing = _read_variable(names[1], environment)
        problem = problem or missing
    else:
        raise DefinitionError(f"auth: basic is invalid. {_HOW}")
    encoded = b64encode(f"{user}:{password}".encode()).decode()
    return Credential("basic", encoded, secrets=(*_spellings(password), *_spellings(encoded)), problem=problem)


def _both_names(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns the variables of user and password, also in the spelling of forge.yaml."""
    user, password = (given.get(f"{key}_env", given.get(key)) for key in ("user", "password"))
    return (str(user), str(password)) if user and password else None


def place_credentials(credentials: Sequence[Credential], document: Document) -> PlacedCredentials:
    """Places credentials as configured, else by the document's security schemes. Raises `ToolError`."""
    headers: list[tuple[str, str]] = []
    query: list[str] = []
    cookies: list[str] = []
    hidden: set[tuple[str, str]] = set()
    for one in credentials:
        if one.kind != "api_key":
            scheme = "Bearer" if one.kind == "bearer" else "Basic"
            headers.append(("Authorization", f"{scheme} {one.value}"))
            hidden.add(("header", "authorization"))
            continue
        name, location = _find_position(one, document)
        hidden.add((location, name.lower()))
        if location == "cookie":
            hidden.add(("header", "cookie"))  # one header carries all cookies
        if location == "header":
            headers.append((name, one.value))
        else:
            (query if location == "query" else cookies).append(f"{quote(name, safe='')}={quote(one.value, safe='')}")
    problem = next((one.problem for one in credentials if one.problem), "")
    return PlacedCredentials(tuple(headers), tuple(query), tuple(cookies), frozenset(hidden), problem)


def _find_position(credential: Credential, document: Document) -> tuple[str, str]:
    schemes = _schemes(document)
    if credential.name:
        if credential.location:
            return credential.name, credential.location
        named = {position for key, position in schemes if credential.name in (key, position[0])}
        return named.pop() if len(named) == 1 else (credential.name, "header")
    fitting = {position for _, position in schemes if credential.location in ("", position[1])}
    if len(fitting) == 1:
        return fitting.pop()
    raise ToolError(
        f"the document declares {len(fitting) or 'no'} places for an API key",
        ErrorKind.CONFIG,
        "Choose one: set name and in next to api_key_env.",
    )


def _schemes(document: Document) -> list[tuple[str, tuple[str, str]]]:
    """Returns the document's API key schemes: their key, and the name and location of the API key."""
    found = []
    for key, one in document.section("securitySchemes").items():
        try:
            scheme = document.resolve(one)
        except BrokenOperation:
            continue
        name, location = scheme.get("name"), scheme.get("in")
        if scheme.get("type") == "apiKey" and isinstance(name, str) and location in ("header", "query", "cookie"):
            found.append((key, (name, str(location))))
    return found


def _spellings(value: str) -> tuple[str, ...]:
    """Returns the secret's spellings, plain and URL-encoded. Short ones are omitted: they could be ordinary words."""
    return tuple(dict.fromkeys(one for one in (value, quote(value, safe="")) if len(one) >= SHORTEST))
