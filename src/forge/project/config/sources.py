"""The keys about other people's tools: MCP servers, OpenAPI documents, webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.core.secrets.live_text import LiveText
from forge.project.config.access import SANDBOXES, RootEntry, Sandbox
from forge.project.config.section import PlainSection, Section, belongs_to, exactly_one

if TYPE_CHECKING:  # evaluated by `make reference`
    from forge.project.config.kinds import (
        Above0,
        Accepts,
        Argument,
        FilePath,
        Filled,
        Key,
        Matches,
        Of,
        OneOf,
        Pairs,
        Single,
        Spec,
        Text,
        Value,
        Whole,
    )
    from forge.project.config.reader import ConfigReader

LEAST_MEMORY, MEMORY = 64, 2048  # MiB, as `forge.mcp` has them, which is not loaded to read a file
INTEGRITY = r"sha256:[0-9a-f]{64}"
PREFIX = (
    r"(?!.*__)[A-Za-z]([A-Za-z0-9_-]{0,30}[A-Za-z0-9-])?",
    "a prefix starts with a letter, followed by up to 31 letters, digits, - or single _, and does not end in _",
)
_A_VARIABLE = "the name of a variable"
_CREDENTIALS = ("api_key_env", "basic_env", "bearer_env")
_OF_PROGRAMS = ("integrity", "memory", "network", "roots", "sandbox", "workspace")
_NO_APPROVAL = "Forge does not support autoApprove; write a permission rule such as allow tool:git__*"
_IDEMPOTENCY = "The header for an idempotency key, if the server supports one. Forge may then retry calls."


class SourceEntry(Section):
    """Headers may name variables. `secrets` are the values that came from the environment."""

    plain_headers: Annotated[
        Mapping[str, str | LiveText],
        Of(Pairs),
        Key(
            "HTTP headers; ${NAME} stands for an environment variable.",
            {"Authorization": "Bearer ${TOKEN}"},
            name="headers",
        ),
    ] = field(default_factory=dict)
    headers_env: Annotated[
        Mapping[str, str | LiveText],
        Of(Mapping[str, Value]),
        Key("Headers, each with the environment variable that has its value.", {"Authorization": "DOCS_TOKEN"}),
    ] = field(default_factory=dict)
    timeout: Annotated[Above0 | None, Key("Time limit of a call, in seconds.", 30)] = None
    secrets: tuple[str, ...] = ()
    kept_outside: Mapping[str, str] = field(default_factory=dict)  # values of secrets with `for`, each with its name

    @property
    def headers(self) -> dict[str, str | LiveText]:
        return {**self.plain_headers, **self.headers_env}

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        read: dict[str, Any] = {"secrets": tuple(dict.fromkeys(reader.secrets)), "kept_outside": reader.kept_outside}
        for field_name, key in (("plain_headers", "headers"), ("headers_env", "headers_env")):
            written = values.get(field_name, {}).items()
            read[field_name] = {name: reader.live_text(f"{key_path}.{key}.{name}", text) for name, text in written}
        return super().from_keys(reader, {**values, **read}, key_path)


class FilteredEntry(SourceEntry):
    """A source of several tools."""

    prefix: Annotated[Text, Key("Prefix of the tools: PREFIX__NAME. Default: the name of this entry.", "git")] = ""
    include: Annotated[tuple[Text, ...], Single(), Key("Only tools that match one of these globs.", ["read_*"])] = ()
    exclude: Annotated[tuple[Text, ...], Single(), Key("No tools that match one of these globs.", ["*_delete"])] = ()
    hidden: Annotated[
        bool | None,
        OneOf("auto", True, False, expected="true or false, or auto"),
        Key("If true, the model sees these tools only after `tool_search` finds them.", True),
    ] = None

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        if values.get("hidden") == "auto":
            values["hidden"] = None
        return super().from_keys(reader, values, key_path)


class _McpLogin(PlainSection, example={"client_id": "forge-docs", "scopes": ["docs:read"]}):
    """An OAuth login at a server with a URL. Without it, Forge registers itself when a person logs in."""

    grant: Annotated[
        Literal["authorization_code", "client_credentials", "workload", "enterprise"],
        Key("How tokens are obtained; authorization_code: a person runs `forge mcp login`.", "client_credentials"),
    ]
    client_id: Annotated[Filled, Key("The client's id at the authorization server.", "forge-docs")]
    client_secret: Annotated[
        Value, Key("Environment variable with the client's secret.", "DOCS_SECRET", name="client_secret_env")
    ]
    private_key: Annotated[
        Value, Key("Environment variable with the client's private key in PEM.", "DOCS_KEY", name="private_key_env")
    ]
    client_metadata_url: Annotated[
        Filled, Key("A document that describes the client; it is the client's id.", "https://example.com/forge.json")
    ]
    scopes: Annotated[
        tuple[Text, ...], Single(), Key("Scopes to request in addition to those that the server names.", ["docs:read"])
    ]
    issuer: Annotated[
        Filled,
        Key("The only authorization server that gets credentials; it may be private.", "https://login.example.com"),
    ]
    assertion: Annotated[
        Value, Key("Grant workload: environment variable with the platform's JWT.", "JWT", name="assertion_env")
    ]
    id_token: Annotated[
        Value, Key("Grant enterprise: environment variable with the ID token.", "ID_TOKEN", name="id_token_env")
    ]
    idp_token_url: Annotated[
        Filled, Key("Grant enterprise: token URL of the identity provider.", "https://idp.example.com/token")
    ]
    idp_client_id: Annotated[Filled, Key("Grant enterprise: the client's id at the identity provider.", "forge")]
    redirect_port: Annotated[int, Whole(1), Key("The port of the redirect URL. Default: a free port.", 33418)]
    per_user: Annotated[
        bool, Key("If true, every user has a login of their own; calls without a user are refused.", True)
    ]


class McpEntry(
    FilteredEntry,
    disabled="disabled",
    rules=[
        exactly_one(("command", "url"), "either a command or a url"),
        belongs_to(_OF_PROGRAMS, "command", "only a server with a command has it; this one has a url"),
    ],
    example={"command": "uvx", "args": ["mcp-server-git"]},
):
    """A server: a program to start, or a URL."""

    program: Annotated[Filled, Key("The program to start.", "uvx", name="command")] = ""
    args: Annotated[tuple[Argument, ...], Key("Arguments of the program.", ["mcp-server-git"])] = ()
    environment: Annotated[
        Pairs,
        Key(
            "The program's environment; ${NAME} stands for a variable of Forge's environment.",
            {"TOKEN": "${GIT_TOKEN}"},
            name="env",
        ),
    ] = field(default_factory=dict)
    directory: Annotated[
        FilePath | None, Key("The program's working directory, relative to this file.", ".", name="cwd")
    ] = None
    sandbox: Annotated[
        Sandbox | Literal[""],
        OneOf(*SANDBOXES, False),
        Key("The sandbox of the program. Default: `required`, or the project's `sandbox` if it is not `auto`.", "off"),
    ] = ""
    network: Annotated[bool, Key("Give the confined program a network.", True)] = False
    workspace: Annotated[
        Literal["write", "read", "none"], Key("The confined program's access to its working directory.", "read")
    ] = "write"
    program_roots: Annotated[
        tuple[RootEntry, ...],
        Key("Further directories of the confined program.", [{"path": "../data", "access": "write"}], name="roots"),
    ] = ()
    memory: Annotated[
        int, Whole(LEAST_MEMORY), Key("MiB of memory that each process of the program may write to.", 512, unset=MEMORY)
    ] = MEMORY
    integrity: Annotated[
        str,
        Matches(INTEGRITY, "sha256: and 64 hexadecimal digits, as `forge mcp add` writes it"),
        Key("The digest of the pinned installation. `forge mcp add` writes it.", f"sha256:{'0' * 64}"),
    ] = ""
    url: Annotated[Filled, Key("URL of the server, instead of a command.", "https://docs.example.com/mcp")] = ""
    auth: Annotated[Mapping[str, Any], Of(_McpLogin), Key()] = field(default_factory=dict)  # for `mcp(auth=…)`
    type: Annotated[
        str,
        OneOf("stdio", "http", "streamable-http"),
        Key("The transport. Optional: follows from `command` or `url`.", "stdio"),
    ] = ""
    transport: Annotated[
        str,
        OneOf("stdio", "http", "streamable-http"),
        Key("The same as `type`, for compatibility with other clients.", "stdio"),
    ] = ""
    rename: Annotated[Mapping[str, Text], Key("New names for the server's tools.", {"git_status": "status"})] = field(
        default_factory=dict
    )
    disabled: Annotated[bool, Key("Ignore this server.", True)] = False
    auto_approve: Annotated[
        None,
        Accepts({"not": {}, "errorMessage": _NO_APPROVAL}),
        Key("Not supported: write permission rules instead.", name="autoApprove"),
    ] = None

    @property
    def command(self) -> tuple[str, ...]:
        return (self.program, *self.args) if self.program else ()

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        if values.get("sandbox") is False:  # YAML takes a bare `off` for false
            values["sandbox"] = "off"
        return super().from_keys(reader, values, key_path)


class AcpEntry(Section, example={"command": "their-agent", "args": ["--acp"], "network": True}):
    """A program that speaks the Agent Client Protocol: an agent of others."""

    program: Annotated[Filled, Key("The program to start.", "their-agent", name="command", required="a program")]
    args: Annotated[tuple[Argument, ...], Key("Arguments of the program.", ["--acp"])] = ()
    environment: Annotated[
        Pairs,
        Key(
            "The program's environment; ${NAME} stands for a variable of Forge's environment.",
            {"KEY": "${KEY}"},
            name="env",
        ),
    ] = field(default_factory=dict)
    sandbox: Annotated[
        Sandbox | Literal[""],
        OneOf(*SANDBOXES, False),
        Key("The sandbox of the program. Default: `required`, or the project's `sandbox` if it is not `auto`.", "off"),
    ] = ""
    network: Annotated[bool, Key("Give the confined program a network, such as to its model.", True)] = False
    workspace: Annotated[
        Literal["write", "read", "none"],
        Key(
            "The confined program's own access to the workspace, beside the files that it asks Forge for.",
            "read",
            unset="none",
        ),
    ] = "none"
    program_roots: Annotated[
        tuple[RootEntry, ...],
        Key("Further directories of the confined program.", [{"path": "../data"}], name="roots"),
    ] = ()
    memory: Annotated[
        int, Whole(LEAST_MEMORY), Key("MiB of memory that each process of the program may write to.", 512, unset=MEMORY)
    ] = MEMORY
    secrets: tuple[str, ...] = ()
    kept_outside: Mapping[str, str] = field(default_factory=dict)

    integrity = ""  # nothing pins it
    directory = None

    @property
    def command(self) -> tuple[str, ...]:
        return (self.program, *self.args)

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        if values.get("sandbox") is False:  # YAML takes a bare `off` for false
            values["sandbox"] = "off"
        read = {"secrets": tuple(dict.fromkeys(reader.secrets)), "kept_outside": reader.kept_outside}
        return super().from_keys(reader, {**values, **read}, key_path)


class _BasicAuth(PlainSection, example={"user": "API_USER", "password": "API_PASSWORD"}):
    """User name and password, as names of environment variables."""

    user: Annotated[Value, Key("The environment variable with the user name.", "API_USER", required=_A_VARIABLE)]
    password: Annotated[Value, Key("The environment variable with the password.", "API_PASSWORD", required=_A_VARIABLE)]

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        return tuple(reader.live_text(f"{key_path}.{key}", values[key]) for key in ("user", "password"))


class _Auth(
    PlainSection,
    rules=[exactly_one(_CREDENTIALS, f"one of {', '.join(_CREDENTIALS)}", or_empty=True)],
    example={"bearer_env": "PETS_TOKEN"},
):
    """Credentials, as names of environment variables."""

    bearer: Annotated[Value, Key("The environment variable with a bearer token.", "PETS_TOKEN", name="bearer_env")]
    api_key: Annotated[Value, Key("The environment variable with an API key.", "PETS_KEY", name="api_key_env")]
    basic: Annotated[_BasicAuth, Key(name="basic_env")]
    name: Annotated[Text, Key("Name of the header, query parameter or cookie for the API key.", "X-API-Key")]
    where: Annotated[Literal["header", "query", "cookie"], Key("Where the API key is sent.", "header", name="in")]

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        """As `openapi(auth=…)` takes it."""
        if "basic" in values:
            return {"basic": values["basic"]}
        found = {("in" if name == "where" else name): one for name, one in values.items()}
        for name in found.keys() & {"bearer", "api_key"}:
            found[name] = reader.live_text(f"{key_path}.{name}_env", found[name])
        return found


class OpenApiEntry(
    FilteredEntry, alone="spec", example={"spec": "./petstore.yaml", "auth": {"bearer_env": "PETS_TOKEN"}}
):
    """An OpenAPI document. Each operation is a tool."""

    spec: Annotated[
        Spec,
        Key(
            "The document: a path, relative to this file, or a URL.",
            "./petstore.yaml",
            required="a path or a URL of the document",
        ),
    ]
    server: Annotated[
        Filled, Key("Base URL of the operations. Default: the document's own servers.", "https://api.example.com")
    ] = ""
    auth: Annotated[Mapping[str, Any], Of(_Auth), Key()] = field(default_factory=dict)
    tags: Annotated[tuple[Text, ...], Single(), Key("Only operations with one of these tags.", ["pets"])] = ()
    idempotency_header: Annotated[Text, Key(_IDEMPOTENCY, "Idempotency-Key")] = ""


class ScriptsEntry(Section, example={"prefix": "ops", "exclude": ["draft_*"]}):
    """The scripts in `tools/` and in the root of the project: their names, and which of them are tools."""

    prefix: Annotated[str, Matches(*PREFIX), Key("Prefix of the tools: PREFIX_NAME. Default: none.", "ops")] = ""
    include: Annotated[tuple[Text, ...], Single(), Key("Only scripts that match one of these.", ["report_*"])] = ()
    exclude: Annotated[tuple[Text, ...], Single(), Key("No scripts that match one of these.", ["draft_*"])] = ()


class WebhookEntry(
    SourceEntry,
    alone="url",
    rules=[exactly_one(("url", "url_env"), "either a url, or url_env with the name of a variable that holds the URL")],
    example={"url_env": "TEAM_WEBHOOK", "description": "Tell the team."},
):
    """A URL that accepts JSON."""

    plain_url: Annotated[Filled, Key("The URL to call.", "https://example.com/hook", name="url")] = ""
    url_env: Annotated[Value, Key("The environment variable with the URL.", "TEAM_WEBHOOK")] = ""
    description: Annotated[
        Text, Key("What the webhook does and when to use it. The model reads this.", "Tell the team.")
    ] = ""
    parameters: Annotated[
        Mapping[str, Any] | None,
        Accepts({"type": "object"}),
        Key("JSON Schema of the JSON that is sent.", {"type": "object", "properties": {"text": {"type": "string"}}}),
    ] = None
    method: Annotated[Text, Key("The HTTP method.", "POST")] = "POST"
    idempotency_header: Annotated[Text, Key(_IDEMPOTENCY, "Idempotency-Key")] = ""

    @property
    def url(self) -> str:
        return self.plain_url or self.url_env

    @classmethod
    def from_keys(cls, reader: ConfigReader, values: dict[str, Any], key_path: str) -> Any:
        method = values.get("method", cls.method).upper()
        return super().from_keys(reader, {**values, "method": method}, key_path)
