"""The sections of `forge.yaml` that name other people's tools: MCP servers, OpenAPI documents, webhooks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from forge.app.reading import Reader, UnsetVariable

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_TRANSPORTS = ("stdio", "http", "streamable-http")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)
_SERVER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


class McpEntry(NamedTuple):
    """A server: a program to start, or a URL."""

    place: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = _NOTHING
    directory: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = _NOTHING
    prefix: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = _NOTHING
    timeout: float | None = None
    hidden: bool | None = None
    secrets: tuple[str, ...] = ()  # values that came from the environment


class OpenApiEntry(NamedTuple):
    """A document, and how its server is asked."""

    place: str
    spec: str
    server: str = ""
    auth: Mapping[str, Any] = _NOTHING
    headers: Mapping[str, str] = _NOTHING
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    timeout: float | None = None
    hidden: bool | None = None
    idempotency_header: str = ""
    secrets: tuple[str, ...] = ()


class WebhookEntry(NamedTuple):
    """A URL that takes JSON."""

    place: str
    url: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = _NOTHING
    method: str = "POST"
    timeout: float | None = None
    idempotency_header: str = ""
    secrets: tuple[str, ...] = ()


def mcp_entry(reader: Reader, value: Any, place: str) -> McpEntry | None:
    """The shape that other clients use too. None: it is disabled."""
    _check_name(reader, place)
    keys = (
        "args autoApprove command cwd disabled env exclude headers headers_env hidden include prefix rename timeout"
        " transport type url"
    )
    said = reader.mapping(value, place, keys.split())
    if reader.flag(said.get("disabled", False), f"{place}.disabled"):
        return None
    if "autoApprove" in said:
        raise reader.error(
            f"{place}.autoApprove", "nothing is approved by a server's entry; write a rule such as allow tool:git__*"
        )
    for key in ("type", "transport"):
        reader.choice(said.get(key, "stdio"), f"{place}.{key}", _TRANSPORTS)
    if ("command" in said) == ("url" in said):
        raise reader.error(place, "expected either a command or a url")
    values = _Values(reader)
    command: tuple[str, ...] = ()
    if "command" in said:
        args = reader.sequence(said.get("args", []), f"{place}.args")
        command = (
            values.text(said["command"], f"{place}.command"),
            *(values.argument(one, f"{place}.args[{index}]") for index, one in enumerate(args)),
        )
    directory = reader.text(said["cwd"], f"{place}.cwd") if "cwd" in said else None
    return McpEntry(
        place=place,
        command=command,
        environment=values.pairs(said.get("env", {}), f"{place}.env"),
        directory=Path(reader.name).parent / directory if directory else None,
        url=values.text(said["url"], f"{place}.url") if "url" in said else "",
        headers=values.headers(said, place),
        prefix=reader.text(said["prefix"], f"{place}.prefix") if "prefix" in said else "",
        rename=reader.pairs(said.get("rename", {}), f"{place}.rename"),
        **_filters(reader, said, place),
        secrets=values.found(),
    )


def openapi_entry(reader: Reader, value: Any, place: str) -> OpenApiEntry:
    _check_name(reader, place)
    keys = "auth exclude headers headers_env hidden idempotency_header include server spec tags timeout"
    said = reader.mapping({"spec": value} if isinstance(value, str) else value, place, keys.split())
    if "spec" not in said:
        raise reader.error(place, "spec is missing: a path or a URL of the document")
    values = _Values(reader)
    return OpenApiEntry(
        place=place,
        spec=_beside(reader, values.text(said["spec"], f"{place}.spec")),
        server=values.text(said["server"], f"{place}.server") if "server" in said else "",
        auth=_auth(reader, values, said.get("auth", {}), f"{place}.auth"),
        headers=values.headers(said, place),
        tags=reader.texts(said.get("tags", []), f"{place}.tags"),
        **_filters(reader, said, place),
        idempotency_header=_header(reader, said, place),
        secrets=values.found(),
    )


def webhook_entry(reader: Reader, value: Any, place: str) -> WebhookEntry:
    keys = "description headers headers_env idempotency_header method parameters timeout url url_env"
    said = reader.mapping({"url": value} if isinstance(value, str) else value, place, keys.split())
    if ("url" in said) == ("url_env" in said):
        raise reader.error(place, "expected either a url or url_env, the variable that holds it")
    values = _Values(reader)
    from_variable = "url_env" in said
    url = (
        values.variable(said["url_env"], f"{place}.url_env")
        if from_variable
        else values.text(said["url"], f"{place}.url")
    )
    return WebhookEntry(
        place=place,
        url=url,
        description=reader.text(said["description"], f"{place}.description") if "description" in said else "",
        parameters=reader.mapping(said["parameters"], f"{place}.parameters") if "parameters" in said else None,
        headers=values.headers(said, place),
        method=reader.text(said.get("method", "POST"), f"{place}.method").upper(),
        timeout=reader.number(said["timeout"], f"{place}.timeout", above=0) if "timeout" in said else None,
        idempotency_header=_header(reader, said, place),
        secrets=values.found(),
    )


class _Values:
    """Texts in which `${NAME}` and `${NAME:-default}` stand for variables of the environment.

    Those in headers and credentials are noted as secret, elsewhere those whose name says so.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._found: list[str] = []

    def found(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._found))

    def text(self, value: Any, place: str, *, secret: bool = False) -> str:
        said = self.reader.text(value, place)
        return _VARIABLE.sub(lambda match: self._value(match[1], match[2], place, secret=secret), said)

    def argument(self, value: Any, place: str, *, secret: bool = False) -> str:
        """May be empty, and a number is what was meant as text."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        return self.text(value, place, secret=secret) if value != "" else ""

    def pairs(self, value: Any, place: str) -> dict[str, str]:
        return {key: self._named(key, one, f"{place}.{key}") for key, one in self.reader.mapping(value, place).items()}

    def _named(self, key: str, value: Any, place: str) -> str:
        """A variable or a header: whose name says that it is secret, its value is one, also where it is written out."""
        is_secret = _SECRET.search(key) is not None or key.lower() == "cookie"
        text = self.argument(value, place, secret=is_secret)
        if is_secret and self.reader.environment is not None:
            self._found.append(text)
        return text

    def headers(self, said: Mapping[str, Any], place: str) -> dict[str, str]:
        plain = self.pairs(said.get("headers", {}), f"{place}.headers")
        named = self.reader.mapping(said.get("headers_env", {}), f"{place}.headers_env")
        return {**plain, **{key: self.variable(one, f"{place}.headers_env.{key}") for key, one in named.items()}}

    def variable(self, value: Any, place: str) -> str:
        """The value of the variable that is named."""
        return self._value(self.reader.variable(value, place), None, place, secret=True)

    def _value(self, name: str, default: str | None, place: str, *, secret: bool) -> str:
        environment = self.reader.environment
        if default is None:
            self.reader.variables[name] = None
        if environment is None:
            return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"
        value = environment.get(name) or default
        if value is None:
            said = self.reader.error(place, f"the environment variable {name} is not set")
            raise UnsetVariable(said.message, said.kind, f"Set it before Forge starts: export {name}=…")
        if environment.get(name) and (secret or _SECRET.search(name)):
            self._found.append(value)
        return value


def _filters(reader: Reader, said: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What servers and documents have in common."""
    hidden = said.get("hidden", "auto")
    return {
        "include": reader.texts(said.get("include", []), f"{place}.include"),
        "exclude": reader.texts(said.get("exclude", []), f"{place}.exclude"),
        "timeout": reader.number(said["timeout"], f"{place}.timeout", above=0) if "timeout" in said else None,
        "hidden": None if hidden == "auto" else reader.flag(hidden, f"{place}.hidden"),
    }


