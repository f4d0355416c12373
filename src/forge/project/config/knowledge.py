"""The keys about what an agent knows, remembers, does on a schedule, and where it delivers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from forge.project.config.kinds import (
    AsWritten,
    Choice,
    FilePath,
    Flag,
    ListOf,
    MappingOf,
    Schema,
    Text,
    Variable,
    WholeNumber,
)
from forge.project.config.reader import ConfigReader
from forge.project.config.section import PlainSection, Section, key


class _Endpoint(PlainSection):
    """An embeddings server with OpenAI's API."""

    type: str = key(Choice("endpoint"), "Optional: follows from the URL.", "endpoint")
    url: str = key(Text(), "URL of the server.", "http://127.0.0.1:11434/v1", required=True)
    model: str = key(Text(), "Name of the embedding model.", "nomic-embed-text", required=True)
    key_env: str = key(Variable(), "The environment variable with the server's API key.", "EMBEDDINGS_KEY")
    dimensions: int = key(WholeNumber(1), "Number of dimensions of the vectors.", 768)


class _Embedder(Choice):
    """A word, or a server; read as `forge.memory.embedders.embedder_from` takes it."""

    def read(self, reader: ConfigReader, value: Any, key_path: str) -> Any:
        if not isinstance(value, dict):
            return super().read(reader, value, key_path)
        said = reader.mapping(value, key_path, _Endpoint.keys)
        kind = Choice("none", "local", "endpoint").read(reader, said.get("type", "endpoint"), f"{key_path}.type")
        if kind == "endpoint":
            return {**_Endpoint.read(reader, value, key_path), "type": kind}
        if len(said) > 1:
            raise reader.error(key_path, f"{kind} takes no other keys")
        return kind

    def schema(self) -> Schema:
        word = {"type": "object", "properties": {"type": {"enum": ["none", "local"]}}, "additionalProperties": False}
        return {"anyOf": [super().schema(), {**word, "required": ["type"]}, _Endpoint.schema()]}


class MemoryEntry(Section, example={"enabled": True, "embedder": "none"}):
    """Notes that the agent keeps between sessions."""

    enabled: bool = key(Flag(), "True by default once there is a `memory` section.", True, default=True, unset=False)
    embedder: Any = key(
        _Embedder("none", "local", also=(None, "none"), expected="none, local, or a url and a model"),
        "The embedder for searching notes by meaning. Without one, notes are found by keywords.",
        {"url": "http://127.0.0.1:11434/v1", "model": "nomic-embed-text"},
        default="none",
    )


class SkillsEntry(Section, example={"paths": ["skills"], "active": ["code-agent"]}):
    """The skills of the agent."""

    paths: tuple[str, ...] = key(
        ListOf(Text(), single=True),
        "Folders with skills, inside the workspace.",
        ["skills"],
        default=("skills",),
        unset=["skills"],
    )
    active: tuple[str, ...] = key(ListOf(Text(), single=True), "Skills that are active from the start.", ["code-agent"])


class _Rule(PlainSection, alone="pattern", example={"pattern": "DROP TABLE", "message": "no tables are dropped here"}):
    """A regular expression, and a reason."""

    pattern: str = key(
        AsWritten({"type": "string"}),
        "A regular expression in RE2 syntax.",
        "DROP TABLE",
        required="a regular expression",
    )
    message: Any = key(AsWritten(), "The reason, which the model reads.", "no tables are dropped here")

    @classmethod
    def read(cls, reader: ConfigReader, value: Any, key_path: str) -> Any:
        super().read(reader, value, key_path)
        return value  # `forge.skills.guardrails` reads it


class _OutputRule(_Rule, example={"pattern": "BEGIN KEY", "action": "redact"}):
    """A regular expression, a reason, and whether to block the output or redact the match."""

    action: str = key(Choice("block", "redact"), "`block` hides the whole output, `redact` only the match.", "redact")


class GuardrailsEntry(
    PlainSection,
    example={"deny_commands": [{"pattern": "DROP TABLE", "message": "no tables are dropped here"}]},
):
    """Regular expressions (RE2) that commands, output, prompts or responses must not match."""

    deny_commands: list[Any] = key(ListOf(_Rule), "Commands that must not run.")
    deny_output: list[Any] = key(ListOf(_OutputRule), "Output that must not reach the model.")
    deny_prompts: list[Any] = key(ListOf(_Rule), "Prompts that are refused.", ["(?i)ignore your instructions"])
    deny_responses: list[Any] = key(
        ListOf(_Rule), "Responses of the model that are refused.", ["(?i)as a language model"]
    )


