"""The JSON Schema of `forge.yaml`: what editors complete, and where errors take their examples from.

It accepts what the reader accepts. What needs more than the document to be judged (whether a tool, a file or a variable
exists, whether a cron rule or a pattern can be read) is the reader's business alone.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from forge.app.config_schema_sources import channels, mcp_servers, memory, openapi, schedules, skills, webhooks
from forge.app.durable_entries import QUEUE, URL
from forge.app.schema_words import (
    NOT_BLANK,
    Schema,
    any_case,
    either,
    flag,
    listed,
    mapping,
    named,
    number,
    one_of,
    text,
    variable,
    whole,
    words,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@cache
def config_schema() -> Schema:
    return {
        "$schema": DIALECT,
        "title": "forge.yaml",
        "description": "What a Forge project is: its agent, its tools, and what they may do.",
        **either({"type": "null"}, mapping(_sections())),
        "examples": [{"agent": {"model": "anthropic:MODEL"}, "tools": [{"group": "read"}]}],
    }


def organisation_schema() -> Schema:
    """Of the organisation's file, whose word nothing loosens."""
    sections = _sections()
    return mapping({key: sections[key] for key in ("egress", "guardrails", "permissions", "sandbox")})


def _sections() -> dict[str, Schema]:
    return {
        "agent": _agent(),
        "agents": named(
            mapping(
                {
                    "prompt": words("What it is told.", "Look things up; change nothing."),
                    "model": text("Its model; the agent's own by default.", "anthropic:MODEL"),
                    "tools": _names_of_tools("Its tools; the agent's own by default."),
                    "limits": _limits("How far it may go."),
                },
                "A kind of sub-agent.",
                {"prompt": "Look things up.", "tools": [{"group": "read"}]},
            ),
            "Kinds of sub-agents, by the name that the tool `task` takes.",
            {"researcher": {"prompt": "Look things up.", "tools": [{"group": "read"}], "limits": {"turns": 30}}},
        ),
        "channels": channels(),
        "durable": _durable(),
        "egress": _egress(),
        "guardrails": _guardrails(),
        "limits": _limits("How far a run may go; 0 is no limit."),
        "mcpServers": mcp_servers(),
        "memory": memory(),
        "openapi": openapi(),
        "permissions": _permissions(),
        "sandbox": {
            **one_of("auto", "required", "bubblewrap", "landlock", "off", False),
            "description": "What confines programs. `required`, and a tier by name, fail where it cannot be had.",
            "default": "auto",
            "examples": ["required"],
        },
        "schedules": schedules(),
        "secrets": listed(
            either(
                variable("The name of an environment variable.", "GITHUB_TOKEN"),
                mapping(
                    {"file": text("A file that only its owner can read.", "~/.secrets/github")}, required=("file",)
                ),
            ),
            "Whose values are masked wherever they appear: names of environment variables, or files. Never values.",
            ["GITHUB_TOKEN", {"file": "~/.secrets/github"}],
        ),
        "skills": skills(),
        "tools": _tools(
            "The tools of the agent. Absent: every built-in one. Present: these, the conversation tools, and what the"
            " project's servers, documents, webhooks and scripts offer."
        ),
        "webhooks": webhooks(),
        "workspace": _workspace(),
    }


def _agent() -> Schema:
    identity = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}
    return mapping(
        {
            "id": {**identity, "description": "Its name in builds and logs.", "examples": ["ops"]},
            "version": {
                **identity,
                "description": "Of the agent; in quotes where it has one dot.",
                "examples": ["0.1.0"],
            },
            "description": words("What it is for.", "Looks after the servers."),
            "prompt": words("What the model is told, beside Forge's own instructions.", "Answer in one paragraph."),
            "model": text("PROVIDER:MODEL.", "anthropic:MODEL"),
        },
        "The agent that `forge run` and `forge build` make.",
        {"id": "ops", "version": "0.1.0", "description": "Looks after the servers.", "model": "anthropic:MODEL"},
    )


def _limits(description: str) -> Schema:
    price = {"exclusiveMinimum": 0, "type": "number"}
    most = {"exclusiveMaximum": 10**15}
    return {
        **mapping(
            {
                "turns": whole("How often the model may be asked.", 50, least=1),
                "calls": whole("Calls of tools.", 200),
                "tokens": whole("Tokens, in and out.", 100_000),
                "cost": {**number("In the currency of `price`.", 2.5), "minimum": 0, **most},
                "seconds": {**number("From beginning to end.", 600), "minimum": 0, **most},
                "price": mapping(
                    {"input": price, "output": price, "cached": price},
                    "What a million tokens cost.",
                    {"input": 3, "output": 15},
                    required=("input", "output"),
                ),
            },
            description,
            {"turns": 50, "calls": 200},
        ),
        "if": {"required": ["cost"], "properties": {"cost": {"exclusiveMinimum": 0}}},
        "then": {"required": ["price"]},
    }


