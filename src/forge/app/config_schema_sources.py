"""The schema of the sections about other people's tools, and about what an agent knows and where it delivers."""

from __future__ import annotations

from typing import Any

from forge.app.schema_words import (
    TEXT,
    Schema,
    either,
    flag,
    listed,
    mapping,
    named,
    number,
    one_of,
    text,
    texts,
    variable,
    whole,
    words,
)

_SERVER = "^(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,31}$"
_ARGUMENT = either({"type": "number"}, {"const": ""}, TEXT)
_SECONDS = {**number("Seconds.", 30), "exclusiveMinimum": 0}


def mcp_servers() -> Schema:
    settings: dict[str, Schema] = {
        "command": text("The program to start.", "uvx"),
        "args": listed(_ARGUMENT, "Its arguments.", ["mcp-server-git"]),
        "env": {**_pairs("Its environment; ${NAME} stands for a variable."), "examples": [{"TOKEN": "${GIT_TOKEN}"}]},
        "cwd": text("Where it runs; relative to this file.", "."),
        "url": text("Instead of a command: where it is.", "https://docs.example.com/mcp"),
        **_headers(),
        **_filters(),
        "type": one_of("stdio", "http", "streamable-http"),
        "transport": one_of("stdio", "http", "streamable-http"),
        "prefix": text("Its tools are PREFIX__NAME; by default the server's name.", "git"),
        "rename": {
            "type": "object",
            "additionalProperties": TEXT,
            "description": "Other names for its tools.",
            "examples": [{"git_status": "status"}],
        },
        "disabled": flag("Leave it out.", True),
    }
    keys = [*settings, "autoApprove"]  # of other clients; refused, unless the whole entry is left out
    entry: Schema = {
        "type": "object",
        "propertyNames": {"enum": sorted(keys)},
        "description": "A server: a program to start, or a URL.",
        "examples": [{"command": "uvx", "args": ["mcp-server-git"]}],
        "if": {"required": ["disabled"], "properties": {"disabled": {"const": True}}},
        "else": {
            **mapping(settings),
            "oneOf": [{"required": ["command"]}, {"required": ["url"]}],
        },
    }
    example = {"git": {"command": "uvx", "args": ["mcp-server-git"]}, "docs": {"url": "https://docs.example.com/mcp"}}
    return named(entry, "MCP servers, in the shape that other clients use.", example, _SERVER)


def openapi() -> Schema:
    spec = text("The document: a path, relative to this file, or a URL.", "./petstore.yaml")
    entry = mapping(
        {
            "spec": spec,
            "server": text("Where its operations are.", "https://api.example.com"),
            "auth": _auth(),
            **_headers(),
            **_filters(),
            "tags": texts("Only operations with one of these.", "pets"),
            "idempotency_header": _key(),
        },
        "An OpenAPI document, whose operations are tools.",
        {"spec": "./petstore.yaml", "auth": {"bearer_env": "PETS_TOKEN"}},
        required=("spec",),
    )
    example = {"pets": {"spec": "./petstore.yaml", "auth": {"bearer_env": "PETS_TOKEN"}}}
    return named(either(spec, entry), "OpenAPI documents.", example, _SERVER)


def _auth() -> Schema:
    pair = mapping(
        {"user": variable("", "API_USER"), "password": variable("", "API_PASSWORD")},
        "The variables that hold a name and a password.",
        {"user": "API_USER", "password": "API_PASSWORD"},
        required=("user", "password"),
    )
    more = {"name": TEXT, "in": one_of("header", "query", "cookie")}
    ways: list[tuple[str, Schema]] = [
        ("bearer_env", variable("The variable that holds a token.", "PETS_TOKEN")),
        ("api_key_env", variable("The variable that holds a key.", "PETS_KEY")),
        ("basic_env", pair),
    ]
    return {
        **mapping({**dict(ways), **more}, "Credentials, as names of variables.", {"bearer_env": "PETS_TOKEN"}),
        "anyOf": [{"maxProperties": 0}, {"oneOf": [{"required": [key]} for key, _ in ways]}],
    }


def webhooks() -> Schema:
    url = text("Where it is sent.", "https://example.com/hook")
    entry = {
        **mapping(
            {
                "url": url,
                "url_env": variable("The variable that holds the URL.", "TEAM_WEBHOOK"),
                "description": text("When to use it; the model reads it.", "Tell the team."),
                "parameters": {
                    "type": "object",
                    "description": "The JSON Schema of what is sent.",
                    "examples": [{"type": "object", "properties": {"text": {"type": "string"}}}],
                },
                **_headers(),
                "method": text("", "POST"),
                "timeout": _SECONDS,
                "idempotency_header": _key(),
            },
            "A URL that takes JSON.",
            {"url_env": "TEAM_WEBHOOK", "description": "Tell the team."},
        ),
        "oneOf": [{"required": ["url"]}, {"required": ["url_env"]}],
    }
    example = {"notify": {"url_env": "TEAM_WEBHOOK", "description": "Tell the team."}}
    return named(either(url, entry), "URLs that take JSON, each a tool.", example)


