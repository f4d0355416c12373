"""The keys about other people's tools: MCP servers, OpenAPI documents, webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from forge.project.config.access import SANDBOXES, RootEntry, Sandbox
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
    WholeNumber,
)
from forge.project.config.reader import ConfigReader
from forge.project.config.section import BelongsTo, ExactlyOne, Section, key

LEAST_MEMORY, MEMORY = 64, 2048  # MiB, as `forge.mcp` has them, which is not loaded to read a file
INTEGRITY = r"sha256:[0-9a-f]{64}"
_GLOBS = ListOf(Text(), single=True)
_VALUE = Variable(look_up=True)
_TRANSPORT = Choice("stdio", "http", "streamable-http")
_A_VARIABLE = "the name of a variable"
_CREDENTIALS = ("api_key_env", "basic_env", "bearer_env")
_OF_PROGRAMS = ("integrity", "memory", "network", "roots", "sandbox", "workspace")
_NO_APPROVAL = "Forge does not support autoApprove; write a permission rule such as allow tool:git__*"
_IDEMPOTENCY = "The header for an idempotency key, if the server supports one. Forge may then retry calls."


class SourceEntry(Section):
    """Headers may name variables. `secrets` are the values that came from the environment."""

    plain_headers: Mapping[str, str] = key(
        Pairs(),
        "HTTP headers; ${NAME} stands for an environment variable.",
        {"Authorization": "Bearer ${TOKEN}"},
        name="headers",
    )
    headers_env: Mapping[str, str] = key(
        MappingOf(_VALUE),
        "Headers, each with the environment variable that has its value.",
        {"Authorization": "DOCS_TOKEN"},
    )
    timeout: float | None = key(Number(), "Time limit of a call, in seconds.", 30)
    secrets: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        return {**self.plain_headers, **self.headers_env}

    @classmethod
    def read(cls, reader: ConfigReader, value: Any, key_path: str) -> Any:
        reader.secrets.clear()
        return super().read(reader, value, key_path)

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        return super().from_keys(reader, {**values, "secrets": tuple(dict.fromkeys(reader.secrets))}, key_path)


class _Hidden(Flag):
    empty: Any = None

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        return None if value == "auto" else super().read(reader, value, key_path)

    def schema(self) -> Schema:
        return {"enum": ["auto", True, False]}


class FilteredEntry(SourceEntry):
    """A source of several tools."""

    include: tuple[str, ...] = key(_GLOBS, "Only tools that match one of these globs.", ["read_*"])
    exclude: tuple[str, ...] = key(_GLOBS, "No tools that match one of these globs.", ["*_delete"])
    hidden: bool | None = key(
        _Hidden(), "If true, the model sees these tools only after `tool_search` finds them.", True
    )


class _McpLogin(Section, example={"client_id": "forge-docs", "scopes": ["docs:read"]}):
    """An OAuth login at a server with a URL. Without it, Forge registers itself when a person logs in."""

    grant: str = key(
        Choice("authorization_code", "client_credentials", "workload", "enterprise"),
        "How tokens are obtained; authorization_code: a person runs `forge mcp login`.",
        "client_credentials",
    )
    client_id: str = key(Filled(), "The client's id at the authorization server.", "forge-docs")
    client_secret: str = key(
        _VALUE, "Environment variable with the client's secret.", "DOCS_SECRET", name="client_secret_env"
    )
    private_key: str = key(
        _VALUE, "Environment variable with the client's private key in PEM.", "DOCS_KEY", name="private_key_env"
    )
    client_metadata_url: str = key(
        Filled(), "A document that describes the client; it is the client's id.", "https://example.com/forge.json"
    )
    scopes: tuple[str, ...] = key(
        ListOf(Text(), single=True), "Scopes to request in addition to those that the server names.", ["docs:read"]
    )
    issuer: str = key(
        Filled(), "The only authorization server that gets credentials; it may be private.", "https://login.example.com"
    )
    assertion: str = key(
        _VALUE, "Grant workload: environment variable with the platform's JWT.", "JWT", name="assertion_env"
    )
    id_token: str = key(
        _VALUE, "Grant enterprise: environment variable with the ID token.", "ID_TOKEN", name="id_token_env"
    )
    idp_token_url: str = key(
        Filled(), "Grant enterprise: token URL of the identity provider.", "https://idp.example.com/token"
    )
    idp_client_id: str = key(Filled(), "Grant enterprise: the client's id at the identity provider.", "forge")
    redirect_port: int = key(WholeNumber(1, "a port"), "The port of the redirect URL. Default: a free port.", 33418)

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """As `mcp(auth=…)` takes it."""
        return dict(values)


class McpEntry(
    FilteredEntry,
    checks=[
        ExactlyOne(("command", "url"), "either a command or a url"),
        BelongsTo(_OF_PROGRAMS, "command", "only a server with a command has it; this one has a url"),
    ],
    example={"command": "uvx", "args": ["mcp-server-git"]},
):
    """A server: a program to start, or a URL."""

    program: str = key(Filled(), "The program to start.", "uvx", name="command")
    args: tuple[str, ...] = key(ListOf(Argument()), "Arguments of the program.", ["mcp-server-git"])
    environment: Mapping[str, str] = key(
        Pairs(),
        "The program's environment; ${NAME} stands for a variable of Forge's environment.",
        {"TOKEN": "${GIT_TOKEN}"},
        name="env",
    )
    directory: Path | None = key(FilePath(), "The program's working directory, relative to this file.", ".", name="cwd")
    sandbox: Sandbox | Literal[""] = key(
        Choice(*SANDBOXES, also=(False, "off")),
        "The sandbox of the program. Default: `required`, or the project's `sandbox` if it is not `auto`.",
        "off",
    )
    network: bool = key(Flag(), "Give the confined program a network.", True)
    workspace: Literal["write", "read", "none"] = key(
        Choice("write", "read", "none"),
        "The confined program's access to its working directory.",
        "read",
        default="write",
    )
    program_roots: tuple[RootEntry, ...] = key(
        ListOf(RootEntry),
        "Further directories of the confined program.",
        [{"path": "../data", "access": "write"}],
        name="roots",
    )
    memory: int = key(
        WholeNumber(LEAST_MEMORY),
        "MiB of memory that each process of the program may write to.",
        512,
        default=MEMORY,
        unset=MEMORY,
    )
    integrity: str = key(
        Text(INTEGRITY, "sha256: and 64 hexadecimal digits, as `forge mcp add` writes it"),
        "The digest of the pinned installation. `forge mcp add` writes it.",
        f"sha256:{'0' * 64}",
    )
    url: str = key(Filled(), "URL of the server, instead of a command.", "https://docs.example.com/mcp")
    auth: Mapping[str, Any] = key(_McpLogin, default=NOTHING)
    type: str = key(_TRANSPORT, "The transport. Optional: follows from `command` or `url`.", "stdio")
    transport: str = key(_TRANSPORT, "The same as `type`, for compatibility with other clients.", "stdio")
    prefix: str = key(Text(), "Prefix of the server's tools: PREFIX__NAME. Default: the server's name.", "git")
    rename: Mapping[str, str] = key(MappingOf(Text()), "New names for the server's tools.", {"git_status": "status"})
    disabled: bool = key(Flag(), "Ignore this server.", True)
    auto_approve: None = key(
        AsWritten({"not": {}}), "Not supported: write permission rules instead.", name="autoApprove"
    )

    @property
    def command(self) -> tuple[str, ...]:
        return (self.program, *self.args) if self.program else ()

    @classmethod
    def read(cls, reader: ConfigReader, value: Any, key_path: str) -> Any:
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
    """User name and password, as names of environment variables."""

    user: str = key(_VALUE, "The environment variable with the user name.", "API_USER", required=_A_VARIABLE)
    password: str = key(_VALUE, "The environment variable with the password.", "API_PASSWORD", required=_A_VARIABLE)

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        return (values["user"], values["password"])


class _Auth(
    Section,
    checks=[ExactlyOne(_CREDENTIALS, f"one of {', '.join(_CREDENTIALS)}", or_empty=True)],
    example={"bearer_env": "PETS_TOKEN"},
):
    """Credentials, as names of environment variables."""

    bearer: str = key(_VALUE, "The environment variable with a bearer token.", "PETS_TOKEN", name="bearer_env")
    api_key: str = key(_VALUE, "The environment variable with an API key.", "PETS_KEY", name="api_key_env")
    basic: tuple[str, str] = key(_BasicAuth, name="basic_env")
    name: str = key(Text(), "Name of the header, query parameter or cookie for the API key.", "X-API-Key")
    where: str = key(Choice("header", "query", "cookie"), "Where the API key is sent.", "header", name="in")

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """As `openapi(auth=…)` takes it."""
        if "basic" in values:
            return {"basic": values["basic"]}
        return {("in" if name == "where" else name): one for name, one in values.items()}


class _Spec(Filled):
    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        text = super().read(reader, value, key_path)
        return text if text.lower().startswith(("http://", "https://")) else str(reader.path(text))


class OpenApiEntry(
    FilteredEntry, alone="spec", example={"spec": "./petstore.yaml", "auth": {"bearer_env": "PETS_TOKEN"}}
):
    """An OpenAPI document. Each operation is a tool."""

    spec: str = key(
        _Spec(),
        "The document: a path, relative to this file, or a URL.",
        "./petstore.yaml",
        required="a path or a URL of the document",
    )
    server: str = key(
        Filled(), "Base URL of the operations. Default: the document's own servers.", "https://api.example.com"
    )
    auth: Mapping[str, Any] = key(_Auth, default=NOTHING)
    tags: tuple[str, ...] = key(_GLOBS, "Only operations with one of these tags.", ["pets"])
    idempotency_header: str = key(Text(), _IDEMPOTENCY, "Idempotency-Key")


class _Method(Text):
    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        return reader.text(value, key_path).upper()


class WebhookEntry(
    SourceEntry,
    alone="url",
    checks=[ExactlyOne(("url", "url_env"), "either a url, or url_env with the name of a variable that holds the URL")],
    example={"url_env": "TEAM_WEBHOOK", "description": "Tell the team."},
):
    """A URL that accepts JSON."""

    plain_url: str = key(Filled(), "The URL to call.", "https://example.com/hook", name="url")
    url_env: str = key(_VALUE, "The environment variable with the URL.", "TEAM_WEBHOOK")
    description: str = key(Text(), "What the webhook does and when to use it. The model reads this.", "Tell the team.")
    parameters: Mapping[str, Any] | None = key(
        AsWritten({"type": "object"}),
        "JSON Schema of the JSON that is sent.",
        {"type": "object", "properties": {"text": {"type": "string"}}},
    )
    method: str = key(_Method(), "The HTTP method.", "POST", default="POST")
    idempotency_header: str = key(Text(), _IDEMPOTENCY, "Idempotency-Key")

    @property
    def url(self) -> str:
        return self.plain_url or self.url_env