def _tools(description: str) -> Schema:
    settings: dict[str, Schema] = {
        "timeout": {"type": ["number", "null"], "exclusiveMinimum": 0, "description": "Seconds.", "examples": [30]},
        "confirm": flag("Ask before each call, whatever the rules say.", True),
        "permissions": listed(
            one_of("read", "write", "execute", "network"), "What it needs, instead of what it declares.", ["read"]
        ),
        "rate": mapping(
            {
                "calls": whole("So many calls …", 10),
                "seconds": {**number("… in so many seconds.", 60), "exclusiveMinimum": 0},
                "max_calls": whole("In one run.", 100),
            },
            "How often it may be called.",
            {"calls": 10, "seconds": 60},
        ),
    }
    config: Schema = {
        "type": "object",
        "properties": settings,
        "description": "Settings of the tool; those that are listed here can be set for any tool.",
        "examples": [{"timeout": 30}],
    }
    example = {"name": "cli_execute", "config": {"allowed_binaries": ["git", "jq"], "timeout": 120}}
    entry = _tool({"config": config}, "A tool by name or pattern, or a group, with settings.", example)
    some = [{"group": "read"}, {"name": "bash", "config": {"timeout": 30}}, "math_calculate"]
    return listed(entry, description, some)


def _names_of_tools(description: str) -> Schema:
    """Their settings are those of the agent's own tools."""
    nothing: Schema = {"type": "object", "maxProperties": 0, "description": "Nothing.", "examples": [{}]}
    entry = _tool({"config": nothing}, "A tool by name or pattern, or a group.", {"group": "read"})
    return listed(entry, description, [{"group": "read"}, "math_calculate"])


def _tool(more: dict[str, Schema], description: str, example: Any) -> Schema:
    name = text("A tool, or a pattern such as git__*.", "cli_execute")
    group = text("A group of tools.", "read")
    entry = mapping({"name": name, "group": group, **more}, description, example)
    return either(name, {**entry, "oneOf": [{"required": ["name"]}, {"required": ["group"]}]})