class ScheduleEntry(
    PlainSection, example={"id": "nightly", "cron": "0 3 * * *", "task": "Check the logs and report what is new."}
):
    """A task and its times, as `ScheduleStore.declare` takes it, which checks the rest."""

    id: str = key(Text(), "Name of the schedule.", "nightly", required=True)
    cron: str = key(Text(), "The times, as a cron expression.", "0 3 * * *", required=True)
    task: str = key(Text(), "The prompt for the agent.", "Check the logs and report what is new.", required=True)
    timezone: str = key(Text(), "Time zone of `cron`. Default: UTC.", "Europe/Berlin")
    enabled: bool = key(Flag(), "Set to false to pause the schedule. Default: true.", True)
    one_shot: bool = key(Flag(), "Run once, then never again.", False)
    command: bool = key(Flag(), "The task is a command line, which `bash` runs without a model.", False)
    skill: str = key(Text(blank=True), "A skill that the agent reads first.", "")
    channel: str = key(Text(blank=True), "The channel that gets the result.", "")
    channel_target: str = key(Text(blank=True), "A chat or room of the channel.", "")


class ChannelEntry(Section, example={"type": "webhook", "url_env": "TEAM_WEBHOOK"}):
    """A destination for messages."""

    type: str = key(
        Choice("terminal", "file", "webhook", "slack", "telegram"), "The kind of channel.", "file", required=True
    )
    path: Path | None = key(FilePath(), "The file to append to, relative to this file.", "news.txt")
    url_env: str = key(Variable(), "The environment variable with the URL.", "TEAM_WEBHOOK")
    headers_env: Mapping[str, str] = key(
        MappingOf(Variable()),
        "Headers, each with the environment variable that has its value.",
        {"Authorization": "DOCS_TOKEN"},
    )
    files: Literal["named", "json", "multipart"] = key(
        Choice("named", "json", "multipart"),
        "How to send attached files. `named` sends only their names.",
        "json",
        default="named",
    )
    token_env: str = key(Variable(), "The environment variable with the bot's token.", "SLACK_BOT_TOKEN")
    chat_id: str = key(Text(blank=True, numeric=True), "The default chat or room.", "C0123456789")
    api: str = key(Text(), "URL of the API, if it is not the default.", "https://slack-gov.com/api")
    targets: tuple[str, ...] = key(
        ListOf(Text(numeric=True)), "Further chats or rooms that messages may go to.", ["-100200300"]
    )

    @classmethod
    def read(cls, reader: ConfigReader, value: Any, key_path: str) -> Any:
        kind = cls.keys["type"].kind.read(reader, reader.mapping(value, key_path).get("type", ""), f"{key_path}.type")
        ways = [way for way in _WAYS if way[0] == kind]
        said = reader.mapping(
            value, key_path, ("type", *(name for _, needed, more in ways for name in (*needed, *more)))
        )
        if kind == "slack" and ("url_env" in said) == ("token_env" in said):
            raise reader.error(key_path, "expected either url_env (an incoming webhook) or token_env (a bot)")
        if kind == "slack" and "url_env" in said and (wrong := sorted(said.keys() - {"type", "url_env"})):
            raise reader.error(
                f"{key_path}.{wrong[0]}", "an incoming webhook always posts to one channel; use token_env instead"
            )
        for name in ways[0][1] if kind != "slack" else ():
            if name not in said:
                raise reader.error(key_path, f"{name} is missing")
        return super().read(reader, value, key_path)

    @classmethod
    def schema(cls) -> Schema:
        made = super().schema()
        keys = made["properties"]
        ways = [
            {
                "type": "object",
                "properties": {"type": {"const": kind}, **{name: keys[name] for name in (*needed, *more)}},
                "additionalProperties": False,
                "required": ["type", *needed],
            }
            for kind, needed, more in _WAYS
        ]
        return {"anyOf": ways, "description": made["description"], "examples": made["examples"]}


_BOT = ("chat_id", "api", "targets")
_WAYS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (  # the type, keys it needs, keys it may have
    ("terminal", (), ()),
    ("file", ("path",), ()),
    ("webhook", ("url_env",), ("headers_env", "files", "targets")),
    ("slack", ("token_env",), _BOT),
    ("slack", ("url_env",), ()),
    ("telegram", ("token_env",), _BOT),
)