def channels() -> Schema:
    target = either(TEXT, {"type": "integer"})
    targets = listed(target, "Chats or rooms that may be named beside the usual one.", ["-100200300"])
    kinds: dict[str, dict[str, Schema]] = {
        "terminal": {},
        "file": {"path": text("Relative to this file.", "news.txt")},
        "webhook": {
            "url_env": variable("The variable that holds the URL.", "TEAM_WEBHOOK"),
            "headers_env": _named_headers(),
            "files": {**one_of("named", "json", "multipart"), "description": "How files go along; named: they do not."},
            "targets": targets,
        },
        "slack": {
            "token_env": variable("The variable that holds the bot's token.", "SLACK_BOT_TOKEN"),
            "chat_id": either({"type": "integer"}, {"type": "string"}),
            "api": text("Another server than Slack's own.", "https://slack-gov.com/api"),
            "targets": targets,
        },
        "telegram": {
            "token_env": variable("The variable that holds the bot's token.", "TELEGRAM_TOKEN"),
            "chat_id": either({"type": "integer"}, {"type": "string"}),
            "api": text("Another server than Telegram's own.", "https://telegram.example.com"),
            "targets": targets,
        },
    }
    needed = {
        "file": ("type", "path"),
        "webhook": ("type", "url_env"),
        "slack": ("type", "token_env"),
        "telegram": ("type", "token_env"),
    }
    entries = [
        mapping({"type": {"const": kind}, **more}, required=needed.get(kind, ("type",))) for kind, more in kinds.items()
    ]
    hook = {"type": {"const": "slack"}, "url_env": variable("The variable that holds the URL.", "SLACK_WEBHOOK")}
    entries.append(mapping(hook, required=("type", "url_env")))
    entry = {**either(*entries), "description": "Where it goes.", "examples": [{"type": "file", "path": "news.txt"}]}
    example = {"team": {"type": "webhook", "url_env": "TEAM_WEBHOOK"}}
    return named(entry, "Where messages and the results of schedules are delivered.", example)


def memory() -> Schema:
    endpoint: dict[str, Schema] = {
        "type": one_of("endpoint"),
        "url": text("An embeddings server that speaks OpenAI's API.", "http://127.0.0.1:11434/v1"),
        "model": text("", "nomic-embed-text"),
        "key_env": variable("The variable that holds its key.", "EMBEDDINGS_KEY"),
        "dimensions": whole("How long its vectors are.", 768, least=1),
    }
    embedder = {
        **either(
            one_of("none", "local", None),
            mapping({"type": one_of("none", "local")}, required=("type",)),
            mapping(endpoint, required=("url", "model")),
        ),
        "description": "What finds things by their meaning; without it, by their words.",
        "examples": [{"url": "http://127.0.0.1:11434/v1", "model": "nomic-embed-text"}],
    }
    return mapping(
        {"enabled": flag("By default it is, where memory is mentioned.", True), "embedder": embedder},
        "What is remembered from one session to the next.",
        {"enabled": True, "embedder": "none"},
    )


def skills() -> Schema:
    return mapping(
        {
            "paths": texts("Where skills are, in the workspace.", "skills"),
            "active": texts("Those that are active from the beginning.", "code-agent"),
        },
        "What the agent can be taught.",
        {"paths": ["skills"], "active": ["code-agent"]},
    )


def schedules() -> Schema:
    fields: dict[str, Any] = {
        "id": text("Its name.", "nightly"),
        "cron": text("When.", "0 3 * * *"),
        "task": text("What the agent is asked.", "Check the logs and report what is new."),
        "timezone": text("UTC by default.", "Europe/Berlin"),
        "enabled": flag("", True),
        "one_shot": flag("Once, and never again.", False),
        **{key: words(key.replace("_", " ").capitalize(), "") for key in ("skill", "channel", "channel_target")},
    }
    example = {"id": "nightly", "cron": "0 3 * * *", "task": "Check the logs and report what is new."}
    entry = mapping(fields, "A task, and when it is done.", example, required=("id", "cron", "task"))
    return listed(entry, "What the agent does by the clock; `forge schedule run` does it.", [example])


def _headers() -> dict[str, Schema]:
    plain = {**_pairs("Headers; ${NAME} stands for a variable."), "examples": [{"Authorization": "Bearer ${TOKEN}"}]}
    return {"headers": plain, "headers_env": _named_headers()}


def _named_headers() -> Schema:
    return {
        "type": "object",
        "additionalProperties": variable("", "DOCS_TOKEN"),
        "description": "Headers whose values are held by variables.",
        "examples": [{"Authorization": "DOCS_TOKEN"}],
    }


def _filters() -> dict[str, Schema]:
    return {
        "include": texts("Only these; globs.", "read_*"),
        "exclude": texts("Not these; globs.", "*_delete"),
        "timeout": _SECONDS,
        "hidden": {
            **one_of("auto", True, False),
            "description": "Whether tools are shown to the model only when `tool_search` finds them.",
            "examples": [True],
        },
    }


def _key() -> Schema:
    said = "The header by which the server does a request once, however often it arrives: calls may be repeated then."
    return text(said, "Idempotency-Key")


def _pairs(description: str) -> Schema:
    return {"type": "object", "additionalProperties": _ARGUMENT, "description": description}