def _auth(reader: Reader, values: _Values, value: Any, place: str) -> dict[str, Any]:
    """As `openapi(auth=…)` takes it, with the values of the variables that are named."""
    said = reader.mapping(value, place, ("api_key_env", "basic_env", "bearer_env", "in", "name"))
    if len(kinds := [key for key in said if key.endswith("_env")]) != 1 and said:
        raise reader.error(place, "expected one of api_key_env, basic_env, bearer_env")
    if not said:
        return {}
    more: dict[str, str] = {key: reader.text(said[key], f"{place}.{key}") for key in ("name", "in") if key in said}
    reader.choice(more.get("in", "header"), f"{place}.in", ("header", "query", "cookie"))
    if kinds[0] == "basic_env":
        both = reader.mapping(said["basic_env"], f"{place}.basic_env", ("password", "user"))
        if missing := {"password", "user"} - both.keys():
            raise reader.error(f"{place}.basic_env", f"{sorted(missing)[0]} is missing: the name of a variable")
        user, password = (values.variable(both[key], f"{place}.basic_env.{key}") for key in ("user", "password"))
        return {"basic": (user, password)}
    kind = kinds[0].removesuffix("_env")
    return {kind: values.variable(said[kinds[0]], f"{place}.{kinds[0]}"), **more}


def _header(reader: Reader, said: Mapping[str, Any], place: str) -> str:
    key = "idempotency_header"
    return reader.text(said[key], f"{place}.{key}") if key in said else ""


def _beside(reader: Reader, spec: str) -> str:
    """A path counts from where the configuration is."""
    return spec if spec.lower().startswith(("http://", "https://")) else str(Path(reader.name).parent / spec)


def _check_name(reader: Reader, place: str) -> None:
    name = place.partition(".")[2]
    if not _SERVER_NAME.fullmatch(name) or "__" in name:
        raise reader.error(place, "a name is a letter, then up to 31 letters, digits, - or single _")
