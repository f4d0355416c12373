"""The keys about other people's tools: MCP servers, OpenAPI documents, webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forge.project.config.kinds import (
    NOTHING,
    Argument,
    AsWritten,
    Choice,
    FilePath,
    Filled,
    Flag,
    ListOf,
    MappingOf,
    Number,
    Pairs,
    Schema,
    Text,
    Variable,
)
from forge.project.config.reader import Reader
from forge.project.config.section import ExactlyOne, Section, key

_GLOBS = ListOf(Text(), single=True)
_VALUE = Variable(look_up=True)
_TRANSPORT = Choice("stdio", "http", "streamable-http")
_A_VARIABLE = "the name of a variable"
_CREDENTIALS = ("api_key_env", "basic_env", "bearer_env")
_NO_APPROVAL = "nothing is approved by a server's entry; write a rule such as allow tool:git__*"
_IDEMPOTENCY = (
    "The header by which the server does a request once, however often it arrives: calls may be repeated then."
)


class SourceEntry(Section):
    """Headers may name variables. `secrets` are the values that came from the environment."""

    plain_headers: Mapping[str, str] = key(
        Pairs(), "Headers; ${NAME} stands for a variable.", {"Authorization": "Bearer ${TOKEN}"}, name="headers"
    )
    headers_env: Mapping[str, str] = key(
        MappingOf(_VALUE), "Headers whose values are held by variables.", {"Authorization": "DOCS_TOKEN"}
    )
    timeout: float | None = key(Number(), "Seconds.", 30)
    secrets: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        return {**self.plain_headers, **self.headers_env}

    @classmethod
    def read(cls, reader: Reader, value: Any, key_path: str) -> Any:
        reader.secrets.clear()
        return super().read(reader, value, key_path)

    @classmethod
    def from_keys(cls, reader: Reader, values: dict[str, Any], key_path: str) -> Any:
        return super().from_keys(reader, {**values, "secrets": tuple(dict.fromkeys(reader.secrets))}, key_path)


class _Hidden(Flag):
    empty: Any = None

    def read(self, reader: Reader, value: Any, key_path: str) -> Any:
        return None if value == "auto" else super().read(reader, value, key_path)

    def schema(self) -> Schema:
        return {"enum": ["auto", True, False]}


class FilteredEntry(SourceEntry):
    """A source of several tools."""

    include: tuple[str, ...] = key(_GLOBS, "Only these; globs.", ["read_*"])
    exclude: tuple[str, ...] = key(_GLOBS, "Not these; globs.", ["*_delete"])
    hidden: bool | None = key(
        _Hidden(), "Whether tools are shown to the model only when `tool_search` finds them.", True
    )


class McpEntry(
    FilteredEntry,
    checks=[ExactlyOne(("command", "url"), "either a command or a url")],
    example={"command": "uvx", "args": ["mcp-server-git"]},
):
    """A server: a program to start, or a URL."""

    program: str = key(Filled(), "The program to start.", "uvx", name="command")
    args: tuple[str, ...] = key(ListOf(Argument()), "Its arguments.", ["mcp-server-git"])
    environment: Mapping[str, str] = key(
        Pairs(), "Its environment; ${NAME} stands for a variable.", {"TOKEN": "${GIT_TOKEN}"}, name="env"
    )
    directory: Path | None = key(FilePath(), "Where it runs; relative to this file.", ".", name="cwd")
    url: str = key(Filled(), "Instead of a command: where it is.", "https://docs.example.com/mcp")
    type: str = key(_TRANSPORT, "How it is reached; known from the command or the URL.", "stdio")
    transport: str = key(_TRANSPORT, "The same, as other clients write it.", "stdio")
    prefix: str = key(Text(), "Its tools are PREFIX__NAME; by default the server's name.", "git")
    rename: Mapping[str, str] = key(MappingOf(Text()), "Other names for its tools.", {"git_status": "status"})
    disabled: bool = key(Flag(), "Leave it out.", True)
    auto_approve: None = key(AsWritten({"not": {}}), "Nothing: rules approve.", name="autoApprove")

    @property
    def command(self) -> tuple[str, ...]:
        return (self.program, *self.args) if self.program else ()

    @classmethod
    def read(cls, reader: Reader, value: Any, key_path: str) -> Any:
        """Returns None for a server that is disabled: only the names of its keys are checked."""
        said = reader.mapping(value, key_path, cls.keys)
        if Flag().read(reader, said.get("disabled", False), f"{key_path}.disabled"):
            return None
        if "autoApprove" in said:
            raise reader.error(f"{key_path}.autoApprove", _NO_APPROVAL)
        return super().read(reader, value, key_path)

    @classmethod
    def schema(cls) -> Schema:
        entry = super().schema()
        return {
            "type": "object",
            "propertyNames": {"enum": sorted(cls.keys)},
            "description": entry.pop("description"),
            "examples": entry.pop("examples"),
            "if": {"required": ["disabled"], "properties": {"disabled": {"const": True}}},
            "else": entry,
        }


class _BasicAuth(Section, example={"user": "API_USER", "password": "API_PASSWORD"}):
    """The variables that hold a name and a password."""

    user: str = key(_VALUE, "The variable that holds the name.", "API_USER", required=_A_VARIABLE)
    password: str = key(_VALUE, "The variable that holds the password.", "API_PASSWORD", required=_A_VARIABLE)

    @classmethod
    def from_keys(cls, reader: Reader, values: dict[str, Any], key_path: str) -> Any:
        return (values["user"], values["password"])


class _Auth(
    Section,
    checks=[ExactlyOne(_CREDENTIALS, f"one of {', '.join(_CREDENTIALS)}", or_empty=True)],
    example={"bearer_env": "PETS_TOKEN"},
):
    """Credentials, as names of variables."""

    bearer: str = key(_VALUE, "The variable that holds a token.", "PETS_TOKEN", name="bearer_env")
    api_key: str = key(_VALUE, "The variable that holds a key.", "PETS_KEY", name="api_key_env")
    basic: tuple[str, str] = key(_BasicAuth, name="basic_env")
    name: str = key(Text(), "Of the header, parameter or cookie that has the key.", "X-API-Key")
    where: str = key(Choice("header", "query", "cookie"), "Where the key is sent.", "header", name="in")

    @classmethod
    def from_keys(cls, reader: Reader, values: dict[str, Any], key_path: str) -> Any:
        """As `openapi(auth=…)` takes it."""
        if "basic" in values:
            return {"basic": values["basic"]}
        return {("in" if name == "where" else name): one for name, one in values.items()}


class _Spec(Filled):
    def read(self, reader: Reader, value: Any, key_path: str) -> Any:
        text = super().read(reader, value, key_path)
        return text if text.lower().startswith(("http://", "https://")) else str(reader.path(text))


class OpenApiEntry(
    FilteredEntry, alone="spec", example={"spec": "./petstore.yaml", "auth": {"bearer_env": "PETS_TOKEN"}}
):
    """An OpenAPI document, whose operations are tools."""

    spec: str = key(
        _Spec(),
        "The document: a path, relative to this file, or a URL.",
        "./petstore.yaml",
        required="a path or a URL of the document",
    )
    server: str = key(Filled(), "Where its operations are.", "https://api.example.com")
    auth: Mapping[str, Any] = key(_Auth, default=NOTHING)
    tags: tuple[str, ...] = key(_GLOBS, "Only operations with one of these.", ["pets"])
    idempotency_header: str = key(Text(), _IDEMPOTENCY, "Idempotency-Key")


class _Method(Text):
    def read(self, reader: Reader, value: Any, key_path: str) -> Any:
        return reader.text(value, key_path).upper()


class WebhookEntry(
    SourceEntry,
    alone="url",
    checks=[ExactlyOne(("url", "url_env"), "either a url or url_env, the variable that holds it")],
    example={"url_env": "TEAM_WEBHOOK", "description": "Tell the team."},
):
    """A URL that takes JSON."""

    plain_url: str = key(Filled(), "Where it is sent.", "https://example.com/hook", name="url")
    url_env: str = key(_VALUE, "The variable that holds the URL.", "TEAM_WEBHOOK")
    description: str = key(Text(), "When to use it; the model reads it.", "Tell the team.")
    parameters: Mapping[str, Any] | None = key(
        AsWritten({"type": "object"}),
        "The JSON Schema of what is sent.",
        {"type": "object", "properties": {"text": {"type": "string"}}},
    )
    method: str = key(_Method(), "The HTTP method.", "POST", default="POST")
    idempotency_header: str = key(Text(), _IDEMPOTENCY, "Idempotency-Key")

    @property
    def url(self) -> str:
        return self.plain_url or self.url_env