def _permissions() -> Schema:
    subject = f"\\*|{'|'.join(any_case(one) for one in ('read', 'write', 'execute', 'network'))}"
    action = f"({'|'.join(any_case(one) for one in ('allow', 'ask', 'deny'))})"
    plain = {"type": ["string", "number", "boolean"], "pattern": NOT_BLANK}
    rule = {
        **mapping(
            {
                "action": {"type": "string", "pattern": f"^{action}$"},
                "permission": {"type": "string", "pattern": f"^({subject})$"},
                **dict.fromkeys(("tool", "target", "agent", "user", "channel"), plain),
                **{
                    key: {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
                    for key in ("match", "not_match")
                },
            },
            required=("action",),
        ),
        "anyOf": [{"required": ["permission"]}, {"required": ["tool"]}],
    }
    line = {"type": "string", "pattern": rf"^\s*{action}[^\S\n]+({subject}|tool:\S+)([^\S\n].*)?\s*$"}
    rules = listed(
        either(line, rule),
        "ACTION PERMISSION|tool:GLOB|* [TARGET]. The last that matches decides; a deny of the user or the organisation"
        " stays.",
        ["allow read", "ask write src/**", "deny execute rm *", {"action": "allow", "tool": "http_*"}],
    )
    return mapping(
        {"rules": rules}, "What is allowed, asked and denied.", {"rules": ["allow read", "deny execute rm *"]}
    )


def _guardrails() -> Schema:
    def rules(description: str, more: dict[str, Schema], example: Any) -> Schema:
        fields: dict[str, Schema] = {
            "pattern": {"type": "string", "examples": ["DROP TABLE"]},
            "message": {"description": "Why; the model reads it.", "examples": ["no tables are dropped here"]},
            **more,
        }
        return listed(either({"type": "string"}, mapping(fields, required=("pattern",))), description, example)

    action = {"action": one_of("block", "redact")}
    why = {"pattern": "DROP TABLE", "message": "no tables are dropped here"}
    return mapping(
        {
            "deny_commands": rules("Commands that must not run.", {}, [why]),
            "deny_output": rules(
                "Output that must not be seen.", action, [{"pattern": "BEGIN KEY", "action": "redact"}]
            ),
            "deny_prompts": rules("What may not be asked.", {}, ["(?i)ignore your instructions"]),
            "deny_responses": rules("What may not be answered.", {}, ["(?i)as a language model"]),
        },
        "Regular expressions (RE2) that nothing may match.",
        {"deny_commands": [why]},
    )


def _durable() -> Schema:
    queue = mapping(
        {
            "concurrency": whole("Runs at work at a time, over all workers.", 50, least=1),
            "per_tenant": whole("Runs of one tenant at work at a time.", 5, least=1),
            "rate": mapping(
                {
                    "calls": whole("So many begin …", 100, least=1),
                    "seconds": {**number("… in so many seconds.", 60), "exclusiveMinimum": 0},
                },
                "How many begin in a time.",
                {"calls": 100, "seconds": 60},
                required=("calls", "seconds"),
            ),
        },
        "Limits of a queue, over all workers together.",
        {"concurrency": 50, "rate": {"calls": 100, "seconds": 60}, "per_tenant": 5},
    )
    return mapping(
        {
            "database": {
                **text("SQLite for one machine, Postgres for many; ${NAME} is a variable.", "${DATABASE_URL}"),
                "pattern": URL,
            },
            "queues": named(queue, "Limits by queue.", {"default": {"concurrency": 50}}, QUEUE),
        },
        "Where runs that survive are kept: `forge run --durable`, `forge worker`. By default in .forge/durable.db.",
        {"database": "${DATABASE_URL}", "queues": {"default": {"concurrency": 50}}},
    )


def _egress() -> Schema:
    return mapping(
        {
            "mode": {
                **one_of("open", "allowlist", "deny-all"),
                "description": "`open`: every public address; `allowlist`, the default with domains; `deny-all`.",
                "examples": ["allowlist"],
            },
            "domains": listed(
                text("A host, *.host for its subdomains, with :port or without.", "api.example.com"),
                "",
                ["api.example.com", "*.example.org"],
            ),
            "private": listed(
                text("A host, an address or a range.", "127.0.0.1:8080"),
                "What is not public and may be reached all the same.",
                ["127.0.0.1:8080"],
            ),
        },
        "Where tools may connect to.",
        {"mode": "allowlist", "domains": ["api.example.com", "*.example.org"]},
    )


def _workspace() -> Schema:
    path = text("A directory; relative to this file.", "../lib")
    root = mapping(
        {"path": path, "access": {**one_of("read", "write"), "default": "read", "examples": ["read"]}},
        required=("path",),
    )
    return mapping(
        {
            "root": text("The directory that tools work in; relative to this file.", "."),
            "roots": listed(either(path, root), "Directories beside it.", [{"path": "../lib", "access": "read"}]),
            "writes": flag("Whether anything may be written at all.", False),
        },
        "Where tools work.",
        {"root": ".", "roots": [{"path": "../lib", "access": "read"}]},
    )


def example_at(place: str, near: str = "") -> str:
    """How something is written that belongs to a place such as `tools[0].config.timeout`, as one line of YAML.

    `near` is the key that was probably meant instead of the last one.
    """
    node, name = config_schema(), ""
    found: tuple[str, Any] = ("", node["examples"][0])
    steps = re.findall(r"\[\d+\]|[^.\[\]]+", place)
    for step in [*steps[:-1], near] if near else steps:
        following = _inner(node, step)
        if following is None:
            break
        node, name = following, "-" if step.startswith("[") else step
        if "examples" in node:
            found = (name, node["examples"][0])
    name, example = found
    if not name:
        return on_one_line(example)
    return f"- {on_one_line(example)}" if name == "-" else f"{name}: {on_one_line(example)}"


def _inner(node: Schema, step: str) -> Schema | None:
    """The schema of what is inside: an entry of a list, a key, a named entry."""
    for one in (node, *node.get("anyOf", ()), node.get("else", {})):
        if step.startswith("["):
            if "items" in one:
                items: Schema = one["items"]
                return items
        elif step in one.get("properties", {}):
            inner: Schema = one["properties"][step]
            return inner
        elif isinstance(one.get("additionalProperties"), dict):
            more: Schema = one["additionalProperties"]
            return more
    return None


def on_one_line(value: Any) -> str:
    """As YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {on_one_line(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(on_one_line, value)) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_./~][\w ./~-]*[\w./-]|[A-Za-z]", value):
        import json  # only for an example that has to be quoted

        return json.dumps(value, ensure_ascii=False)
    return str(value)
